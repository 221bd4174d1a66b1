"""The ``drlib`` command. Every input is checked before anything starts; heavy modules come after that.

Exit codes: 0 done; 1 a check failed (``doctor``, ``store verify``, ``notebooks sync --check``); 2 a refused
input, with one line on standard error; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from drlib import __version__
from drlib.errors import UserError, unknown

if TYPE_CHECKING:
    import pandas
    from rich.table import Table

    from drlib.cells import Cell
    from drlib.data import DataSpec
    from drlib.sections import Parameters


class _Group(TyperGroup):
    """Turns errors that a user can mend into one line and an exit code."""

    def invoke(self, ctx: typer.Context) -> Any:
        if store := os.environ.get("DRLIB_STORE"):  # notebooks run in another folder
            os.environ["DRLIB_STORE"] = str(Path(store).expanduser().absolute())
        try:
            return super().invoke(ctx)
        except UserError as error:
            _say(f"error: {error}")
            raise typer.Exit(2) from None
        except OSError as error:  # a folder that is a file, a full disk, no permission
            where = f": {error.filename}" if error.filename else ""
            _say(f"error: {error.strerror or error}{where}")
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            _say("stopped; nothing finished is lost")
            raise typer.Exit(130) from None

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        try:
            code = super().main(*args, standalone_mode=False, **extra)
        except Exception as error:
            if not hasattr(error, "format_message"):  # not a usage error
                raise
            _say(f"error: {' '.join(error.format_message().split())}{_commands(error)}")
            code = 2
        sys.exit(code if isinstance(code, int) else 0)


def _commands(error: Any) -> str:
    """For an unknown or missing command: what there is."""
    commands = getattr(getattr(getattr(error, "ctx", None), "command", None), "commands", {})
    return f" (allowed: {', '.join(commands)})" if "ommand" in error.format_message() and commands else ""


def _say(message: str) -> None:
    typer.echo(message, err=True)


app = typer.Typer(cls=_Group, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
profile_app = typer.Typer(help="The profiles smoke, laptop and paper.", rich_markup_mode=None)
store_app = typer.Typer(help="The stored results.", rich_markup_mode=None)
notebooks_app = typer.Typer(help="The notebooks' sources and their unexecuted twins.", rich_markup_mode=None)
app.add_typer(profile_app, name="profile")
app.add_typer(store_app, name="store")
app.add_typer(notebooks_app, name="notebooks")

NEAR_DUPLICATES_AMONG = 2_000
"""`drlib data` compares at most so many images of each split: all pairs of larger sets would take minutes."""

ProfileOption = Annotated[str, typer.Option("--profile", help="smoke, laptop or paper.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("-p", metavar="NAME=VALUE", help="Set a parameter; the value is YAML. Repeatable."),
]
FileOption = Annotated[
    str | None, typer.Option("-y", metavar="FILE", help="Read parameters from a YAML file; -p wins.")
]


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Data reconstruction attacks: run a section of the book, read its numbers, build the book."""
    if version:
        typer.echo(f"drlib {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit


@app.command()
def sections(
    paper: Annotated[
        bool, typer.Option("--paper", help="List the paper's tables and figures instead, and their state.")
    ] = False,
    format: Annotated[
        str | None, typer.Option(help="With --paper: text, or json (every panel, parameters, rows).")
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", help="With --paper: whose runs count; default: laptop.")
    ] = None,
) -> None:
    """List the sections: what each regenerates of the paper, how long it takes."""
    if paper:
        _paper(format or "text", profile)
        return
    for name, value in (("--format", format), ("--profile", profile)):
        if value is not None:
            raise UserError(f"{name} belongs to --paper: drlib sections --paper {name} {value}")
    from drlib.sections import SECTIONS

    rows = [
        (f"{item.number:02d}", item.slug, item.title, ", ".join(item.regenerates) or "-", f"{item.minutes:g}")
        for item in SECTIONS.values()
    ]
    _table(("", "section", "title", "regenerates", "minutes (laptop)"), rows)
    typer.echo("drlib run SECTION runs one; drlib run SECTION --help-parameters lists what can be set")


MANIFEST_FORMATS = ("text", "json")


def _paper(format: str, profile: str | None) -> None:
    """The paper's tables and figures: section, parameters, state; a line each, or JSON panel by panel."""
    from drlib import profiles

    if format not in MANIFEST_FORMATS:
        raise unknown("format", format, MANIFEST_FORMATS)
    if profile is not None and profile not in profiles.NAMES:
        raise unknown("profile", profile, profiles.NAMES)
    from drlib import manifest
    from drlib.book.recorded import recorded_runs

    found = manifest.entries(recorded_runs(profile or profiles.DEFAULT))
    if format == "json":
        import json

        typer.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return
    rows = [
        (
            f"{entry['kind'].capitalize()} {entry['number']}",
            entry["what"],
            entry["section"] or f"planned: {entry['planned']}",
            entry["state"],
            manifest.shared_with(entry) or "-",
        )
        for entry in manifest.by_number(found)
    ]
    _table(("item", "what it shows", "section", "state", "shares reconstructions with"), rows)
    typer.echo("drlib sections --paper --format json lists every panel with its parameters, rows and reason")


@app.command()
def run(
    section: str,
    profile: ProfileOption = "laptop",
    values: SetOption = None,
    file: FileOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the executed notebook, figures and tables.")
    ] = None,
    help_parameters: Annotated[
        bool, typer.Option("--help-parameters", help="List the section's parameters and exit.")
    ] = False,
) -> None:
    """Run one section with your own parameters: compute what is missing, execute its notebook."""
    if help_parameters:
        _help_parameters(section)
        return
    parameters = _parameters(section, profile, values, file)
    parameters.check_files()
    if out is not None and out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is not a folder")
    _show_working_folder_to_the_notebook(parameters)
    from drlib.book import run_section

    executed, outputs = run_section(section, profile, parameters.changes())
    if out is not None:
        executed, outputs = _copied(executed, outputs, out)
    typer.echo(f"{executed}\n{outputs}")


