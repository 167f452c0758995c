"""The Makefile: what each target and variable expands to, and a set-up that survives interruptions.

Set-up is played with a Python that only writes down what it is asked, so nothing is installed.
"""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from physml.base.paths import ROOT
from physml.cli import main

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

PHYSML = ".venv/bin/python -m physml "
OPTIONS = ("SEEDS", "RUN", "FORCE", "SMOKE", "PLAN", "JOBS", "MAX_HOURS", "DEVICE", "VERIFY")
FOREIGN = (*OPTIONS, "PAPER", "ARGS", "PYTHON", "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL")
# Without what a make around the tests, or the shell, has set.
ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in FOREIGN}


def make(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    options = {"cwd": folder, "env": ENVIRONMENT, "stdin": subprocess.DEVNULL}
    return subprocess.run(["make", *arguments], capture_output=True, text=True, **options)


def expanded(*arguments: str) -> list[str]:
    done = make("-n", "-o", ".venv/.ready", *arguments)
    assert done.returncode == 0, done.stderr
    return [line.rstrip() for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["table-4"], "table 4 --paper lem"),
        (["table-2", "PAPER=cornn"], "table 2 --paper cornn"),
        (["table-cornn-6"], "table cornn-6 --paper lem"),
        (["table-5.4"], "table 5.4 --paper lem"),
        (["figure-lem-fig-4"], "figure lem-fig-4 --paper lem"),
        (["figure-3", "PAPER=cornn", "SMOKE=1"], "figure 3 --paper cornn --smoke"),
        (["tables"], "table --all"),
        (["doctor"], "doctor"),
        (["table-4", "SEEDS=0,1,2"], "table 4 --paper lem --seeds 0,1,2"),
        (["table-4", "RUN=0"], "table 4 --paper lem --no-run"),
        (["table-4", "RUN=1"], "table 4 --paper lem"),
        (["table-4", "FORCE=1"], "table 4 --paper lem --force"),
        (["table-4", "FORCE=0"], "table 4 --paper lem"),
        (["table-4", "SMOKE=1"], "table 4 --paper lem --smoke"),
        (["table-4", "PLAN=1"], "table 4 --paper lem --plan"),
        (["table-4", "JOBS=2"], "table 4 --paper lem --jobs 2"),
        (["table-4", "MAX_HOURS=1.5"], "table 4 --paper lem --max-hours 1.5"),
        (["table-4", "DEVICE=cuda"], "table 4 --paper lem --device cuda"),
        (["table-4", "VERIFY=content"], "table 4 --paper lem --verify content"),
        (
            ["table-4", "SEEDS=0", "PLAN=1", "JOBS=2", "ARGS=--row label=Mine,experiment=mine.yaml"],
            "table 4 --paper lem --seeds 0 --plan --jobs 2 --row label=Mine,experiment=mine.yaml",
        ),
    ],
)
def test_a_target_and_its_variables_become_one_command(arguments: list[str], command: str) -> None:
    assert expanded(*arguments) == [PHYSML + command]
    assert main.parser().parse_args(shlex.split(command)).command  # the program takes it


def test_two_tables_are_made_one_after_the_other_and_no_file_of_that_name_hides_one(tmp_path: Path) -> None:
    assert expanded("-j4", "table-4", "table-9", "RUN=0") == [
        PHYSML + "table 4 --paper lem --no-run",
        PHYSML + "table 9 --paper lem --no-run",
    ]
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "table-4").touch()
    done = make("-n", "-o", ".venv/.ready", "table-4", folder=tmp_path)
    assert PHYSML + "table 4" in done.stdout


def test_tests_demo_lint_and_smoke() -> None:
    python = ".venv/bin/python"
    for target, command in {
        "test CORES=3 ARGS=-k": "-m pytest -n 4 --dist worksteal -k",
        "bench-graph ARGS=--quick": "-m scripts.bench.graph --quick",
        "bench-bf16 ARGS=--quick": "-m scripts.bench.bf16 --quick",
        "bench DEVICE=cuda ARGS=--quick": "-m scripts.bench --device cuda --quick",
        "demo": "scripts/demo.py",
        "demo SMOKE=1": "scripts/demo.py --smoke",
    }.items():
        assert expanded(*target.split()) == [f"{python} {command}"]
    *lint, quick = expanded("check", "CORES=1")
    assert len(lint) == 4 and quick == f"{python} -m pytest --quick -n 2 --dist worksteal"
    assert f"-n {(os.cpu_count() or 1) + 1} " in expanded("test")[0]
    *three, layers = expanded("lint")
    assert [line.split()[2] for line in three] == ["ruff", "ruff", "mypy"] and "lint-imports" in layers
    assert expanded("smoke") == [
        f"{python} scripts/smoke.py",
        f"{python} scripts/readme_commands.py --run README.md docs/reference.md "
        "docs/add-a-model.md docs/add-a-task.md docs/own-folder.md docs/export.md",
    ]


def test_plain_make_lists_every_target_in_one_line() -> None:
    done = make()
    assert done.returncode == 0
    listed = set(re.findall(r"^  make (\S+) +\S.*$", done.stdout, re.MULTILINE))
    source = (ROOT / "Makefile").read_text(encoding="utf-8")
    described = re.findall(r"^([a-z%-]+):.* ## ", source, re.MULTILINE)
    assert listed == {name.replace("%", "<id>") for name in described}
    assert {"setup", "demo", "test", "lint", "smoke", "tables", "doctor"} <= listed
    assert {"table-<id>", "figure-<id>"} <= listed
    assert all(f"{name}=" in done.stdout for name in OPTIONS)


