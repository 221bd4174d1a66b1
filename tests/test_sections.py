"""Sections: parameters are checked by name, type and range before anything starts."""

import ast
import dataclasses
import json
import shlex
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drlib import attacks, declared, profiles, sections
from drlib.errors import UserError

ALL = [(slug, profile) for slug in sections.SECTIONS for profile in profiles.NAMES]


@pytest.mark.parametrize(("slug", "profile"), ALL)
def test_every_profile_gives_valid_parameters(slug, profile):
    parameters = sections.parameters(slug, profile)
    assert parameters.profile == profile
    assert parameters.changes() == {}
    assert parameters.command() == f"drlib run {slug} --profile {profile}"


@pytest.mark.parametrize("profile", profiles.NAMES)
def test_profiles_and_sections_name_the_same_sections(profile):
    assert set(profiles.load(profile).sections) == set(sections.SECTIONS)


def test_sections_say_what_they_regenerate():
    made = {item for section in sections.SECTIONS.values() for item in section.regenerates}
    figures = {f"Figure {number}" for number in (1, 2, 7, 8, 9, 10, 11, 12)}
    tables = {f"Table {number}" for number in (1, 2, 15, *range(17, 25))}
    assert made == tables | figures
    assert [section.notebook for section in sections.SECTIONS.values()] == [
        "00_ten_minutes",
        "01_taxonomy",
        "02_metrics",
        "03_leaked",
        "04_accuracy",
        "05_relations",
        "06_attacks",
        "12_benchmark",
        "13_tsne",
        "17_memorization",
        "31_published",
        "32_claims",
        "33_audit",
    ]


REFUSED = [
    ("target_size=[50]", "unknown parameter of benchmark 'target_size'; did you mean 'target_sizes'"),
    ("target_sizes=50", "target_sizes=50 is not allowed (allowed: a list of whole numbers"),
    ("target_sizes=[50, x]", "target_sizes=[50, x] is not allowed"),
    ("target_sizes=[50, 1.5]", "target_sizes=[50, 1.5] is not allowed"),
    ("target_sizes=[true]", "target_sizes=[true] is not allowed"),
    ("target_sizes=[]", "target_sizes=[] is not allowed"),
    ("target_sizes=[0]", "target_sizes=[0] is not allowed"),
    ("target_sizes=[50, 50]", "50 is given twice"),
    ("target_sizes=[500]", "the target split of digits has 400 images, fewer than 500"),
    ("target_sizes=[1", "-p target_sizes is not valid YAML"),
    ("seed=010", 'seed="010" is not allowed (allowed: a whole number from 0 to 2147483547)'),
    ("seed=-1", "seed=-1 is not allowed"),
    ("seed=1.0", "seed=1.0 is not allowed"),
    ("seed=true", "seed=true is not allowed"),
    ("seed=none", "seed=none is not allowed"),
    ("seed=", "-p seed= has no value (allowed: a whole number from 0 to 2147483547)"),
    ("seed", "-p seed: write name=value"),
    ("=1", "write name=value"),
    ("profile=smoke", "choose the profile with --profile smoke"),
    ("repeats=0", "repeats=0 is not allowed"),
    ("n=0", "n=0 is not allowed (allowed: a whole number from 1, or none)"),
    ("width=.nan", "width=NaN is not allowed"),
    ("width=0", "width=0 is not allowed"),
    ("download=yes", "download=yes is not allowed (allowed: true or false)"),
    ("channels=2", "channels=2 is not allowed (allowed: 1 or 3)"),
    ("side=7", "side=7 is not allowed (allowed: a whole number from 8 to 64)"),
    ("mode=identity", "mode 'identity' exists only for lfw_subset, not for digits"),
    ("mode=clas", "mode=clas is not allowed (allowed: class or identity)"),
    ("dataset=digit", "unknown data set 'digit'; did you mean 'digits'"),
    ("dataset=npz:", "needs a path"),
    ("dataset=zip:x", "unknown data set 'zip:x'"),
    ("architecture=vgg", "unknown architecture 'vgg'; did you mean 'vgg16'"),
    ("architecture=none", "unknown architecture 'none'"),
    ("extractor=incepton", "unknown extractor 'incepton'; did you mean 'inception'"),
    ("attacks=mi_face", "attacks=mi_face is not allowed (allowed: a list of attacks"),
    ("attacks=[]", "attacks=[] is not allowed"),
    ("attacks=[mi_fac]", "unknown attack 'mi_fac'; did you mean 'mi_face'"),
    ("attacks=[mi_face, mi_face]", "mi_face is given twice"),
    ("attacks=[no_such_module:X]", "there is no module 'no_such_module' on Python's path"),
    ("controls=[noize]", "unknown control 'noize'; did you mean 'noise'"),
    ("training={epoch: 3}", "unknown training parameter 'epoch'; did you mean 'epochs'"),
    ("training={epochs: '3'}", "training: epochs='3' is not allowed (allowed: a whole number)"),
    ("training={epochs: 0}", "epochs"),
    ("training={optimizer: sdg}", "optimizer='sdg' is not allowed (allowed: one of adamw, adam, sgd)"),
    ("training=3", "training=3 is not allowed (allowed: a mapping"),
    ("hyperparameters={reveeler: {}}", "did you mean 'revealer'"),
    ("hyperparameters={mi_face: {step: 3}}", "hyperparameter of mi_face 'step'; did you mean 'steps'"),
    ("hyperparameters={mi_face: {steps: abc}}", "mi_face: steps='abc' is not allowed"),
    ("hyperparameters={mi_face: {steps: true}}", "mi_face: steps=True is not allowed"),
    ("hyperparameters={mi_face: {optimizer: sgd}}", "(allowed: one of gd, adam)"),
    ("hyperparameters={mi_face: 3}", "hyperparameters={mi_face: 3} is not allowed"),
]


