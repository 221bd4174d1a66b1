"""The manifest: what the paper shows, which section makes it, its state from artifacts, who shares what."""

import csv
import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drlib import cli, data, declared, manifest, published, report, sections
from drlib.book.recorded import recorded_runs
from drlib.errors import UserError
from drlib.manifest import sharing, state
from drlib.manifest.items import CONVOLUTIONAL, PLANNED, target_sizes

PANELS = {2: "abcd", 4: "ab", 7: "ab", 8: "abcdefghij", 9: "abcdefghij", 10: "abcdefghij", 11: "abcd"}
PANELS |= {12: "abcd", 13: "abcdef", 14: "abcdefghi"}
ITEMS = manifest.items()


def item(name: str, panel: str | None = None) -> manifest.Item:
    """A table or figure; of a figure with panels the one named, or the first."""
    return next(each for each in ITEMS if each.name == name and panel in (each.panel, None))


def title(each: manifest.Item) -> str:
    return f"{each.name} {each.panel or ''}".strip()


# --- what there is ---


def test_24_tables_and_14_figures_with_the_panels_of_their_captions():
    expected = [("table", number, None) for number in range(1, 25)]
    for number in range(1, 15):
        expected += [("figure", number, panel) for panel in PANELS.get(number, [None])]
    assert [(each.kind, each.number, each.panel) for each in ITEMS] == expected


def test_panels_have_the_captions_of_the_paper():
    labels = {(each.number, each.panel): each.label for each in ITEMS if each.panel}
    assert labels[2, "d"] == labels[11, "d"] == labels[12, "d"] == "Correlation"
    assert [labels[2, panel] for panel in "abc"] == ["FID vs. SSIM", "FID vs. PSNR", "FID vs. MSE"]
    assert "".join(labels[8, panel][0] for panel in PANELS[8]) == "MDDRIBKPUD"
    assert [labels[9, panel] for panel in "ej"] == ["Inv-Alignment", "Deep-Leakage"]
    order = ["CelebA", "CIFAR10", "MNIST"]
    quantity = [f"{kind} ({dataset})" for dataset in order for kind in ("Measure", "Coverage")]
    assert [labels[13, panel] for panel in PANELS[13]] == quantity
    attacked = [labels[14, panel].split(",")[0] for panel in PANELS[14]]
    assert attacked[:6] == ["MI-Face", "DeepDream", "DeepInversion", "Revealer", "Bias-Rec", "KEDMI"]
    assert attacked[6:] == ["Revealer", "Inv-Alignment", "KEDMI"]


def printed_rows() -> dict[int, list[dict[str, str]]]:
    """Every row of the published files, by table."""
    found = {}
    for name in published.TABLES:
        with (Path(published.__file__).parent / f"{name}.csv").open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if "paper_table" in row:
                    found.setdefault(int(row["paper_table"]), []).append(row)
    return found


@pytest.mark.parametrize("number", range(2, 25))
def test_a_tables_grid_is_that_of_the_published_numbers(number):
    table, rows = item(f"Table {number}"), printed_rows()[number]
    memorized = [row for row in rows if "memorization" in row]
    memorized += [
        row for row in published.printed("in_text").to_dict("records") if row["place"] == table.name
    ]
    assert table.memorization == bool(memorized)
    if memorized:
        assert [int(row["target_size"]) for row in memorized] == table.rows["target_size"]
    grid = {name: [str(value) for value in values] for name, values in table.rows.items()}
    printed = [tuple(row[name] for name in grid) for row in rows if "memorization" not in row]
    assert len(printed) == len(set(printed))
    assert set(printed) == set(product(*grid.values()))


def test_table_1_has_the_ten_attacks():
    assert set(item("Table 1").rows["attack"]) == set(item("Table 2").rows["attack"])