def _copied(executed: Path, outputs: Path, out: Path) -> tuple[Path, Path]:
    import shutil

    out.mkdir(parents=True, exist_ok=True)
    shutil.copytree(outputs, out / "outputs", dirs_exist_ok=True)
    return Path(shutil.copy(executed, out)), out / "outputs"


@app.command()
def book(
    profile: ProfileOption = "laptop",
    only: Annotated[
        list[str] | None, typer.Option(metavar="SECTION", help="Only this section. Repeatable.")
    ] = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="Build from the committed reference run; computes nothing.")
    ] = False,
) -> None:
    """Compute what is missing for all sections, run the notebooks, build the book."""
    from drlib import sections

    if reference:
        from drlib.book import read

        if only:
            raise UserError("--reference builds the whole book: leave out --only")
        typer.echo(read())
        return
    for slug in only or sections.SECTIONS:
        sections.parameters(slug, profile).check_files()
    from drlib.book import make

    typer.echo(make(profile, tuple(only or ())))


@app.command()
def results(
    section: Annotated[str | None, typer.Argument(help="One section; all if left out.")] = None,
    profile: ProfileOption = "laptop",
    values: SetOption = None,
    file: FileOption = None,
    format: Annotated[
        str,
        typer.Option(help="csv or parquet (every column), md or latex (those for reading)."),
    ] = "csv",
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of the terminal.")] = None,
    join_seeds: Annotated[
        bool, typer.Option("--join-seeds", help="One row for all seeds, with intervals.")
    ] = False,
) -> None:
    """Print computed results in the columns of the paper's tables, with provenance. Computes nothing."""
    from drlib.sections import SECTIONS

    if section is None and (values or file):
        raise UserError("-p and -y belong to one section: name it (drlib sections lists them)")
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if format == "parquet" and output is None:
        raise UserError("parquet is not text: name a file with --output FILE")
    if output is not None and not output.absolute().parent.is_dir():
        raise UserError(f"cannot write {output}: there is no folder {output.absolute().parent}")
    chosen = [_parameters(slug, profile, values, file) for slug in ([section] if section else SECTIONS)]
    from drlib.cells import Cell  # after the refusals, which need nothing so heavy

    cells = [cell for each in chosen for cell in each.cells() if isinstance(cell, Cell)]  # no experiments
    cells = list({cell.model_dump_json(): cell for cell in cells}.values())
    if not cells:
        raise UserError(f"section {section} has no computed results: it is made of no experiments")
    table = _results_table(cells, profile, f"drlib run {section}" if section else "drlib book", join_seeds)
    _write_table(table, format, output)