@pytest.mark.parametrize(("assignment", "message"), REFUSED)
def test_bad_parameters_are_refused_in_one_line(assignment, message):
    with pytest.raises(UserError) as error:
        sections.parse("benchmark", "laptop", [assignment])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_all_problems_are_named_at_once():
    with pytest.raises(UserError) as error:
        sections.parse("benchmark", "laptop", ["seed=x", "side=1", "extractor=y"])
    assert all(name in str(error.value) for name in ("seed=x", "side=1", "extractor 'y'"))


def test_a_parameter_given_twice_is_refused():
    with pytest.raises(UserError, match="-p seed is given twice"):
        sections.parse("benchmark", "laptop", ["seed=1", "seed=1"])


@pytest.mark.parametrize("slug", sections.SECTIONS)
def test_unknown_sections_and_profiles_are_refused(slug):
    with pytest.raises(UserError, match=f"unknown section '{slug}x'; did you mean '{slug}'"):
        sections.parse(f"{slug}x", "laptop", [])
    with pytest.raises(UserError, match="did you mean 'paper'"):
        sections.parse(slug, "papers", [])


def test_values_mean_what_they_say():
    given = [
        "download=true",
        "n=none",
        "width=0.25",
        "target_sizes=[100, 50]",
        "attacks=[deep_dream]",
        "seed=3",
    ]
    parameters = sections.parse("benchmark", "laptop", given)
    assert parameters.download is True and parameters.n is None and parameters.width == 0.25
    assert parameters.target_sizes == (50, 100)  # ascending, whatever the order
    assert parameters.attacks == ("deep_dream",)
    assert parameters.seeds == (3, 4)


def test_text_is_taken_as_typed(tmp_path):
    folder = tmp_path / "010: true #"
    folder.mkdir()
    parameters = sections.parse("metrics", "laptop", [f"dataset=folder:{folder}", f"root={folder}"])
    assert parameters.dataset == f"folder:{folder}" and parameters.root == str(folder)
    assert sections.parse("metrics", "laptop", ["root=none"]).root is None