def test_grids_of_figures_are_those_of_the_protocol():
    assert list(target_sizes(item("Figure 1").rows, "CIFAR10")) == [100, 20_000]
    assert list(target_sizes(item("Figure 1").rows, "CelebA")) == [1_000, 20_000]
    for number, datasets in (
        (2, ["CelebA", "CIFAR10", "MNIST"]),
        (11, ["CIFAR10", "MNIST"]),
        (12, ["CelebA"]),
    ):
        rows = item(f"Figure {number}", "a").rows
        assert rows["dataset"] == datasets and len(rows["attack"]) == 10
        assert [len(list(target_sizes(rows, dataset))) for dataset in datasets] == [6] * len(datasets)
    quantity = item("Figure 13", "c").rows
    assert quantity["reconstructions"] == [5_000 * k for k in range(1, 9)] and quantity["dataset"] == [
        "CIFAR10"
    ]
    assert item("Figure 4", "a").rows["auxiliary"] == ["same", "similar"]
    assert item("Figure 14", "f").rows["access"] == ["white box", "black box"]
    assert item("Figure 14", "g").rows["auxiliary"] == ["same", "similar"]
    assert item("Figure 5").runs[0]["auxiliary"] == ["clean and triggered"]
    assert item("Table 3").memorization


# --- which section, with what ---


@pytest.mark.parametrize("each", ITEMS, ids=title)
def test_parameters_are_taken_or_only_data_or_architecture_are_missing(each):
    assert each.runs and all(isinstance(run, dict) for run in each.runs)
    assert json.loads(json.dumps(each.runs)) == list(each.runs)
    if each.section is None:
        return
    for run in each.runs:
        try:
            sections.parameters(each.section, "paper", run)
        except UserError as error:
            missing = (
                run.get("dataset") not in data.NAMES or run["architecture"] not in declared.ARCHITECTURES
            )
            assert missing and re.match(r"unknown (data set|architecture)", str(error)), error
            reason = state.missing(each).reason
            assert str(error).startswith(reason) or reason.startswith("no loader for ")


def test_a_run_for_each_data_set_and_model():
    assert [run["dataset"] for run in item("Figure 1").runs] == ["celeba", "cifar10", "mnist"]
    assert len(item("Figure 2", "a").runs) == 9 and len(item("Table 2").runs) == 1
    table = item("Table 24").runs[0]
    assert table["architecture"] == "resnet18" and table["target_sizes"][:2] == [100, 500]
    assert item("Table 3").runs[0]["variants"] == {"plgmi": ["none", "pretrained"]}
    assert item("Table 16").runs[0]["defenses"] == ["none", "mid", "dp"]
    assert [run["dataset"] for run in item("Table 9").runs] == ["sst2", "ag_news", "imdb"]


def test_sections_and_manifest_say_the_same():
    for slug, section in sections.SECTIONS.items():
        made = dict.fromkeys(each.name for each in ITEMS if each.planned == slug)
        assert sorted(section.regenerates) == sorted(made), slug
    assert {each.planned for each in ITEMS} <= {*sections.SECTIONS, *PLANNED}


# --- sharing ---


def shared(name: str) -> dict[str, str]:
    return {each["item"]: each["what"] for each in sharing.shares(item(name))}


def test_the_undefended_rows_of_table_16_are_those_of_table_2():
    found = shared("Table 16")
    assert found["Table 2"] == "10 attacks at 1,000 and 20,000 images, no defense"
    assert found["Table 10"] == "PLGMI at 1,000 and 20,000 images, DP and no defense"
    assert found["Table 7"] == "DeepInversion at 1,000 and 20,000 images, no defense"
    assert found["Table 17"] == "Bias-Rec at 1,000 and 20,000 images, no defense"
    assert "Table 19" not in found and "Table 13" not in found and "Table 4" not in found


