"""The printed tables in the paper's layout: every number once, the best entries marked, levels below."""

import csv
import re
from pathlib import Path

import pytest
import yaml

from drlib import manifest, published
from drlib.book import printed_pages
from drlib.errors import UserError
from drlib.published import layout

ROOT = Path(__file__).parents[1]
BENCHMARK = (2, 13, 14, 15, *range(17, 25))
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def cells(number):
    """All cells of a table that hold printed numbers, as text: without names and without the levels below."""
    frame = layout.table(number)
    first = frame.columns[0]
    frame = frame[~frame[first].str.startswith(layout.FLOOR_AND_CHANCE)]
    names = [name for name in frame if not NUMBER.search(name.replace("# of", ""))]
    return frame.drop(columns=names).to_numpy().ravel().tolist()


ALL = {name: published.printed(name) for name in published.TABLES}


def printed_numbers(number):
    """Every number of a table as the CSV files have it."""
    found = []
    for name, rows in ALL.items():
        if "paper_table" in rows:
            rows = rows[rows.paper_table == str(number)]
        elif name == "in_text":
            rows = rows[rows.place == f"Table {number}"]
        else:
            continue
        for column in ("value", "coverage_percent", "memorization"):
            if column in rows:
                found += [text for text in rows[column] if text]
    return sorted(found)


@pytest.mark.parametrize("number", range(2, 25))
def test_a_table_holds_every_printed_number_once_and_nothing_else(number):
    shown = sorted(text for cell in cells(number) for text in NUMBER.findall(cell))
    assert shown == printed_numbers(number)


@pytest.mark.parametrize("number", (*BENCHMARK, 16))
def test_the_best_value_of_each_column_is_bold_and_no_other(number):
    rows = published.load("image_attacks")
    rows = rows[rows.paper_table == number]
    frame = layout.table(number)
    frame["Attack"] = frame.Attack.where(frame.Attack != "").ffill()
    for (defense, size, metric), part in rows.groupby(["defense", "target_size", "metric"]):
        best = part.value.min() if metric in ("FID", "MSE") else part.value.max()
        expected = set(part.attack[part.value == best])
        name = f"{size:,}"
        if number == 16:
            name = f"{'No defense' if defense == 'none' else defense}: {size:,}"
        lines = frame[frame.Metric.str.startswith(metric)]
        assert set(lines.Attack[lines[name].str.contains(r"\*\*")]) == expected
        static = part[~part.attack.isin(["Updates-Leak", "Deep-Leakage"])]
        best = static.value.min() if metric in ("FID", "MSE") else static.value.max()
        italic = set(lines.Attack[lines[name].str.contains(r"(?<!\*)\*[^*]+\*(?!\*)")])
        assert italic == set(static.attack[static.value == best]) - expected


def test_levels_by_hand():
    # CIFAR-10: five classes. 100 images: k = 20, floor 1/20, chance 1 - (19/20)^20 = 64.15 %.
    frame = layout.table(19)
    levels = frame[frame.Attack.str.startswith(layout.FLOOR_AND_CHANCE)].set_index("Metric")
    assert levels.loc["inside the class", "100"] == "5.00 %, 64.15 %"
    assert levels.loc["100 update images", "20,000"] == "1.00 %, 63.40 %"
    assert levels.loc["all targets (Bias-Rec)", "20,000"] == "0.005 %, 63.21 %"


def test_votes_pairs_and_widths_by_hand():
    votes = layout.table(3)
    assert votes.iloc[0].tolist() == [
        "Memorization",
        "",
        "1.000",
        "0.981",
        "0.862",
        "0.539",
        "0.386",
        "0.301",
    ]
    assert votes.iloc[1].tolist()[:4] == ["Revealer", "# of Major", "**349**", "182"]
    assert layout.table(5)["1,000"].tolist() == ["11 : **989**", "1 : **956**", "0.015 : **0.985**"]
    assert layout.table(6)["20,000: 512"].tolist() == ["251", "39", "0.263"]
    assert "1,000: 2,048 (Ori)" in layout.table(6)
    assert layout.table(7)["1,000"].tolist() == ["**287.497**", "372.803"]
    assert layout.table(10)["20,000"].tolist()[-1] == "**80.814**"


def test_taxonomy_has_four_rows_with_all_ten_attacks():
    frame = layout.table(1)
    names = {name for cell in frame.to_numpy()[:, 2:].ravel() for name in cell.split(", ") if name}
    assert len(frame) == 4 and len(names) == 10


@pytest.mark.parametrize("number", range(1, 25))
def test_every_table_says_what_its_marks_mean(number):
    bold = any("**" in str(cell) for cell in layout.table(number).to_numpy().ravel())
    assert bold == bool(layout.marked(number))