# ---------------------------------------------------------------------------- set-up

FAKE = """#!/bin/sh
# Stands in for Python: writes its arguments down and makes a .venv of the same kind.
echo "$*" >> {log}
case "$*" in
    "-c import sys;"*) exit {unfit} ;;
    "-c import ensurepip"*) exit {bare} ;;
    "-m venv "*) rm -rf .venv; mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
    "-m pip install --quiet --no-compile -c"*) if [ -e {slow} ]; then sleep 2; fi
        if [ -e {fail} ]; then exit "$(cat {fail})"; fi ;;
esac
"""


class House:
    """A folder with the Makefile, what it depends on, and a Python that only notes what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "a house"  # a space, as people have them
        self.folder.mkdir()
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, self.folder)
        self.log, self.fail, self.slow = folder / "log", folder / "fail", folder / "slow"
        self.ready = self.folder / ".venv" / ".ready"
        self.python = self.fake("python")

    def fake(self, name: str, *, unfit: int = 0, bare: int = 0) -> Path:
        path = self.log.parent / name
        path.write_text(FAKE.format(log=self.log, unfit=unfit, bare=bare, fail=self.fail, slow=self.slow))
        path.chmod(0o755)
        return path

    def setup(self, python: Path | None = None) -> subprocess.CompletedProcess[str]:
        self.log.write_text("", encoding="utf-8")
        return make("-s", "setup", f"PYTHON={python or self.python}", folder=self.folder)

    def twice(self) -> list[tuple[int, str]]:
        """Exit code and output of two set-ups at once."""
        self.slow.touch()
        self.log.write_text("", encoding="utf-8")
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        command = ["make", "-s", "setup", f"PYTHON={self.python}"]
        both = [subprocess.Popen(command, cwd=self.folder, env=ENVIRONMENT, **streams) for _ in range(2)]
        said = [process.communicate(timeout=60)[0] for process in both]
        return [(process.returncode, text) for process, text in zip(both, said, strict=True)]

    @property
    def asked(self) -> str:
        return self.log.read_text(encoding="utf-8")


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_set_up_installs_the_tested_set_once(house: House) -> None:
    done = house.setup()
    assert done.returncode == 0, done.stderr
    assert "-m venv --clear .venv" in house.asked
    assert "-m pip install --quiet --upgrade pip" in house.asked
    assert "-m pip install --quiet --no-compile -c constraints.txt -e .[all,dev]" in house.asked
    assert house.asked.splitlines()[-1].startswith("-m compileall -q -j 0 -x /(tests?|")
    assert house.setup().returncode == 0
    assert house.asked == ""


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_requirement_is_installed_into_the_same_venv(house: House, name: str) -> None:
    house.setup()
    os.utime(house.ready, (0, 0))
    os.utime(house.folder / name, None)
    assert house.setup().returncode == 0
    assert "-m venv" not in house.asked
    assert "-c constraints.txt" in house.asked


needs_flock = pytest.mark.skipif(shutil.which("flock") is None, reason="flock is not installed")


@needs_flock
def test_of_two_makes_at_once_the_second_waits_and_installs_nothing(house: House) -> None:
    both = house.twice()
    assert [code for code, _ in both] == [0, 0]
    assert sorted("Another make sets up .venv; waiting" in text for _, text in both) == [False, True]
    assert house.asked.count("-m venv --clear") == 1
    assert house.asked.count("pip install --quiet --no-compile -c") == 1


@needs_flock
def test_who_waited_for_a_failed_set_up_tries_itself(house: House) -> None:
    house.fail.write_text("1", encoding="utf-8")
    assert all(code != 0 and "pip could not install" in text for code, text in house.twice())


@pytest.mark.parametrize(("code", "anew"), [("137", True), ("1", False)])
def test_a_killed_installation_starts_over_and_a_failed_one_keeps_what_is_there(
    house: House, code: str, anew: bool
) -> None:
    """137 is what a shell says of kill -9, 1 is pip's own error, say no network."""
    house.fail.write_text(code, encoding="utf-8")
    done = house.setup()
    assert done.returncode != 0 and not house.ready.exists()
    assert anew or "pip could not install" in done.stderr
    house.fail.unlink()
    assert house.setup().returncode == 0
    assert ("-m venv --clear" in house.asked) == ("-m venv" in house.asked) == anew


def test_a_venv_whose_python_is_gone_and_a_moved_checkout_are_set_up_again(house: House) -> None:
    house.setup()
    (house.folder / ".venv" / "bin" / "python").unlink()
    house.ready.unlink()
    assert house.setup().returncode == 0
    assert "-m venv --clear" in house.asked
    house.folder = house.folder.rename(house.folder.with_name("another house"))
    assert house.setup().returncode == 0
    assert "-e .[all,dev]" in house.asked


@pytest.mark.parametrize(
    ("name", "lack", "says"),
    [
        ("python3.9", "unfit", r"physml needs Python 3\.11 to 3\.14[\s\S]*python3\.9"),
        ("python3.12", "bare", "python3-venv"),
    ],
)
def test_a_python_that_does_not_fit_or_has_no_venv_is_refused(
    house: House, name: str, lack: str, says: str
) -> None:
    done = house.setup(house.fake(name, **{lack: 1}))
    assert done.returncode != 0 and re.search(says, done.stderr)