def test_tables_that_share_print_the_same_values():
    """The paper prints shared cells twice: the values say which experiments are the same."""
    values = {}
    for number, rows in printed_rows().items():
        for row in rows:
            if row.get("metric") == "FID":
                values.setdefault(row["value"], set()).add((number, row["attack"], int(row["target_size"])))
    alike = {}
    for places in values.values():
        for (one, attack, size), (other, *same) in product(places, places):
            if one < other and same == [attack, size]:
                alike.setdefault((one, other), set()).add((attack, size))
    for (one, other), cells in alike.items():
        mine, theirs = (sharing.experiments(item(f"Table {number}")) for number in (one, other))
        assert cells <= {(each.attack, each.size) for each in mine & theirs}, (one, other)
    assert {(2, 16), (2, 7), (2, 10), (2, 17), (2, 18), (10, 16), (19, 20), (22, 24)} <= set(alike)


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        ("Table 3", "Table 2", "3 attacks at 6 sizes"),
        ("Table 3", "Table 4", "PLGMI at 6 sizes, pretrained"),
        ("Table 5", "Table 10", "PLGMI at 6 sizes, no defense and pretrained"),
        ("Table 6", "Table 2", "PLGMI at 1,000 and 20,000 images"),
        ("Table 8", "Table 13", "PLGMI at 6 sizes"),
        ("Table 17", "Table 18", "Bias-Rec at 6 sizes"),
        ("Figure 1", "Table 19", "10 attacks at 100 and 20,000 images, CIFAR-10"),
        ("Figure 12", "Table 18", "10 attacks at 6 sizes"),
        ("Figure 11", "Table 22", "10 attacks at 6 sizes, MNIST"),
    ],
)
def test_known_pairs(one, other, what):
    assert shared(one)[other].startswith(what)


def test_sharing_is_symmetric_and_some_share_nothing():
    pairs = {(each.name, other["item"]) for each in ITEMS for other in sharing.shares(each)}
    assert pairs == {(b, a) for a, b in pairs} and all(a != b for a, b in pairs)
    alone = {each.name for each in ITEMS} - {a for a, _ in pairs}
    assert alone == {
        "Table 1",
        "Table 9",
        "Table 11",
        "Table 15",
        "Figure 5",
        "Figure 6",
        "Figure 7",
        "Figure 13",
    }


# --- states ---

FULL = {
    "profile": "paper",
    "dataset": "celeba",
    "architecture": "vgg16",
    "target_sizes": [1000, 2000, 5000, 10000, 15000, 20000],
    "attacks": item("Table 2").runs[0]["attacks"],
    "extractor": "inception",
}


