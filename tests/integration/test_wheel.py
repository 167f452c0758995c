"""The wheel in use from another folder, without the checkout and without a network."""

import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
import wheels

from physml import __version__
from physml.base.paths import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment with the wheel in it; other packages come from the one that runs the tests."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheels.build(tmp_path_factory.mktemp("source"))) as archive:
        archive.extractall(packages)
    outer = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (packages / "outer.pth").write_text(
        "\n".join(dict.fromkeys([*outer, sysconfig.get_path("purelib")])), encoding="utf-8"
    )
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "tasks").mkdir()  # a person's own folder, which has nothing to do with ours
    return folder


# Several commands in one process, as importing torch takes longest: what each printed stands before a line.
COMMANDS = """
import sys
from physml.cli.main import main

for command in {commands}:
    code = main(list(command))
    sys.stdout.flush()
    print("----" if code == 0 else f"{{command}} failed", flush=True)
{more}
"""


def printed(python: Path, folder: Path, *commands: tuple[str, ...], more: str = "") -> list[str]:
    """What each command printed, and then the lines of Python in `more`."""
    done = physml(python, folder, "-c", COMMANDS.format(commands=commands, more=more))
    outputs = done.stdout.split("----\n")
    assert len(outputs) == len(commands) + 1, done.stdout + done.stderr
    return outputs


def physml(python: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "WANDB_MODE": "disabled"}
    environment |= {"HOME": str(folder), "PHYSML_CACHE": str(folder / "cache")}
    command = [str(python), "-P", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def site_packages(python: Path) -> Path:
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    return packages


def installed(python: Path) -> set[Path]:
    files = site_packages(python).rglob("*")
    return {path for path in files if path.suffix != ".pyc" and path.name != "__pycache__"}


STUDY = """
task: adding
provenance: {kind: own, source: my paper}
search: {metric: mse, better: lower, trials: 1, seed: 1000, trial: {profile: smoke}}
searches: {rate: {space: {optim.lr: [0.01]}}}
rows: {lem: {model: lem, search: rate}}
"""
TABLE = """
title: My table
source: my paper
seeds: [0]
columns: [{key: mse, metric: test/mse, better: lower, protocol: clean}]
rows: [{label: mine, experiment: "./mystudy.yaml:lem"}]
"""
LOAD = """
from pathlib import Path

import physml

(weights,) = Path("runs").rglob("model.safetensors")
print(type(physml.load(weights)).__name__)
"""
RESULTS = """
from physml import results

runs = results.runs("lem/fitzhugh_nagumo-lem")
(cell,) = [cell for cell in results.cells("lem-4") if (cell.row, cell.column) == ("LEM", "official")]
print(len(runs), runs[0].status, runs[0].commit, cell.ours, cell.words)
"""


def test_it_is_used_from_another_folder(python: Path, elsewhere: Path) -> None:
    before = installed(python)
    (elsewhere / "mystudy.yaml").write_text(STUDY, encoding="utf-8")
    (elsewhere / "mytable.yaml").write_text(TABLE, encoding="utf-8")
    names, config, table, doctor, run, again, search, own, loaded = printed(
        python,
        elsewhere,
        ("list",),
        ("run", "experiment=lem/fitzhugh_nagumo-lem", "--cfg"),
        ("table", "lem-4", "--no-run"),
        ("doctor",),
        ("run", "model=lem", "task=adding", "profile=smoke", "runtime.save_model=true"),
        ("run", "experiment=lem/fitzhugh_nagumo-lem", "seed=0"),
        ("search", "./mystudy.yaml:lem"),
        ("table", "./mytable.yaml", "--no-run", "--write"),
        more=LOAD + RESULTS,
    )
    assert {"lem", "fitzhugh_nagumo", "lem-4"} <= set(re.split(r"[,\s]+", names))
    assert "experiment: lem/fitzhugh_nagumo-lem" in config
    assert "LEM                 0.2      0.290 ± 0.057  ≈ cannot be told apart" in table
    assert f"6 of 6 printed cells trained, n = 10; 1.3 core-hours; recorded by physml {__version__}" in table
    assert "finished already: " in again
    assert "Nothing is missing." in doctor
    assert "written: mystudy.searched.yaml, results/search/adhoc-mystudy-lem.json" in search
    assert "mine" in own and "written: results/tables/mytable.md" in own
    assert "finished: results/runs/adhoc/adding-lem/" in run
    code = [sys.executable, "-c", RESULTS]
    of_checkout = subprocess.run(code, cwd=ROOT, capture_output=True, text=True, check=True)
    assert loaded == f"SequenceModel\n{of_checkout.stdout}" != "SequenceModel\n"
    assert {path.name for path in elsewhere.iterdir()} >= {"results", "runs", "cache", "tasks"}
    assert installed(python) == before


def test_without_its_configs_it_says_so(python: Path, elsewhere: Path) -> None:
    conf = site_packages(python) / "physml" / "_conf"
    for path in list(conf.rglob("*.yaml")):
        path.unlink()
    code = COMMANDS.format(commands=(("list", "models"), ("doctor",)), more="")
    done = physml(python, elsewhere, "-c", code)
    assert "('list', 'models') failed" in done.stdout and "('doctor',) failed" in done.stdout
    assert "there are no configs in" in done.stderr and "run.yaml is not there" in done.stdout
