"""What a book consists of and where its parts lie: chapters, and the folders of one profile's build."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drlib.errors import unknown

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Chapter:
    """One notebook of the book. ``stem`` is its file name without ending, such as ``12_benchmark``."""

    slug: str
    stem: str
    number: int
    title: str = ""
    gives: str = ""
    needs: str = ""
    minutes: float = 0.0
    parameters: dict[str, Any] = field(default_factory=dict)
    cells: Callable[[], list[Any]] = list
    reads: Callable[[], list[Any]] = list
    """Cells of other chapters that the notebook shows if they have been computed."""


@dataclass(frozen=True)
class Book:
    """The chapters under one profile, and the folders they are built in (``_build/<profile>/...``).

    ``root`` holds the sources: ``_config.yml``, ``_toc.yml``, ``book/``, ``notebooks/``, ``assets/``.
    """

    profile: str
    chapters: tuple[Chapter, ...]
    root: Path = CHECKOUT
    name: str = ""
    """Folder under ``_build``; the profile's name unless given."""

    @classmethod
    def of(cls, profile: str, overrides: dict[str, dict[str, Any]] | None = None, *, name: str = "") -> Book:
        """The project's book. ``overrides``: a section's slug to parameters that differ from the profile."""
        from drlib import sections

        overrides = overrides or {}
        for slug in overrides:
            sections.section(slug)
        chapters = []
        for slug, section in sections.SECTIONS.items():
            chosen = sections.parameters(slug, profile, overrides.get(slug))
            chapters.append(
                Chapter(
                    slug=slug,
                    stem=section.notebook,
                    number=section.number,
                    title=section.title,
                    gives=section.gives,
                    needs=section.needs,
                    minutes=section.minutes,
                    parameters=chosen.values(),
                    cells=chosen.cells,
                    reads=chosen.reads,
                )
            )
        return cls(profile, tuple(chapters), name=name)

    @property
    def build(self) -> Path:
        return self.root / "_build" / (self.name or self.profile)

    @property
    def html(self) -> Path:
        """The finished pages; replaced only by a complete build."""
        return self.build / "html"

    def source(self, chapter: Chapter) -> Path:
        return self.root / "notebooks" / f"{chapter.stem}.py"

    def twin(self, chapter: Chapter) -> Path:
        return self.root / "notebooks" / "ipynb" / f"{chapter.stem}.ipynb"

    def executed(self, chapter: Chapter) -> Path:
        return self.build / "executed" / f"{chapter.stem}.ipynb"

    def outputs(self, chapter: Chapter) -> Path:
        """Folder of what the notebook saved: ``figures/``, ``tables/``, ``values.json``."""
        return self.build / "outputs" / chapter.stem

    def stamp(self, chapter: Chapter) -> Path:
        return self.build / "stamps" / f"{chapter.stem}.json"

    def running(self, chapter: Chapter) -> Path:
        return self.build / "running" / chapter.stem

    def failed(self, chapter: Chapter) -> Path:
        return self.build / "failed" / f"{chapter.stem}.ipynb"

    def select(self, slugs: tuple[str, ...] | list[str]) -> tuple[Chapter, ...]:
        """The chapters named by slug, or all if none is named."""
        known = {chapter.slug: chapter for chapter in self.chapters}
        for slug in slugs:
            if slug not in known:
                raise unknown("section", slug, known)
        return tuple(known[slug] for slug in dict.fromkeys(slugs)) or self.chapters


def content_hash(content: Any) -> str:
    """Hash of a JSON value: 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def tree_hash(*paths: Path) -> str:
    """Hash of the names and bytes of files and of all files in folders; missing ones count as absent."""
    digest = hashlib.sha256()
    for path in paths:
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        for file in files:
            if "__pycache__" in file.parts or not file.exists():
                continue
            name = file.relative_to(path.parent).as_posix()
            digest.update(f"{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file in one step, so that no reader ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(
        json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    os.replace(temporary, path)


def read_json(path: Path) -> Any:
    """The content of a JSON file, or an empty dictionary if it is missing or not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