@pytest.fixture
def nowhere(tmp_path, monkeypatch) -> Path:
    """No data and an empty store."""
    monkeypatch.setenv("DRLIB_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("DRLIB_DATA", str(tmp_path / "data"))
    return tmp_path


@pytest.mark.parametrize(
    ("change", "word", "reason"),
    [
        ({}, "regenerated", ""),
        ({"dataset": "digits"}, "shape only (digits)", "data digits for CelebA"),
        ({"dataset": "folder:/my/images"}, "shape only (folder)", "for CelebA"),
        ({"architecture": "convnet"}, "shape only (celeba)", "model convnet for VGG16"),
        (
            {"target_sizes": [1000, 20000]},
            "shape only (celeba)",
            "2 sizes (1,000 to 20,000) for 6 sizes (1,000 to 20,000)",
        ),
        ({"attacks": FULL["attacks"][:9]}, "shape only (celeba)", "9 of 10 attacks"),
        ({"profile": "smoke"}, "shape only (celeba)", "settings of the profile smoke"),
        ({"width": 0.1}, "shape only (celeba)", "width changed"),
        (
            {"extractor": "efficientnet_lite0"},
            "shape only (celeba)",
            "features of efficientnet_lite0, so no FID",
        ),
    ],
)
def test_a_run_regenerates_only_if_all_of_it_was_run(nowhere, change, word, reason):
    found = state.state(item("Table 2"), {"parameters": {**FULL, **change}, "states": {}})
    assert found.word == word and reason in found.reason
    assert ("no loader for CelebA yet" in found.reason) == (word != "regenerated")


def test_a_run_that_says_its_state_is_believed(nowhere):
    said = {"Table 2": {"state": "needs weights", "reason": "no Inception"}}
    run = {"parameters": {**FULL, "dataset": "digits"}, "states": said}
    assert state.state(item("Table 2"), run) == ("needs weights", "no Inception")
    run["states"] = {"Figure 8 (d)": {"state": "needs GPU", "reason": "no memory"}}
    assert state.state(item("Figure 8", "d"), run) == ("needs GPU", "no memory")


def test_a_run_without_the_panels_attack_did_not_make_it(nowhere):
    run = {"parameters": {"dataset": "digits", "attacks": ["mi_face"]}, "states": {}}
    assert state.state(item("Figure 9", "a"), run) == ("shape only (digits)", "data digits for CIFAR-10")
    assert state.state(item("Figure 9", "d"), run).word == "needs data"


def test_a_figure_without_stated_data_is_never_regenerated(nowhere):
    run = {"parameters": {"dataset": "digits"}, "states": {}}
    assert state.state(item("Figure 7", "a"), run).word == "shape only (digits)"


def test_table_1_is_compared_with_the_attacks_declarations(monkeypatch):
    assert state.state(item("Table 1"), None) == ("regenerated", "")
    declarations = {name: declared.taxonomy(name) for name in ("mi_face", "kedmi")}
    assert declarations["kedmi"] == [("KEDMI", "static", "white_box", kind) for kind in ("similar", "same")]
    monkeypatch.setattr(declared, "taxonomy", lambda name: declarations["mi_face"])
    found = state.state(item("Table 1"), None)
    assert found.word == "not yet" and "KEDMI" in found.reason


def test_what_is_planned_says_what_it_needs():
    found = state.state(item("Table 12"), None)
    assert found == (
        "not yet",
        "planned: section 19, judge; will need CelebA data, MAE, a GPU, an API key of the judge",
    )


def test_nothing_ran_and_something_is_missing(nowhere, monkeypatch):
    """Data, weights, GPU, key: the first that is missing is named."""
    from drlib.metrics import features

    table = item("Table 19")
    assert state.state(item("Table 2"), None) == ("needs data", "no loader for CelebA yet")
    found = state.state(table, None)
    assert found.word == "needs data" and "cifar10" in found.reason
    monkeypatch.setattr(data, "check", lambda spec: None)
    monkeypatch.setattr(features, "available", lambda extractor: "no weights" * (extractor == "inception"))
    assert state.missing(table) == ("needs weights", "no weights")
    monkeypatch.setattr(features, "available", lambda extractor: None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert state.missing(table).word == "needs GPU"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    judged = replace(table, rows={**table.rows, "judge": ["GPT-4o"]})
    monkeypatch.setattr(manifest.Item, "runs", property(lambda self: table_runs))
    table_runs = ({"dataset": "cifar10"},)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert state.missing(judged) == ("needs key", "OPENAI_API_KEY is not set")
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    assert state.missing(judged) == ("not yet", "everything is here; it has not been run")


def test_stored_scores_regenerate(nowhere, monkeypatch):
    """A made-up table of digits: regenerated when the last score of its grid is in the store."""
    from drlib import study
    from drlib.store import Store

    run = {"dataset": "digits", "architecture": "convnet", "target_sizes": [50], "attacks": ["mi_face"]}
    run |= {"controls": ["noise"], "repeats": 1, "extractor": "efficientnet_lite0"}
    table = replace(item("Table 19"), memorization=False)
    monkeypatch.setattr(manifest.Item, "runs", property(lambda self: (run,)))
    assert not state.is_stored(table)
    cells = sections.parameters("benchmark", "paper", run).cells()
    folders = [Store().folder("score", study.plan(cell).tasks["score"].key) for cell in cells]
    assert len(folders) == 2
    folders[0].mkdir(parents=True)
    assert not state.is_stored(table)
    folders[1].mkdir(parents=True)
    assert state.is_stored(table)
    assert state.state(table, None) == ("regenerated", "")
    assert not state.is_stored(replace(table, memorization=True))  # its row of memorization is not there


def test_states_are_those_of_the_report():
    for entry in manifest.entries(recorded_runs("laptop")):
        assert entry["state"] in report.STATES or entry["state"].startswith("shape only (")


def test_panels_of_a_figure_are_joined():
    def panel(letter, word, reason=""):
        said = {"what": "A: b", "state": word, "reason": reason, "shares": []}
        return {"kind": "figure", "number": 8, "panel": letter, **said}

    made = [panel("a", "regenerated"), panel("b", "shape only (digits)", "data"), panel("c", "regenerated")]
    (found,) = manifest.by_number(made)
    assert found["state"] == "shape only (digits)" and found["what"] == "A"
    assert found["reason"] == "panels a and c: regenerated; panel b: data"
    (found,) = manifest.by_number([made[0], made[2]])
    assert (found["state"], found["reason"]) == ("regenerated", "")
    whole = manifest.by_number(manifest.entries({}))
    assert [(each["kind"], each["number"]) for each in whole] == [
        *(("table", number) for number in range(1, 25)),
        *(("figure", number) for number in range(1, 15)),
    ]


# --- recorded runs ---


def test_a_profiles_run_counts_before_the_reference_run(tmp_path, root):
    reference = tmp_path / "results" / "laptop" / "12_benchmark.json"
    reference.parent.mkdir(parents=True)
    shutil.copy(root / "results" / "laptop" / "12_benchmark.json", reference)
    found = recorded_runs("smoke", tmp_path)
    assert list(found) == ["benchmark"] and found["benchmark"]["parameters"]["profile"] == "laptop"
    stamp = tmp_path / "_build" / "smoke" / "stamps" / "12_benchmark.json"
    stamp.parent.mkdir(parents=True)
    stamp.write_text(json.dumps({"parts": {"parameters": {"profile": "smoke"}}}))
    values = tmp_path / "_build" / "smoke" / "outputs" / "12_benchmark" / "values.json"
    values.parent.mkdir(parents=True)
    said = {"Table 2": {"state": "needs GPU", "reason": ""}}
    values.write_text(json.dumps({"values": {}, "states": said}))
    assert recorded_runs("smoke", tmp_path)["benchmark"] == {
        "parameters": {"profile": "smoke"},
        "states": said,
    }
    assert recorded_runs("laptop", tmp_path)["benchmark"]["parameters"]["profile"] == "laptop"


# --- the command ---


def drlib(*words: str, code: int = 0):
    done = CliRunner().invoke(cli.app, ["sections", *words])
    assert done.exit_code == code, done.output
    return done


def test_the_command_prints_one_json_array_and_nothing_else(nowhere):
    done = drlib("--paper", "--format", "json")
    found = json.loads(done.stdout)
    assert done.stderr == "" and len(found) == len(ITEMS)
    for entry, each in zip(found, ITEMS, strict=True):
        assert (entry["kind"], entry["number"], entry["panel"]) == (each.kind, each.number, each.panel)
        assert isinstance(entry["number"], int) and isinstance(entry["parameters"], dict)
        assert entry["section"] in (*sections.SECTIONS, None) and entry["planned"] == each.planned
        assert isinstance(entry["state"], str) and set(entry) >= {"what", "rows", "shares", "reason"}
    by_name = {(entry["kind"], entry["number"]): entry for entry in found}
    assert by_name["table", 19]["section"] == "benchmark" and by_name["table", 16]["section"] is None
    assert {"item": "Table 2", "what": "10 attacks at 1,000 and 20,000 images, no defense"} in by_name[
        "table", 16
    ]["shares"]


def test_the_command_prints_a_table(nowhere):
    lines = drlib("--paper", "--profile", "smoke").stdout.splitlines()
    assert len(lines) == 1 + 24 + 14 + 1
    line = next(line for line in lines if line.startswith("Table 16 "))
    assert "planned: defenses" in line and "not yet" in line and "Tables 2, 3, 5" in line
    assert next(line for line in lines if line.startswith("Table 1 ")).split("  ")[-1] == "-"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--paper", "--format", "jsn"], "unknown format 'jsn'; did you mean 'json'"),
        (["--paper", "--profile", "labtop"], "unknown profile 'labtop'; did you mean 'laptop'"),
        (["--format", "json"], "--format belongs to --paper"),
        (["--profile", "smoke"], "--profile belongs to --paper"),
    ],
)
def test_bad_options_are_refused(words, message):
    done = drlib(*words, code=2)
    assert done.stdout == "" and message in done.stderr and done.stderr.count("\n") == 1


def test_nothing_heavy_is_imported_and_it_is_quick(nowhere):
    code = (
        "import sys; from drlib.cli import main\n"
        "sys.argv[1:] = ['sections', '--paper', '--format', 'json']\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert time.perf_counter() - began < 3
    assert isinstance(json.loads(done.stdout), list)
    assert not {"torch", "numpy", "pandas", "matplotlib", "rich"} & set(done.stderr.split())


def test_networks_of_convolutions_are_those_of_the_main_tables():
    assert {item(f"Table {number}").rows["model"][0] for number in (2, *range(17, 25))} == set(CONVOLUTIONAL)
