"""The base alone: what optional packages are needed for is said in one line; all else goes without them."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from physml.base.errors import EXTRAS, MissingExtra, needed_by
from physml.base.paths import ROOT, own_folders

# A Python that finds nothing but what the base installs.
BLOCKED = """
from importlib.machinery import PathFinder

find = PathFinder.find_spec


def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in {names} else find(name, path, target)


PathFinder.find_spec = staticmethod(find_spec)
"""


def base(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A Python without extras, its workers included."""
    others = {"pandas", "sklearn", "pyarrow", "numba", "huggingface_hub"}
    (tmp_path / "sitecustomize.py").write_text(BLOCKED.format(names=set(EXTRAS) | others), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), **own_folders(tmp_path), "PHYSML_FORK": "1"}
    environment.pop("PHYSML_DATA", None)
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def test_every_extra_is_one_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    distributions = {"sklearn": "scikit_learn", "huggingface_hub": "datasets"}  # which brings it
    for module, extra in EXTRAS.items():
        name = distributions.get(module, module)
        assert any(requirement.replace("-", "_").startswith(name) for requirement in extras[extra]), module
    (everything,) = extras["all"]
    alone = {"dev", "all", "mlflow", "postgresql", "ray", "onnx", "bench"}
    assert set(everything.partition("[")[2].rstrip("]").split(",")) == set(extras) - alone
    names = {requirement.partition(">")[0] for requirement in project["dependencies"]}
    assert not names & set(EXTRAS)
    assert all(">" in requirement for requirement in project["dependencies"])


def test_a_missing_extra_says_what_needs_it_and_other_modules_are_not_taken_for_one(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    message = r"a search needs optuna\. Install it with: pip install 'optuna>=4\.0'"
    with pytest.raises(MissingExtra, match=message), needed_by("a search"):
        import optuna  # noqa: F401
    with pytest.raises(ModuleNotFoundError), needed_by("a search"):
        import no_such_module  # noqa: F401


def test_the_base_runs_the_task_of_lem_4_and_prints_its_table(tmp_path: Path) -> None:
    run = ("run", "-m", "model=lem,cornn", "task=fitzhugh_nagumo", "profile=smoke")
    done = base(tmp_path, "-m", "physml", *run)
    assert done.returncode == 0, done.stderr
    assert "wandb" not in done.stdout + done.stderr
    done = base(tmp_path, "-m", "physml", "table", "lem-4", "--no-run")
    assert done.returncode == 0, done.stderr
    assert "FitzHugh-Nagumo" in done.stdout


REFUSED = {
    "needs soundfile. Install it with:": ["run", "model=lem", "task=google12", "profile=smoke"],
    "needs torch_geometric. Install it with: pip install 'torch_geometric>=2.6' 'networkx>=3.2'": [
        *("run", "model=graphcon_gcn", "task=cora", "profile=smoke"),
        "model.coupling={_target_: torch_geometric.nn.GCNConv, in_channels: 64, out_channels: 64}",
    ],
    "a search needs optuna. Install it with:": ["search", "fitzhugh_nagumo-cornn"],
}
ONE_BY_ONE = """
import sys
from physml.cli.main import main

for arguments in {commands}:
    code = main(arguments)
    print(code, flush=True)
    print("----", file=sys.stderr, flush=True)
"""


def test_what_needs_an_extra_is_refused_in_one_line(tmp_path: Path) -> None:
    """All in one process, as importing torch takes longest."""
    done = base(tmp_path, "-c", ONE_BY_ONE.format(commands=list(REFUSED.values())))
    assert done.stdout.split() == ["2"] * len(REFUSED), done.stderr
    *refusals, _ = done.stderr.split("----\n")
    for message, said in zip(REFUSED, refusals, strict=True):
        assert message in said
        assert len(said.strip().splitlines()) == 1
