"""What is handed on: the source distribution, address, forms for issues, constraints of `make bounds`."""

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from physml.base.paths import ROOT
from scripts.build_wheel import addresses

WHOLE = ("docs", "tests", "conf", "tasks", "scripts", "physml")
SINGLE = (
    *("NOTICE", "CITATION.cff", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "README.md"),
    *("Makefile", "constraints.txt", "pyproject.toml"),
)


def tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a clone")
    return [name for name in done.stdout.splitlines() if (ROOT / name).exists()]


@pytest.mark.slow
def test_the_source_distribution_is_complete(tmp_path: Path) -> None:
    names = [name for name in tracked() if not re.match(r"results/(figures|bench|search|tables)/", name)]
    for name in [*names, "MANIFEST.in", "SECURITY.md"]:
        if not name.endswith(".csv.xz"):  # curves
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tmp_path / name)
    code = "from setuptools import build_meta; print(build_meta.build_sdist('dist'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (package,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(package) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    required = {name for name in names if name.partition("/")[0] in WHOLE} | set(SINGLE)
    assert sorted(required - inside) == []
    assert any(name.startswith("results/runs/") for name in inside)  # what a wheel ships
    assert package.stat().st_size < 40 * 2**20


def test_no_result_names_a_host_or_a_home() -> None:
    """Records, searches and tables are handed on: nobody's machine or account is in them."""
    names = [name for name in tracked() if re.search(r"^results/.*\.(json|jsonl|csv|md)$", name)]
    private = re.compile(rb'"host(name)?"|/(home|root|Users)/')
    assert len(names) > 1000
    assert [name for name in names if private.search((ROOT / name).read_bytes())] == []


def test_the_addresses_come_from_one_variable_and_the_forms_for_issues_are_whole(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text('[tool.physml]\naddress = "https://example.org/physml/"\n', encoding="utf-8")
    assert addresses(file) == {
        "Homepage": "https://example.org/physml",
        "Source": "https://example.org/physml",
        "Issues": "https://example.org/physml/issues",
    }
    assert addresses(ROOT / "pyproject.toml").keys() <= {"Homepage", "Source", "Issues"}
    forms = [path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]
    assert len(forms) >= 2
    for path in forms:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert content["name"] and content["description"]
        assert all(part["attributes"]["label"] for part in content["body"] if part["type"] != "markdown")


SCRIPT = ROOT / "scripts" / "lowest_versions.py"


def constraints(*arguments: str) -> dict[str, str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(line.split("==") for line in done.stdout.splitlines())


def test_every_package_that_has_a_bound_is_pinned_to_it_and_packages_can_be_left_out() -> None:
    pins = constraints()
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert {"torch", "numpy", "scipy", "hydra-core", "wandb", "scikit-learn", "torch_geometric"} <= set(pins)
    assert not {"pytest", "ray", "jax", "physml"} & set(pins)
    assert [name for name, version in pins.items() if f'"{name}>={version}' not in text] == []
    assert constraints().keys() - constraints("--without", "torch", "scipy").keys() == {"torch", "scipy"}