@pytest.mark.parametrize("number", range(1, 25))
def test_a_caption_stands_alone(number):
    """Measures, arrows, defenses and levels that a table shows are explained beside it."""
    frame, caption = layout.table(number), f"{layout.what(number)}. {layout.how_to_read(number)}"
    shown = " ".join([*frame.columns, *map(str, frame.to_numpy().ravel())])
    assert ("# of Major: questions, of 1,000, in which" in caption) == ("# of Major" in shown)
    assert ("target images" in caption) == (number > 1)
    assert ("least possible and the chance coverage" in caption) == (layout.FLOOR_AND_CHANCE in shown)
    assert ("first 1,000 training samples" in caption) == ("Memorization" in shown)
    for name, long in (
        ("MID", "mutual information"),
        ("(DP)", "differential privacy"),
        ("(Pre)", "pre-trained"),
    ):
        assert name not in shown or long in caption
    assert not any(name in caption for name in published.SPELLED)


def test_captions_say_what_the_paper_does_not():
    assert "50 classes, inferred from the printed coverages" in layout.how_to_read(15)
    assert "names neither judge nor data" in layout.what(5) and "GPT-4o" in layout.what(6)
    for number in (9, 11):
        assert layout.table(number).Metric.str.endswith(" ↑").all()


def test_there_are_24_tables():
    for number in (0, 25):
        with pytest.raises(UserError, match="unknown table of the paper"):
            layout.table(number)


# --- their pages ----------------------------------------------------------------------------------------


def test_every_table_and_the_figures_that_follow_have_a_page_in_the_contents():
    toc = (ROOT / "_toc.yml").read_text()
    listed = re.findall(r"book/published/(\w+_\d+)", toc)
    assert listed == [f"table_{n:02d}" for n in range(1, 25)] + [f"figure_{n:02d}" for n in (2, 11, 12)]
    assert yaml.safe_load(toc)


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("staged")
    (tmp_path / "book").mkdir()
    (tmp_path / "tables").mkdir()
    pages = [f"book/published/table_{n:02d}" for n in range(1, 25)] + ["book/published/figure_02"]
    (tmp_path / "book" / "published").mkdir()
    made = {"tab-ours-02", "tab-rests-02", "tab-asks-02", "tab-asks-16"}
    digits = {"dataset": "digits", "architecture": "convnet", "target_sizes": [50, 100], "profile": "laptop"}
    runs = {slug: {"parameters": digits, "states": {}} for slug in ("benchmark", "relations")}
    printed_pages.write(tmp_path, pages, [], runs, made)
    return tmp_path


def test_a_page_shows_its_table_its_state_a_download_and_what_rests_on_it(staged):
    text = (staged / "book/published/table_02.md").read_text()
    assert "# Table 2: Attacks against target size, VGG16 on CelebA\n\n**State of our own run:** " in text
    assert "{include} /fragments/tab-printed-02.md" in text
    assert "{download}`As a CSV file </tables/paper-table-02.csv>`" in text
    assert "## Ours beside it" in text and "## Conclusions that rest on this table" in text
    other = (staged / "book/published/table_03.md").read_text()
    assert "## Ours" not in other and "tab-printed-03" in other
    assert "## Questions" not in other and "{ref}`ask-the-authors`" in text
    asked = (staged / "book/published/table_16.md").read_text()
    assert "{include} /fragments/tab-asks-16.md" in asked and "{ref}`ask-the-authors`" in asked
    figure = (staged / "book/published/figure_02.md").read_text()
    assert "{include} /fragments/fig-printed-02.md" in figure and "download" not in figure
    assert not (staged / "book/published/figure_11.md").exists()


def test_a_page_says_where_the_one_run_behind_ten_tables_is_shown(staged):
    own = (staged / "book/published/table_02.md").read_text()
    assert "2 sizes (50 to 100) for 6 sizes (1,000 to 20,000)" in own
    assert "also stands for:** Tables 15, 17, 18, 19, 20, 21, 22, 23 and 24, Figure 1." in own
    assert "Its result" not in own
    other = (staged / "book/published/table_21.md").read_text()
    assert "also stands for:** Tables 2, 15, 17" in other
    assert "Its result is on the page of {doc}`Table 2 </book/published/table_02>`." in other
    assert "also stands for" not in (staged / "book/published/table_03.md").read_text()


def test_a_page_of_a_figure_tells_the_papers_numbers_from_our_run(staged):
    text = (staged / "book/published/figure_02.md").read_text()
    assert "**State of our own run:** shape only (digits)" in text
    assert "drawn from the numbers that the paper prints, not from our own run." in text


@pytest.mark.parametrize("number", range(2, 25))
def test_a_download_holds_the_printed_numbers(staged, number):
    with (staged / "tables" / f"paper-table-{number:02d}.csv").open() as file:
        rows = list(csv.DictReader(file))
    values = [row["value"] for row in rows] + [row.get("coverage_percent", "") for row in rows]
    expected = printed_numbers(number)
    if number == 3:  # its memorization row repeats Table 2's, which has it in its download
        expected = [
            text for text in expected if text not in ("1.000", "0.981", "0.862", "0.539", "0.386", "0.301")
        ]
    assert sorted(text for text in values if text) == expected
    assert {row["paper_table"] for row in rows} == {str(number)}


def test_the_manifest_lists_what_has_a_page():
    names = {(entry["kind"], entry["number"]) for entry in manifest.by_number(manifest.entries({}))}
    assert len(names) == 24 + 14
