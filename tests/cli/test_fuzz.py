"""The command line under made-up arguments: each ends with a code and a line for a person, none with a bug.

The configs are composed and shown, nothing is trained. Seeded and bounded: the same examples each time.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from physml.cli import main
from physml.config.compose import GROUPS

BASE = ["run", "model=lem", "task=adding", "profile=smoke", "--cfg"]
KEYS = [
    *GROUPS,
    "seed",
    "split",
    "plugins",
    "model.dt",
    "trainer.stop",
    "task.datasets",
    "data.verify",
    "a.b",
]
VALUES = [
    *(
        "",
        "-1",
        "1e400",
        "nan",
        "null",
        "true",
        "lem",
        "none",
        "[x]",
        "[1,2]",
        "{a: 1}",
        "{_target_: os.system}",
    ),
    *("'", '"', "${seed}", "${a.b}", "${oc.env:HOME}", "../run", "~nosuchuser/x.yaml", "[~nosuchuser/a.py]"),
    *("0,1", "range(3)", "interval(0,1)", "\udcff", "\ud800", "\0", "é", "x" * 300, "a@b", "=", "..", "."),
]
TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=6)
QUICK = settings(
    max_examples=30,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(autouse=True)
def own_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("PHYSML_RESULTS", "PHYSML_RUNS", "PHYSML_CACHE", "PHYSML_DATA"):
        monkeypatch.setenv(key, str(tmp_path / key))
    monkeypatch.chdir(tmp_path)


def ends_well(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main.main(arguments)
    except SystemExit as end:  # argparse
        code = int(end.code or 0)
    err = capsys.readouterr().err
    assert code in (0, 2)
    assert (code == 0) == (not err), err
    if code == 2:
        assert "error: " in err.splitlines()[-1], err


overrides = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "", "+", "++", "~"]),
    st.sampled_from(KEYS),
    st.sampled_from(["=", "=", "=", "", "@x="]),
    st.sampled_from(VALUES) | TEXT,
)


@QUICK
@given(found=st.lists(overrides, min_size=1, max_size=2), many=st.booleans())
def test_any_override_is_taken_or_refused(
    found: list[str], many: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    ends_well([*BASE, *(["-m"] if many else []), *found], capsys)


COMMANDS = [
    ["table", "--no-run"],
    ["figure", "--no-run"],
    ["list"],
    ["data", "list"],
    ["diff"],
    ["compare"],
    ["compare", "g2/texas-mlp"],
    ["run", "--cfg"],
]
WORDS = [
    *("lem-8", "lem-44", "models", "mnist", ".", "~nosuchuser/x.json", "\udcff", "-m", "--probe"),
    *(
        "--seeds=0",
        "--seeds=n0",
        "--row=label=A,experiment=x",
        "--yours=.",
        "--paper=x",
        "--jobs=-1",
        "--jobs=1",
    ),
    *("--max-hours=inf", "--max-hours=nan", "--verify=off", "--verify=", "--device=x", "--smoke"),
]


@QUICK
@given(command=st.sampled_from(COMMANDS), found=st.lists(st.sampled_from(WORDS) | TEXT, max_size=3))
def test_any_words_are_taken_or_refused(
    command: list[str], found: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands that look and train nothing."""
    ends_well([*command, *found], capsys)