def _results_table(cells: list[Cell], profile: str, command: str, join_seeds: bool) -> pandas.DataFrame:
    from drlib import results
    from drlib.store import Store

    store = Store()
    done = results.computed(cells, store)
    if not done:
        raise UserError(f"nothing is computed yet under profile {profile}: {command} --profile {profile}")
    if len(done) < len(cells):
        left = f"{len(cells) - len(done)} of {len(cells)} cells"
        _say(f"note: {left} are not computed yet: {command} --profile {profile}")
    return (results.summary if join_seeds else results.results)(done, store=store, profile=profile)


FORMATS = ("csv", "md", "parquet", "latex")
READABLE = [
    "dataset",
    "model",
    "attack",
    "target_size",
    "metric",
    "value",
    "coverage_percent",
    "value_low",
    "value_high",
    "n",
    "m",
    "gap",
    "gap_low",
    "gap_high",
    "coverage_chance",
    "coverage_holdout",
    "matching",
    "profile",
    "seed",
    "reason",
]
"""The columns of a table that is read rather than processed."""


def _write_table(table: pandas.DataFrame, format: str, output: Path | None) -> None:
    if format == "parquet":
        table.to_parquet(output, index=False)
    else:
        if format == "csv":
            text = table.to_csv(index=False, lineterminator="\n")
        else:
            short = table[[name for name in READABLE if name in table]].map(_readable)
            text = short.to_latex(index=False, escape=True) if format == "latex" else _pipe_table(short)
        if output is None:
            typer.echo(text, nl=False)
        else:
            output.write_text(text, encoding="utf-8")
    if output is not None:
        _say(f"{len(table)} rows written to {output}")


def _readable(value: Any) -> str:
    if isinstance(value, float):
        return "NaN" if value != value else f"{value:.4g}"
    return str(value)


def _pipe_table(table: pandas.DataFrame) -> str:
    from drlib.report import pipe_table

    rows = table.values.tolist()
    right = [
        name not in ("dataset", "model", "attack", "metric", "matching", "profile", "reason")
        for name in table
    ]
    return pipe_table(list(table.columns), rows, right)


@app.command()
def audit(
    file: Annotated[
        Path | None, typer.Argument(help="A CSV file with a results table; left out: the published tables.")
    ] = None,
    format: Annotated[str, typer.Option(help="table, or json (one array of findings).")] = "table",
) -> None:
    """Look for numbers that cannot be, or contradict each other, in the paper's tables or your own."""
    if format not in ("table", "json"):
        raise unknown("format", format, ("table", "json"))
    if file is not None and not file.is_file():
        raise _no_file(file)
    import json

    from drlib import audit

    audited = audit.run(audit.published() if file is None else audit.read(file))
    for name, reason in audited.skipped.items():
        _say(f"note: {name} is left out: it {reason}")
    if format == "json":
        found = [finding.as_json() for finding in audited.findings]
        typer.echo(json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False))
        return
    rows = [
        (
            finding.check,
            "" if finding.table is None else str(finding.table),
            " ".join(
                part for part in (finding.dataset, finding.model, finding.defense, finding.attack) if part
            ),
            "" if finding.target_size is None else f"{finding.target_size}",
            finding.metric,
            finding.printed,
            " or ".join(finding.consistent),
            finding.question,
        )
        for finding in audited.findings
    ]
    if rows:
        _table(("check", "table", "of", "size", "metric", "printed", "consistent", "question"), rows)
    typer.echo(f"{len(rows)} findings by {len(audit.CHECKS) - len(audited.skipped)} checks")
    if file is None:
        typer.echo(audit.CONTACT)


