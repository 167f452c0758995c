"""`.ci/run`, with a make that plays its stages: it must fail whenever a stage does, or when no test ran."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from physml.base.paths import ROOT

pytestmark = pytest.mark.skipif(
    not (shutil.which("bash") and shutil.which("git")), reason="needs bash and git"
)

MAKE = """#!/bin/sh
echo "make $*"
for target; do :; done
case "$target" in
    test) {test} ;;
    {broken}) exit 2 ;;
esac
"""
PASSED = 'echo "======= 7 passed, 1 skipped in 3.21s ======="'


def ci(folder: Path, *, test: str = PASSED, broken: str = "nothing") -> subprocess.CompletedProcess[str]:
    checkout, tools = folder / "checkout", folder / "tools"
    (checkout / ".ci").mkdir(parents=True)
    tools.mkdir()
    shutil.copy(ROOT / ".ci" / "run", checkout / ".ci" / "run")
    (tools / "make").write_text(MAKE.format(test=test, broken=broken), encoding="utf-8")
    (tools / "make").chmod(0o755)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(checkout)]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "start"]):
        subprocess.run([*git, *command], check=True)
    environment = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "SMOKE": "1"}
    return subprocess.run([str(checkout / ".ci" / "run")], env=environment, capture_output=True, text=True)


def test_all_stages_run_and_their_times_are_printed(tmp_path: Path) -> None:
    done = ci(tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("make ")] == [
        "make -s setup",
        "make -s lint",
        "make -s test",
        "make -s smoke-readme",
        "make -s smoke-models",  # beside the other, and told after it
    ]
    assert "7 passed, 1 skipped in 3.21s" in done.stdout
    stages = ("setup", "lint", "tests", "smoke", "clean", "total")
    ending = [line.split() for line in done.stdout.splitlines()[-len(stages) :]]
    assert [(words[0], words[-1]) for words in ending] == [(stage, "s") for stage in stages]


@pytest.mark.parametrize("target", ["smoke-models", "smoke-readme"])
def test_of_two_stages_at_once_the_one_that_failed_is_named(tmp_path: Path, target: str) -> None:
    done = ci(tmp_path, broken=target)
    assert done.returncode == 1
    assert f"FAILED: make -s {target}, exit code 2" in done.stderr
    assert "FAILED: smoke (models_and_readme), exit code 2" in done.stderr
    assert "=== clean" not in done.stdout and "all passed" not in done.stdout


@pytest.mark.parametrize("target", ["setup", "lint"])
def test_a_failed_stage_ends_it(tmp_path: Path, target: str) -> None:
    done = ci(tmp_path, broken=target)
    assert done.returncode == 1
    assert f"FAILED: {target} (" in done.stderr and "exit code 2" in done.stderr
    assert done.stdout.rstrip().endswith(f"make -s {target}")


@pytest.mark.parametrize(
    "test",
    [
        'echo "== 7 passed, 1 failed in 3 s =="; exit 1',
        'echo "== no tests ran in 0.01s =="',
        'echo "== 3 skipped in 0.01s =="',
        'echo "== 0 passed in 0.01s =="',
        "true",
    ],
)
def test_failed_or_missing_tests_end_it(tmp_path: Path, test: str) -> None:
    done = ci(tmp_path, test=test)
    assert done.returncode == 1
    assert "FAILED: tests" in done.stderr
    assert "smoke" not in done.stdout


def test_a_file_that_is_left_behind_ends_it(tmp_path: Path) -> None:
    done = ci(tmp_path, test=f"{PASSED}; touch stray.txt")
    assert done.returncode == 1
    assert "stray.txt" in done.stderr
