"""Profiles are validated data; YAML means what it says."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drlib import attacks, profiles, sections
from drlib.errors import UserError

MEANS = {
    "false": False,
    "True": True,
    "null": None,
    "none": None,
    "None": None,
    "~": None,
    "0": 0,
    "-7": -7,
    "1.5": 1.5,
    "1e-3": 1e-3,
    "2.5E+2": 250.0,
    ".5": 0.5,
    ".inf": math.inf,
    "[1, 2]": [1, 2],
    "[]": [],
    "{a: {b: 1}}": {"a": {"b": 1}},
    "'1'": "1",
    # YAML 1.1 would turn each of these into something else
    "010": "010",
    "0o10": "0o10",
    "0x1F": "0x1F",
    "1_000": "1_000",
    "yes": "yes",
    "off": "off",
    "12:30": "12:30",
    "2020-01-01": "2020-01-01",
    "nan": "nan",
    "[my_module:MyAttack]": ["my_module:MyAttack"],
}


@pytest.mark.parametrize(("text", "value"), MEANS.items())
def test_yaml_means_what_it_says(text, value):
    parsed = profiles.parse_yaml(text, "value")
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2", "'a' is given twice .line 2, column 1"),
        ("{1: 2}", "the key 1 is not text"),
        ("[1, 2", "not valid YAML"),
        ("!!python/object/apply:os.system ['true']", "not valid YAML"),
        ("a\0b", "not valid YAML"),
    ],
)
def test_yaml_that_is_refused(text, message):
    with pytest.raises(UserError, match=message) as error:
        profiles.parse_yaml(text, "file.yaml")
    assert "\n" not in str(error.value)


# The examples of RFC 7396, appendix A, as far as the base is a mapping.
@pytest.mark.parametrize(
    ("base", "overlay", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_is_a_json_merge_patch(base, overlay, result):
    before = repr(base), repr(overlay)
    assert profiles.merge(base, overlay) == result
    assert (repr(base), repr(overlay)) == before


values = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
mappings = st.dictionaries(st.text(max_size=2), values, max_size=4)


@settings(max_examples=50)
@given(mappings, mappings)
def test_merge_keeps_what_the_overlay_says_and_what_it_leaves_alone(base, overlay):
    merged = profiles.merge(base, overlay)
    assert merged.keys() == base.keys() | overlay.keys()
    assert all(merged[key] == base[key] for key in base.keys() - overlay.keys())
    assert profiles.merge(merged, overlay) == merged


def test_profiles_inherit():
    smoke, laptop, paper = (profiles.load(name) for name in profiles.NAMES)
    assert laptop.data == smoke.data  # inherited
    assert laptop.attacks["mi_face"] == {**smoke.attacks["mi_face"], "steps": 300}  # one value changed
    assert smoke.attacks["mi_face"]["steps"] < 300
    assert "width" in smoke.model and "width" not in laptop.model  # forgotten: the published width
    assert paper.sections["benchmark"]["attacks"] == smoke.sections["benchmark"]["attacks"]


def test_the_paper_profile_uses_the_original_hyperparameters():
    assert profiles.load("laptop").attacks
    paper = profiles.load("paper")
    assert set(paper.attacks) == {"deep_leakage", "bias_rec"} and paper.training == {}
    for name in attacks.names():
        parameters = sections.parameters("benchmark", "paper")
        made = attacks.create(name, parameters.resolved_hyperparameters(name))
        assert name in paper.attacks or made == attacks.get(name)()
    # The original Deep-Leakage needs a smooth network; on the paper's it is that of Geiping et al. 2020.
    assert paper.attacks["deep_leakage"]["matching"] == "cosine_adam"
    # Bias-Rec's target is trained with weight decay, for which the papers' margin is the wrong one.
    assert paper.attacks["bias_rec"]["margin"] == "soft"
    assert paper.targets["bias_rec"]["training"]["weight_decay"] > 0


@pytest.mark.parametrize("name", profiles.NAMES)
def test_every_profile_makes_its_attacks(name):
    settings = profiles.load(name).attacks
    assert settings.keys() <= set(attacks.names())
    for attack, hyperparameters in settings.items():
        made = attacks.create(attack, hyperparameters).hyperparameters()
        as_read = json.loads(json.dumps(made))  # YAML has lists where Python has tuples
        assert {key: as_read[key] for key in hyperparameters} == hyperparameters


def test_an_overlay_says_only_what_it_changes():
    assert "data" not in profiles.overlay("laptop")
    assert profiles.overlay("paper")["attacks"]["mi_face"] is None
    profiles.overlay("paper")["attacks"] = 1  # a copy: the profile itself stays
    assert profiles.overlay("paper")["attacks"] != 1


def test_misspelt_names_are_refused():
    with pytest.raises(UserError, match="unknown profile 'labtop'; did you mean 'laptop'"):
        profiles.load("labtop")
    with pytest.raises(UserError, match="did you mean 'smoke'"):
        profiles.overlay("smok")
    overlays = {name: profiles.overlay(name) for name in profiles.NAMES}
    with pytest.raises(UserError, match=r"unknown key in profile laptop 'atacks'; did you mean 'attacks'"):
        profiles.resolve("laptop", overlays | {"laptop": {"atacks": {}}})
    with pytest.raises(UserError, match=r"profile smoke: attacks\.mi_face"):
        profiles.resolve("smoke", overlays | {"smoke": {**overlays["smoke"], "attacks": {"mi_face": 3}}})
