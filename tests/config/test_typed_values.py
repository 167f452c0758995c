"""Values as people type them: mappings that replace, numbers that YAML reads otherwise."""

from pathlib import Path

import pytest

from physml.base.errors import ConfigError
from physml.config.compose import HEADER, compose
from physml.config.load import read_yaml

PYG = ["model=gcn", "task=pyg", "task.dataset=KarateClub"]


def options(*overrides: str) -> dict:
    return compose([*PYG, *overrides]).config["task"]["options"]


def test_a_mapping_of_no_class_is_replaced_and_its_keys_can_be_deleted() -> None:
    """A default such as `options: {name: Cora}` can be emptied, for classes that take no name."""
    assert options() == {"name": "Cora"}
    assert options("task.options={}") == {}
    assert options("task.options={geom_gcn_preprocess: true}") == {"geom_gcn_preprocess": True}
    assert options("~task.options.name") == {}
    assert options("+task.options.split=full") == {"name": "Cora", "split": "full"}
    assert options("task.options.name=PubMed") == {"name": "PubMed"}


def test_a_file_of_ones_own_replaces_it_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        f"{HEADER}\ndefaults:\n  - override /model: gcn\n  - override /task: pyg\n"
        "task: {dataset: KarateClub, options: {}, split_of: random}\n"
    )
    task = compose([f"experiment={path}"]).config["task"]
    assert task["options"] == {} and task["protocol"] == "clean"


def test_a_part_keeps_the_keys_that_a_file_leaves_out(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"{HEADER}\noptim: {{lr: 0.5}}\n")
    config = compose(["model=lem", "task=adding", f"experiment={path}"]).config
    assert config["optim"]["lr"] == 0.5 and len(config["optim"]) > 1


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("010", r"010 would be 8, octal; write 10 or '010'.*line 1, column 9"),
        ("-017", r"-017 would be -15, octal; write 17"),
        ("00", "00 would be 0, octal; write 0 or"),
        ("1:30", "1:30 would be 90, in base 60"),
    ],
)
def test_numbers_that_yaml_reads_otherwise_than_they_look_are_refused(
    tmp_path: Path, value: str, says: str
) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(f"epochs: {value}\n")
    with pytest.raises(ConfigError, match=says):
        read_yaml(path)


def test_other_numbers_are_read_as_they_look(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("a: 0\nb: 10\nc: 1_000\nd: 0x10\ne: '010'\nf: -3\ng: 0.1\nh: +7\n")
    assert read_yaml(path) == {
        "a": 0, "b": 10, "c": 1000, "d": 16, "e": "010", "f": -3, "g": 0.1, "h": 7,
    }  # fmt: skip