@app.command()
def claims(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE.csv]...", help="Your results tables; left out: this package's reference run."
        ),
    ] = None,
    format: Annotated[str, typer.Option(help="table, or json (one array of claims).")] = "table",
) -> None:
    """Judge the paper's conclusions on its printed numbers, and on your results or the reference run."""
    if format not in ("table", "json"):
        raise unknown("format", format, ("table", "json"))
    for file in files or ():
        if not file.is_file():
            raise _no_file(file)
    import json

    from drlib import audit, claims
    from drlib.book import reference_tables

    own = files or reference_tables("claims-results", "claims-memorization")
    if not own:
        _say("note: no reference run here, so only the paper's numbers are judged; name a FILE.csv")
    ledger = claims.ledger(claims.published_facts(), claims.facts(audit.read(file) for file in own))
    if format == "json":
        typer.echo(json.dumps(ledger, indent=1, ensure_ascii=False))
        return
    rows = [
        (each["id"], each["place"], *(_verdict(each[which]) for which in ("published", "elsewhere", "ours")))
        for each in ledger
    ]
    _table(("claim", "section", "published", "the paper's other tables", "ours"), rows)
    judged = f"{len(rows)} claims; cases for/against/undecided and the mean effect in brackets"
    typer.echo(f"{judged}; --format json says what each compares, its unit, and what is missing")


def _verdict(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    if not found["supports"] + found["against"] + found["undecided"]:
        return found["verdict"]
    counts = f"{found['supports']}/{found['against']}/{found['undecided']}"
    return f"{found['verdict']} ({counts}" + (
        ")" if found["effect"] is None else f", {found['effect']:+.3g})"
    )


def _no_file(file: Path) -> UserError:
    from drlib.errors import nearest

    if file.is_dir():
        return UserError(f"{file} is a folder; name a CSV file")
    folder = file.parent if file.parent.is_dir() else Path()
    return UserError(f"no file {file}{nearest(file.name, [item.name for item in folder.glob('*.csv')])}")


@app.command()
def data(
    name: Annotated[str, typer.Argument(help="A data set, folder:PATH or npz:PATH.")],
    side: Annotated[
        int | None, typer.Option(help="Height and width in pixels; default: the data set's own.")
    ] = None,
    channels: Annotated[int | None, typer.Option(help="1 (gray) or 3 (color).")] = None,
    mode: Annotated[str, typer.Option(help="class, or identity (lfw_subset only).")] = "class",
    root: Annotated[str | None, typer.Option(help="Folder of downloaded files.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch missing files.")] = False,
) -> None:
    """Show a data set: splits, classes, images per class, duplicates, license, source."""
    from drlib.data import DataSpec, check, describe

    chosen = {"side": side, "channels": channels, "mode": mode, "root": root, "download": download}
    spec = DataSpec.of(name, **{key: value for key, value in chosen.items() if value is not None})
    check(spec)
    facts = describe(spec)
    rows = []
    for split, counts in facts["splits"].items():
        per_class = list(counts["per_class"].values())
        balance = (
            f"{min(per_class)}"
            if min(per_class) == max(per_class)
            else f"{min(per_class)} to {max(per_class)}"
        )
        rows.append((split, str(counts["images"]), str(len(per_class)), balance))
    native = f", native side {facts['native_side']}" if facts["native_side"] else ""
    channels, height, width = facts["shape"]
    typer.echo(f"{facts['name']}: {height}x{width}, {channels} channel{'s' if channels > 1 else ''}{native}")
    _table(("split", "images", "classes", "images per class"), rows)
    typer.echo(f"classes: {_listed(facts['classes'])}; auxiliary: {_listed(facts['auxiliary_classes'])}")
    typer.echo(
        f"duplicates dropped: {facts['duplicates_dropped']}; in more than one split: {facts['overlaps']}"
    )
    for line in _near_duplicates(spec):
        typer.echo(line)
    typer.echo(
        f"license: {facts['license']}\nsource: {facts['source']}\nfingerprint: {facts['fingerprint'][:16]}"
    )
    for note in facts["notes"]:
        typer.echo(f"note: {note}")


def _near_duplicates(spec: DataSpec) -> list[str]:
    """How many images of each other split nearly equal a target image (SSIM > 0.95)."""
    from drlib.data import load_splits
    from drlib.metrics.sample import near_duplicates

    splits, most = load_splits(spec), NEAR_DUPLICATES_AMONG
    lines = []
    target = splits.target.images[:most]
    for name in ("holdout", "test", "auxiliary"):
        images = getattr(splits, name).images[:most]
        if len(images):
            alike = near_duplicates(images, target)[:, 0].unique().numel()
            among = f"{len(images)} {name} images (against {len(target)} target images)"
            lines.append(f"near-duplicates (SSIM > 0.95): {alike} of {among}")
    return lines


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 12 else f"{', '.join(names[:10])}, ... ({len(names)})"


@app.command()
def attacks() -> None:
    """List the attacks: what the adversary knows, and the original paper's hyperparameters."""
    from drlib import attacks

    rows = []
    for name in attacks.names():
        attack = attacks.create(name)
        settings = ", ".join(f"{key}={value}" for key, value in attack.hyperparameters().items())
        rows.append((name, attack.title, str(attack.knowledge), settings))
    _table(("name", "title", "knowledge", "hyperparameters (original paper)"), rows)


@profile_app.command("show")
def profile_show(
    name: Annotated[str, typer.Argument(help="smoke, laptop or paper.")],
    resolved: Annotated[bool, typer.Option("--resolved", help="With everything that is inherited.")] = False,
) -> None:
    """Print a profile as YAML: only what it says itself, or all of it."""
    import yaml

    from drlib import profiles, sections

    shown = profiles.overlay(name)
    if resolved:
        shown = profiles.load(name).model_dump(exclude={"name"})
        shown["sections"] = {slug: sections.parameters(slug, name).values() for slug in sections.SECTIONS}
    else:
        before = profiles.NAMES[: profiles.NAMES.index(name)]
        typer.echo(
            f"# inherits from {before[-1]}; null forgets what is inherited"
            if before
            else "# inherits nothing"
        )
    typer.echo(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=100), nl=False)


