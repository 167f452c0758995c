"""Values as people type them: mappings that replace, patterns of names, numbers that YAML reads otherwise."""

from pathlib import Path

import pytest
from configs import write
from refusals import refuses

from physml.base.errors import ConfigError
from physml.config.compose import compose, names
from physml.config.load import read_yaml
from physml.config.overrides import expand
from physml.config.schema import checked
from physml.search.spec import written

PYG = ["model=gcn", "task=pyg", "task.dataset=KarateClub"]


def options(*overrides: str) -> dict:
    return compose([*PYG, *overrides]).config["task"]["options"]


def test_a_mapping_of_no_class_is_replaced_or_emptied_by_words_and_by_a_file(tmp_path: Path) -> None:
    # A default such as `options: {name: Cora}` can be emptied, for classes that take no name.
    assert options() == {"name": "Cora"}
    assert options("task.options={}") == {}
    assert options("task.options={geom_gcn_preprocess: true}") == {"geom_gcn_preprocess": True}
    assert options("~task.options.name") == {}
    assert options("+task.options.split=full") == {"name": "Cora", "split": "full"}
    assert options("task.options.name=PubMed") == {"name": "PubMed"}
    own = {"task": {"dataset": "KarateClub", "options": {}, "split_of": "random"}, "optim": {"lr": 0.5}}
    study = {"provenance": {"kind": "own", "source": "me"}, "rows": {"gcn": {"model": "gcn", "set": own}}}
    config = compose([f"experiment={write(tmp_path / 'mine.yaml', study | {'task': 'pyg'})}:gcn"]).config
    assert config["task"]["options"] == {} and config["task"]["protocol"] == "clean"
    assert config["optim"]["lr"] == 0.5 and len(config["optim"]) > 1


def test_a_pattern_stands_for_all_names_that_fit() -> None:
    """facebookresearch/hydra#1942: `glob` in a multirun."""
    expanded = expand(["model=glob(*cornn*)", "seed=0,1"], names)
    assert ["model=cornn", "seed=1"] in expanded and ["model=unicornn", "seed=0"] in expanded
    assert len(expanded) == 2 * sum("cornn" in name for name in names("model"))
    some = expand(["model=glob([lem,l*m],exclude=lstm)"], names)
    assert ["model=lem"] in some and ["model=lstm"] not in some
    refuses(ConfigError, r"none of the \d+ names of model fits", expand, ["model=glob(xyz*)"], names)
    says = "a pattern is for the names of a group, such as model; seed is none"
    refuses(ConfigError, says, expand, ["seed=glob(*)"], names)
    refuses(ConfigError, r"a list of configs needs -m", compose, ["model=glob(*cornn*)", "task=adding"])


@pytest.mark.parametrize("value", ["a,b", "null", "1", "", "it's", "[x]", {"a": "b, c"}, ["true", 2, None]])
def test_values_of_a_search_are_the_same_as_an_override(value) -> None:
    raw = compose(["model=lem", "task=adding", f"+provenance.note={written(value)}"])
    assert raw.config["provenance"]["note"] == value


@pytest.mark.parametrize("value", ["nan", "inf", "1e309"])
def test_a_number_that_is_not_finite_is_called_so(value: str) -> None:
    config = compose(["model=lem", "task=adding", f"optim.lr={value}"]).config
    refuses(ConfigError, r"optim\.lr must be finite and below", checked, config)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("010", r"010 would be 8, octal; write 10 or '010'.*line 1, column 9"),
        ("-017", r"-017 would be -15, octal; write 17"),
        ("00", "00 would be 0, octal; write 0 or"),
        ("1:30", "1:30 would be 90, in base 60"),
    ],
)
def test_numbers_that_yaml_reads_other_than_they_look_are_refused(tmp_path, value: str, says: str) -> None:
    refuses(ConfigError, says, read_yaml, write(tmp_path / "study.yaml", f"epochs: {value}\n"))


@pytest.mark.parametrize("key", ["seed", "model.d_hidden", "trainer.epochs"])
def test_a_whole_number_of_hundreds_of_digits_is_refused_by_its_key(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{key} must be finite and below 1\.84467e\+19; got 999"):
        checked(compose(["model=lem", "task=adding", f"{key}={'9' * 300}"]).config)


def test_other_numbers_are_read_as_they_look(tmp_path: Path) -> None:
    text = "a: 0\nb: 10\nc: 1_000\nd: 0x10\ne: '010'\nf: -3\ng: 0.1\nh: +7\n"
    values = {"a": 0, "b": 10, "c": 1000, "d": 16, "e": "010", "f": -3, "g": 0.1, "h": 7}
    assert read_yaml(write(tmp_path / "study.yaml", text)) == values


@pytest.mark.parametrize("typed", ["seed=range(0,10,0)", "optim.lr=range(0,1,1e-9)", "seed=range(0,1,0.0)"])
def test_a_range_without_an_end_or_of_too_many_values_is_refused(typed: str) -> None:
    refuses(ConfigError, "at most 100000 values, and a step that is not 0", expand, [typed], names)
    many = ["seed=range(0,500)", "split=range(0,500)"]
    refuses(ConfigError, "make 250000 combinations", expand, many, names)
    assert len(expand(["seed=range(0,10,3)", "optim.lr=range(0,1,0.25)"], names)) == 16