def test_a_file_gives_parameters_and_p_wins(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("seed: 5\ntarget_sizes: [20]\nhyperparameters: {mi_face: {steps: 7}}\n")
    parameters = sections.parse("benchmark", "smoke", ["seed=6"], str(file))
    assert (parameters.seed, parameters.target_sizes) == (6, (20,))
    assert parameters.resolved_hyperparameters("mi_face")["steps"] == 7


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("sed: 5", "unknown parameter of benchmark 'sed'; did you mean 'seed'"),
        ("seed: 1\nseed: 2", "'seed' is given twice"),
        ("- seed", "must hold a mapping"),
        ("profile: smoke", "choose it with --profile smoke"),
        ("seed: '1'", 'seed="1" is not allowed'),
    ],
)
def test_bad_files_are_refused(tmp_path, content, message):
    file = tmp_path / "mine.yaml"
    file.write_text(content)
    with pytest.raises(UserError, match=message):
        sections.parse("benchmark", "smoke", [], str(file))


def test_unreadable_files_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*absent"):
        sections.parse("benchmark", "smoke", [], str(tmp_path / "absent"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not UTF-8"):
        sections.parse("benchmark", "smoke", [], str(tmp_path / "binary"))


def test_another_data_set_brings_its_own_shape():
    color = sections.parameters("benchmark", "laptop", {"dataset": "cifar10"})
    assert (color.side, color.channels) == (32, 3)
    faces = sections.parameters(
        "benchmark", "laptop", {"dataset": "lfw_subset", "side": 20, "target_sizes": [40]}
    )
    assert (faces.side, faces.channels) == (20, 1)


def test_relative_paths_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parameters = sections.parse("metrics", "laptop", ["dataset=npz:own.npz", "root=files"])
    assert parameters.dataset == f"npz:{tmp_path / 'own.npz'}"
    assert parameters.root == str(tmp_path / "files")
    with pytest.raises(UserError, match="no file"):
        parameters.check_files()


def test_cells_are_sizes_times_seeds_times_attacks_and_controls():
    parameters = sections.parameters("benchmark", "laptop")
    cells = parameters.cells()
    # Four controls for the training set and four for the update, samples of four priors, one blind attack.
    assert len(cells) == 3 * 2 * (10 + 4 + 4 + 4 + 1) == len({cell.model_dump_json() for cell in cells})
    assert {cell.target.size for cell in cells} == {50, 100, 400}
    assert all(cell.seed == cell.target.seed for cell in cells)
    assert {cell.equal_size for cell in cells} == {50}
    for cell in cells:
        if not cell.is_control and cell.hyperparameters.get("conditional") is not False:
            assert cell.hyperparameters == profiles.load("laptop").attacks[cell.attack]


def test_each_attack_gets_the_target_that_it_is_for():
    parameters = sections.parameters("benchmark", "smoke")
    by_attack = {cell.attack: cell.target for cell in parameters.cells() if not cell.is_control}
    for name, target in by_attack.items():
        dynamic = name in ("deep_leakage", "updates_leak")
        assert (target.update is not None) == dynamic
        assert target.architecture == ("homogeneous_mlp" if name == "bias_rec" else "convnet")
    controls = [cell for cell in parameters.cells() if cell.attack == "noise"]
    assert {cell.target.update is None for cell in controls} == {True, False}


def test_controls_of_priors_and_conditions_stand_for_the_attacks_that_have_them():
    parameters = sections.parameters("benchmark", "smoke")
    sampled = {cell.sampled_attack for cell in parameters.cells() if cell.control == "prior_sample"}
    assert sampled == {"revealer", "kedmi", "plgmi", "updates_leak"}
    blind = [cell for cell in parameters.cells() if cell.hyperparameters.get("conditional") is False]
    assert {cell.attack for cell in blind if not cell.is_control} == {"updates_leak"}


def test_the_best_of_a_prior_is_chosen_for_a_class():
    parameters = sections.parameters("attacks", "smoke")
    chosen = {cell.sampled_attack for cell in parameters.cells() if cell.control == "prior_best"}
    assert chosen == {"revealer", "kedmi", "plgmi"}  # Updates-Leak has a prior, but no labels


def test_an_attack_is_scaled_for_all_seeds_and_its_prior_for_one():
    """Where both are the same hyperparameter, as for Inv-Alignment, it counts as the attack's."""
    grid = sections.parameters("attacks", "laptop").convergence()
    seeds = {(attack, name): len(cells) for (attack, name, multiple), cells in grid.items()}
    assert seeds["inv_alignment", "epochs"] == seeds["revealer", "steps"] == 3
    assert seeds["revealer", "prior_steps"] == seeds["updates_leak", "epochs"] == 1


TOO_SMALL = [
    ("leaked", ["target_size=3"], "target_size=3 is fewer than the 5 classes of digits"),
    ("tsne", ["perplexity=200", "n=10"], "perplexity=200 is too large: with at most"),
    ("memorization", ["flipped=0.001"], "flipped=0.001 of 50 images is no wrong label"),
    ("metrics", ["target_size=1"], "target_size=1 is not allowed"),
]


@pytest.mark.parametrize(("slug", "assignments", "message"), TOO_SMALL, ids=[row[0] for row in TOO_SMALL])
def test_what_cannot_come_out_is_refused_before_any_work(slug, assignments, message):
    with pytest.raises(UserError, match=message):
        sections.parse(slug, "smoke", assignments).cells()


def test_accuracy_has_its_evaluators_whatever_is_attacked():
    for attack in ("bias_rec", "deep_leakage"):  # targets of their own
        parameters = sections.parameters("accuracy", "smoke", {"attacks": [attack], "controls": []})
        judged = parameters.judged_cell()
        assert judged in parameters.cells() and judged.target == parameters.target(50, 0)


def test_leaving_out_the_only_image_of_a_class_needs_three_classes():
    two = {"dataset": "lfw_subset", "target_sizes": [20], "target_size": 20}
    assert "alone" not in sections.parameters("memorization", "smoke", two).ensembles()
    assert "alone" in sections.parameters("memorization", "smoke").ensembles()


@pytest.mark.parametrize("attack", ["kedmi", "inv_alignment", "deep_leakage"])
def test_the_surrogates_attacker_must_be_a_static_white_box_without_data(attack):
    with pytest.raises(UserError, match="white-box attack on static targets without auxiliary data"):
        sections.parameters("attacks", "smoke", {"surrogate_attack": attack})
    with pytest.raises(UserError, match="did you mean 'deep_dream'"):
        sections.parameters("attacks", "smoke", {"surrogate_attack": "deep_drem"})


def test_where_convergence_was_not_looked_at_the_benchmark_says_so_and_runs():
    """The README's faces: fewer of them than the section on the attacks has target images."""
    faces = {"dataset": "lfw_subset", "target_sizes": [20, 80]}
    parameters = sections.parameters("benchmark", "laptop", faces)
    assert parameters.cells() and parameters.convergence() == {}
    assert parameters.reads() == list(parameters.ensembles().values())
    assert set(parameters.ensembles()) == {20, 80}


def test_a_size_too_small_for_an_ensemble_has_none():
    assert set(sections.parameters("benchmark", "smoke", {"target_sizes": [2, 50]}).ensembles()) == {50}


def test_memorization_is_measured_of_the_targets_that_the_benchmark_attacks():
    benchmark, own = (sections.parameters(slug, "laptop") for slug in ("benchmark", "memorization"))
    for size, ensemble in benchmark.ensembles().items():
        assert ensemble == own.ensembles()[f"n{size}"]
        assert ensemble.target == benchmark.target(size, benchmark.seed)


def test_noise_and_the_holdout_stand_beside_reconstructions_from_gradients():
    parameters = sections.parameters("attacks", "laptop")
    gradients, controls = parameters.gradient_cells(), parameters.gradient_controls()
    assert {cell.attack for cell in controls} == {"noise", "holdout"}
    assert {cell.target.update.size for cell in controls} == {parameters.gradient_images}
    assert {cell.seed for cell in controls} == {cell.seed for cell in gradients}


def test_hyperparameters_and_training_change_the_profiles():
    changes = {
        "hyperparameters": {"deep_dream": {"steps": 5, "tv": None}},
        "training": {"epochs": 2, "min_steps": None},
    }
    parameters = sections.parameters("ten_minutes", "smoke", changes)
    resolved = parameters.resolved_hyperparameters("deep_dream")
    assert resolved == {"steps": 5, "l2": 0.3, "jitter": 1}
    assert attacks.create("deep_dream", resolved).tv == 0.11
    assert parameters.train_spec().epochs == 2
    assert profiles.load("smoke").training["min_steps"] != parameters.train_spec().min_steps
    assert {cell.target.training.epochs for cell in parameters.cells()} == {2}


def test_prose_sections_need_no_cells():
    assert sections.parameters("taxonomy", "laptop").cells() == []
    assert sections.parameters("metrics", "laptop").cells() == []


def test_the_command_gives_the_same_parameters_again():
    changes = {
        "target_sizes": [20, 40],
        "dataset": "lfw_subset",
        "n": 10,
        "width": 0.5,
        "attacks": ["deep_dream"],
        "hyperparameters": {"deep_dream": {"steps": 3, "schedule": "cosine", "l2": None}},
        "training": {"optimizer": "sgd"},
        "download": True,
    }
    parameters = sections.parameters("benchmark", "smoke", changes)
    words = shlex.split(parameters.command())
    assert words[:5] == ["drlib", "run", "benchmark", "--profile", "smoke"]
    assert set(words[5::2]) == {"-p"}
    assert sections.parse("benchmark", "smoke", words[6::2]) == parameters
    assert sections.parameters("benchmark", "smoke", parameters.changes()) == parameters


numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none()
words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=6)
words |= st.sampled_from(
    ["none", "true", "010", "1e3", "a: b", "#", "", "module:Class", "x:", "-", "~", "null"]
)
json_values = st.recursive(
    numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=50)
@given(json_values)
def test_written_values_are_read_back(value):
    assert profiles.parse_yaml(sections.written(value), "value") == value


@pytest.mark.parametrize("slug", sections.SECTIONS)
def test_the_parameters_cell_is_the_laptop_profile(slug):
    namespace = {"unrelated": 1}
    exec(sections.parameters_cell(slug), namespace)
    parameters = sections.from_notebook(slug, namespace)
    assert parameters == sections.parameters(slug, "laptop")


def parameters_cell_of(source: str) -> dict[str, object]:
    """What the cell tagged ``parameters`` of a percent-format notebook assigns."""
    cells = [cell for cell in source.split("# %%") if cell.lstrip(" ").startswith('tags=["parameters"]')]
    assert len(cells) == 1, "one cell tagged parameters"
    body = ast.parse(cells[0].partition("\n")[2]).body
    return {node.target.id: ast.literal_eval(node.value) for node in body if isinstance(node, ast.AnnAssign)}


@pytest.mark.parametrize("slug", sections.SECTIONS)
def test_the_notebook_shows_the_laptop_profile(root, slug):
    source = (root / "notebooks" / f"{sections.section(slug).notebook}.py").read_text(encoding="utf-8")
    assert parameters_cell_of(source) == sections.parameters(slug, "laptop").values()


def test_a_notebook_must_set_every_parameter_and_type_it():
    values = sections.parameters("metrics", "laptop").values()
    with pytest.raises(UserError, match="parameters cell of 02_metrics does not set side, seed"):
        sections.from_notebook("metrics", {k: v for k, v in values.items() if k not in ("side", "seed")})
    with pytest.raises(UserError, match="seed=a is not allowed"):
        sections.from_notebook("metrics", values | {"seed": "a"})


@pytest.mark.parametrize("slug", sections.SECTIONS)
def test_help_names_every_parameter(slug):
    text = sections.help_text(slug)
    for name, field in sections.section(slug).model.model_fields.items():
        if name != "profile":
            assert f"{name}: {field.description}" in text


def test_parameters_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        sections.parameters("metrics", "laptop").seed = 3


def test_what_is_written_out_equals_what_the_modules_own():
    from drlib import cells, data, models
    from drlib.metrics import features

    assert declared.ARCHITECTURES == models.ARCHITECTURES
    assert tuple(name for name in sections.CONTROLS if name != "unconditional") == cells.CONTROLS
    assert set(sections.EXTRACTORS) == set(features.EXTRACTORS)
    for (name, mode), size in declared.LARGEST_TARGET.items():
        assert len(data.load_splits(data.DataSpec.of(name, mode=mode)).target) == size
    assert {name for name, _ in declared.LARGEST_TARGET} == set(data.BUNDLED)


@pytest.mark.parametrize("name", attacks.names())
def test_hyperparameters_read_from_source_are_those_of_the_class(name):
    assert list(declared._fields(name)) == [field.name for field in dataclasses.fields(attacks.get(name))]


MY_ATTACK = """
from dataclasses import dataclass
from typing import ClassVar

from drlib.types import Attack
raise RuntimeError("must not be imported to be checked")

@dataclass(frozen=True, kw_only=True)
class MyAttack(Attack):
    name: ClassVar[str] = "my_attack"
    strength: float = 1.0
    kind: "list[int]" = ()
"""


def test_an_attack_outside_the_package_is_checked_without_importing_it(tmp_path, monkeypatch):
    (tmp_path / "my_own_attack.py").write_text(MY_ATTACK)
    monkeypatch.syspath_prepend(tmp_path)
    name = "my_own_attack:MyAttack"
    good = {"attacks": [name], "hyperparameters": {name: {"strength": 2, "kind": [1]}}}
    parameters = sections.parameters("benchmark", "smoke", good)
    assert parameters.resolved_hyperparameters(name) == {"strength": 2, "kind": [1]}
    assert "my_own_attack" not in sys.modules
    assert sections.parse("benchmark", "smoke", shlex.split(parameters.command())[6::2]) == parameters
    for attack, message in (
        ("my_own_attack:MyAtack", "unknown class in my_own_attack 'MyAtack'; did you mean 'MyAttack'"),
        ("my_own_atack:MyAttack", "there is no module 'my_own_atack'"),
    ):
        with pytest.raises(UserError, match=message):
            sections.parameters("benchmark", "smoke", {"attacks": [attack]})
    with pytest.raises(UserError, match="'strenth'; did you mean 'strength'"):
        sections.parameters("benchmark", "smoke", {**good, "hyperparameters": {name: {"strenth": 2}}})
    with pytest.raises(UserError, match="strength='x' is not allowed"):
        sections.parameters("benchmark", "smoke", {**good, "hyperparameters": {name: {"strength": "x"}}})


def test_checking_parameters_imports_nothing_heavy():
    code = """
import json, sys
from drlib import sections
for slug in sections.SECTIONS:
    sections.parse(slug, "laptop", [])
sections.parse("benchmark", "smoke", ["hyperparameters={mi_face: {steps: 3}}", "training={epochs: 2}"])
sections.help_text("benchmark")
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "pandas", "papermill", "sklearn"} & set(json.loads(done.stdout))