@store_app.command("ls")
def store_ls(
    kind: Annotated[
        str | None, typer.Argument(help="Only this kind: target, reconstruction, score, ...")
    ] = None,
) -> None:
    """List the stored artifacts."""
    from drlib.doctor import human
    from drlib.store import Store

    store = Store()
    found = list(store.ls())
    kinds = sorted({item["kind"] for item in found})
    if kind is not None and kind not in kinds:
        raise (
            unknown("kind of artifact", kind, kinds)
            if kinds
            else UserError(f"the store {store.root} is empty")
        )
    shown = [item for item in found if kind in (None, item["kind"])]
    rows = [
        (
            item["key"][:8],
            item["kind"],
            _about(item["spec"]),
            human(item["bytes"]),
            _seconds(item["provenance"]),
        )
        for item in shown
    ]
    _table(("key", "kind", "what", "size", "seconds"), rows)
    typer.echo(f"{len(shown)} artifacts, {human(sum(item['bytes'] for item in shown))} in {store.root}")


def _about(spec: dict[str, Any]) -> str:
    """The telling parts of a specification, short."""
    parts = [spec.get(name) for name in ("attack", "control", "architecture", "split", "extractor")]
    words = [str(part) for part in parts if part]
    if isinstance(spec.get("data"), dict):
        words.append(str(spec["data"].get("name")))
    words += [f"{name} {spec[name]}" for name in ("size", "n", "seed") if isinstance(spec.get(name), int)]
    return " ".join(words)


def _seconds(provenance: dict[str, Any]) -> str:
    return f"{provenance['seconds']:.1f}" if isinstance(provenance.get("seconds"), int | float) else "-"


@store_app.command("verify")
def store_verify() -> None:
    """Check every artifact's checksum; set damaged ones aside, to be computed again."""
    from drlib.store import Store

    sound, damaged = Store().verify()
    for message in damaged:
        _say(message)
    typer.echo(f"{sound} sound, {len(damaged)} damaged")
    if damaged:
        raise typer.Exit(1)


