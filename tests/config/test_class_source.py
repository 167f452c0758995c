"""What is read of a class without importing it: version, arguments with defaults, docstring."""

from pathlib import Path

import pytest
from refusals import refuses

from physml.base.errors import ConfigError
from physml.base.paths import ROOT
from physml.config.class_source import file_sha256, module_file, read_class, read_class_in

TEXT = '''
raise RuntimeError("this file must not be run")


class First:
    """What it is.

    And more.
    """

    version: ClassVar[int] = 4

    def __init__(self, a, b=1, *, c: int = 2, d=None, e: float | None = None, f):
        pass


class Second(First):
    pass


class Third(Second, metaclass=abc.ABCMeta):
    version = 7

    def __init__(self, g="x"):
        pass


class Fourth(elsewhere.Base):
    version = compute()


@dataclass(frozen=True)
class Fifth:
    a: int
    b: int = 3
    c: float | None = None


class Sixth(Fifth):
    d: str = "d"
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "classes.py"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize(
    ("name", "version", "defaults"),
    [
        ("First", 4, {"b": "1", "c": "2"}),
        ("Second", 4, {"b": "1", "c": "2"}),
        ("Third", 7, {"g": "'x'"}),
        ("Fourth", 1, {}),
        ("Fifth", 1, {"b": "3"}),
        ("Sixth", 1, {"b": "3", "d": "'d'"}),
    ],
)
def test_version_and_defaults_are_read_from_the_class_or_its_bases_in_the_file(file, name, version, defaults):
    facts = read_class_in(file, name)
    assert (facts.version, {k: v for k, v in facts.defaults.items() if k != "version"}) == (version, defaults)


def test_the_docstring_is_read_near_names_are_told_and_an_edited_file_is_read_again(file: Path) -> None:
    assert read_class_in(file, "First").doc == "What it is.\n\nAnd more."
    assert read_class_in(file, "Fourth").doc == ""
    refuses(ConfigError, r"classes.py has no class Frist. Did you mean First", read_class_in, file, "Frist")
    assert read_class_in(file, "First").version == 4
    file.write_text(TEXT.replace("= 4", "= 5"))
    assert read_class_in(file, "First").version == 5


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"x = 1\nclass\n", "line 2: invalid syntax"),
        (b"\xff\xfe", "line 1: |cannot be read"),
        (b"x\0", "cannot be read|line "),
    ],
)
def test_a_file_that_is_no_python_is_told(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "broken.py"
    path.write_bytes(content)
    refuses(ConfigError, rf"broken\.py:? .*({says})|broken\.py: ({says})", read_class_in, path, "First")


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("physml.models.lme", "Did you mean physml.models.sequence.lem"),
        ("tasks.fitzhugh", "tasks.fitzhugh_nagumo"),
        ("tasks.a.b", "no module tasks.a.b"),
    ],
)
def test_an_unknown_module_is_told(module: str, says: str) -> None:
    refuses(ConfigError, says, module_file, module)


def test_own_modules_are_found_without_importing_them_and_a_checksum_is_that_of_the_bytes(tmp_path) -> None:
    assert module_file("physml.models.sequence.lem") == ROOT / "physml" / "models" / "sequence" / "lem.py"
    assert module_file("physml.ops") == ROOT / "physml" / "ops" / "__init__.py"
    assert read_class("physml.models.lem.LEM").file == module_file("physml.models.sequence.lem")  # as it was
    assert read_class("tasks.adding.Adding").file == ROOT / "tasks" / "adding.py"
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    assert file_sha256(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
