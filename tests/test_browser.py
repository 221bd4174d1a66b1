"""The smoke book in a browser without a network: mathematics, figures, tables; on a screen and a phone."""

import asyncio
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from smoke_book import smoke_book

pytestmark = pytest.mark.browser

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
]


class Browser:
    """A page in headless Chromium, driven over its debugging port."""

    def __init__(self, executable: str, profile: Path) -> None:
        command = [executable, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port = profile / "DevToolsActivePort"
        end = time.monotonic() + 60
        while not (port.exists() and port.read_text().count("\n")):
            assert self.process.poll() is None and time.monotonic() < end, "the browser did not start"
            time.sleep(0.1)
        self.port = int(port.read_text().splitlines()[0])

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()

    def look(self, page: Path, width: int, script: str) -> dict[str, Any]:
        """Load a page and return the value of a script; ``"requests"`` holds what the page asked for."""
        return asyncio.run(self._look(page.as_uri(), width, script))

    async def _look(self, url: str, width: int, script: str) -> dict[str, Any]:
        from tornado.httpclient import AsyncHTTPClient, HTTPRequest
        from tornado.websocket import websocket_connect

        at = f"http://127.0.0.1:{self.port}/json"
        made = await AsyncHTTPClient().fetch(HTTPRequest(f"{at}/new?about:blank", method="PUT", body=b""))
        target = json.loads(made.body)
        socket = await websocket_connect(target["webSocketDebuggerUrl"], max_message_size=1 << 26)
        requests: list[str] = []
        count = 0

        async def call(method: str, **parameters: Any) -> dict[str, Any]:
            nonlocal count
            count += 1
            await socket.write_message(json.dumps({"id": count, "method": method, "params": parameters}))
            while True:
                message = json.loads(await asyncio.wait_for(socket.read_message(), 60))
                if message.get("method") == "Network.requestWillBeSent":
                    requests.append(message["params"]["request"]["url"])
                if message.get("id") == count:
                    assert "error" not in message, message
                    return message["result"]

        await call("Network.enable")
        await call("Page.enable")
        phone = width < 600
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": phone}
        await call("Emulation.setDeviceMetricsOverride", **size)
        await call("Page.navigate", url=url)
        found = await call(
            "Runtime.evaluate",
            expression=f"({READY})().then({script})",
            awaitPromise=True,
            returnByValue=True,
        )
        assert "exceptionDetails" not in found, found
        await AsyncHTTPClient().fetch(f"{at}/close/{target['id']}")
        return {**found["result"]["value"], "requests": requests}


READY = """async () => {
  const wait = () => new Promise(done => setTimeout(done, 100));
  for (let i = 0; i < 300 && document.readyState !== "complete"; i++) await wait();
  if (document.querySelector(".math"))
    for (let i = 0; i < 300 && !document.querySelector("mjx-container"); i++) await wait();
  document.querySelectorAll("img").forEach(image => image.loading = "eager");
  for (let i = 0; i < 300 && ![...document.images].every(image => image.complete); i++) await wait();
}"""

LOOK = """() => ({
  title: document.querySelector("article h1").innerText,
  banner: document.querySelector(".bd-header-announcement, .announcement").innerText,
  equations: [...document.querySelectorAll('mjx-container[display="true"]')].map(e => e.offsetWidth),
  raw: [...document.querySelectorAll(".math")].filter(e => !e.querySelector("mjx-container")).length,
  figures: [...document.querySelectorAll("figure")].map(e => ({
    shown: [...e.querySelectorAll("img")].map(i => Math.min(i.naturalWidth, i.offsetWidth)),
    alt: [...e.querySelectorAll("img")].map(i => i.alt),
    caption: (e.querySelector("figcaption") || {innerText: ""}).innerText})),
  tables: [...document.querySelectorAll("table.drlib-table")].map(e => ({
    caption: (e.querySelector("caption") || {innerText: ""}).innerText,
    header: [...e.querySelectorAll("th")].map(c => c.innerText),
    rows: [...e.querySelectorAll("tbody tr")].map(r => [...r.cells].map(c => c.innerText))})),
  page: document.documentElement.scrollWidth
})"""


@pytest.fixture(scope="module")
def browser(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    profile = tmp_path_factory.mktemp("chromium")
    opened = Browser(chromium, profile)
    yield opened
    opened.close()
    shutil.rmtree(profile, ignore_errors=True)


@pytest.mark.parametrize("width", [1300, 390], ids=["screen", "phone"])
def test_the_benchmark_chapter_in_a_browser(browser: Browser, width: int) -> None:
    html = smoke_book() / "html"
    seen = browser.look(html / "notebooks" / "12_benchmark.html", width, LOOK)

    assert seen["title"].startswith("12. ")
    assert "numbers mean nothing" in seen["banner"]
    away = [url for url in seen["requests"] if not url.startswith(("file:", "data:", "about:", "blob:"))]
    assert away == []

    figures = [figure for figure in seen["figures"] if figure["caption"].startswith("Fig. 12.")]
    assert figures
    for figure in figures:
        assert all(pixels > 100 for pixels in figure["shown"]), figure["caption"]
        assert all(len(alt) > 8 for alt in figure["alt"]), figure["caption"]

    tables = [table for table in seen["tables"] if table["caption"].startswith("Table 12.")]
    assert tables
    beside = [table for table in tables if "published" in " ".join(table["header"]).lower()]
    assert beside, "no table has a column of published numbers"
    for table in beside:
        published = next(i for i, name in enumerate(table["header"]) if "published" in name.lower())
        reproduced = next(i for i, name in enumerate(table["header"]) if "reproduced" in name.lower())
        for row in table["rows"]:
            for cell in (row[published], row[reproduced]):
                assert re.match(r"-?\d+(\.\d+)?\sto\s-?\d+(\.\d+)?:", cell), row

    assert seen["page"] <= width, "the page must not scroll sideways; wide tables scroll inside their box"


def test_mathematics_is_typeset_without_a_network(browser: Browser) -> None:
    html = smoke_book() / "html"
    seen = browser.look(html / "notebooks" / "02_metrics.html", 1300, LOOK)
    assert seen["equations"] and min(seen["equations"]) > 50
    fonts = [url for url in seen["requests"] if url.endswith(".woff")]
    assert fonts and all("/_static/mathjax/" in url for url in fonts)


def test_every_page_is_whole_on_a_phone(browser: Browser) -> None:
    html = smoke_book() / "html"
    pages = sorted([*html.glob("book/*.html"), *html.glob("notebooks/*.html")])
    assert len(pages) >= 10
    for path in pages:
        seen = browser.look(path, 390, LOOK)
        assert seen["raw"] == 0, f"{path.name}: {seen['raw']} formulas are not typeset"
        assert seen["page"] <= 390, f"{path.name} scrolls sideways"
        away = [url for url in seen["requests"] if not url.startswith(("file:", "data:", "about:", "blob:"))]
        assert away == [], f"{path.name} asks for {away}"