@store_app.command("gc")
def store_gc(
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it, only say what would go.")] = False,
) -> None:
    """Delete artifacts that today's code would no longer make (after a change of the code)."""
    from drlib.doctor import human
    from drlib.store import Store
    from drlib.upkeep import outdated

    store = Store()
    stale = outdated(store)
    size = human(sum(meta["bytes"] for meta in stale))
    if not yes:
        typer.echo(f"{len(stale)} outdated artifacts, {size}: drlib store gc --yes deletes them")
        return
    keep = {meta["key"] for meta in store.ls()} - {meta["key"] for meta in stale}
    deleted, freed = store.gc(keep)
    typer.echo(f"{deleted} artifacts deleted, {human(freed)} freed")


@store_app.command("adopt")
def store_adopt() -> None:
    """Keep outdated artifacts after a refactor: one of each kind is made again and must come out equal."""
    from drlib.store import Store
    from drlib.upkeep import adopt

    adoption = adopt(Store(), typer.echo)
    typer.echo(f"{len(adoption.keys)} artifacts adopted, {len(adoption.refused)} kinds refused")
    if adoption.refused:
        raise typer.Exit(1)


@app.command()
def explain(
    key: Annotated[str, typer.Argument(help="An artifact's key, or its beginning.")],
    other: Annotated[str | None, typer.Argument(help="A second key: name what differs.")] = None,
) -> None:
    """Say what an artifact is made from, or what makes two keys differ."""
    import json

    from drlib.store import Store, differences

    store = Store()
    first = store.find(key)
    if other is None:
        for name in ("key", "kind", "spec", "parents", "provenance"):
            typer.echo(f"{name}: {json.dumps(first[name], indent=2, ensure_ascii=False, sort_keys=True)}")
        typer.echo(f"code: {len(first['code'])} functions and classes")
        return
    lines = differences(first, store.find(other))
    typer.echo("\n".join(lines) if lines else "nothing differs: the two are one artifact")


@app.command()
def doctor() -> None:
    """Check this machine: what is there, what is missing, what to do about it."""
    from drlib.doctor import findings

    worst = "ok"
    for finding in findings():
        advice = f" -> {finding.advice}" if finding.advice else ""
        typer.echo(f"{finding.level:4}  {finding.what}: {finding.says}{advice}")
        worst = max(worst, finding.level, key=["ok", "warn", "fail"].index)
    if worst == "fail":
        raise typer.Exit(1)


@notebooks_app.command("sync")
def notebooks_sync(
    check: Annotated[bool, typer.Option("--check", help="Only report what would change.")] = False,
) -> None:
    """Bring the unexecuted twins in notebooks/ipynb up to date with their sources."""
    from drlib.book.notebooks import sync

    changed = sync(check=check)
    for name in changed:
        typer.echo(name)
    typer.echo(f"{len(changed)} {'to change' if check else 'changed'}")
    if check and changed:
        raise typer.Exit(1)


def _parameters(section: str, profile: str, values: Sequence[str] | None, file: str | None) -> Parameters:
    from drlib import sections

    _see_working_folder()
    return sections.parse(section, profile, list(values or ()), file)


def _see_working_folder() -> None:
    """Let ``-p attacks=[my_module:MyAttack]`` find ``my_module.py`` in the working folder, also in workers.

    Last on the path, so that a file there never hides an installed module.
    """
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)


def _show_working_folder_to_the_notebook(parameters: Parameters) -> None:
    """A section with an attack of the reader's own: its notebook's kernel must find the module too."""
    if any(":" in attack for attack in getattr(parameters, "attacks", ())):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), os.getcwd())))


def _help_parameters(section: str) -> None:
    from drlib import sections

    typer.echo(sections.help_text(section))
    typer.echo(f"drlib run {section} -p NAME=VALUE, or -y FILE with NAME: VALUE lines")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table as wide as the terminal; elsewhere one line a row, two spaces between columns."""
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(_rich_table(header, rows))
        return
    widths = [max(len(row[place]) for row in (header, *rows)) for place in range(len(header))]
    for row in (header, *rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo(line.rstrip())


def _rich_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in header:
        table.add_column(name)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def main() -> None:
    """The entry point of ``drlib`` and ``python -m drlib``."""
    app(prog_name="drlib")
