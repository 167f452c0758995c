"""The constraints of `make bounds`: every lower bound of the base and of the extras in `all`."""

import subprocess
import sys

from physml.base.paths import ROOT

SCRIPT = ROOT / "scripts" / "lowest_versions.py"


def constraints(*arguments: str) -> dict[str, str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(line.split("==") for line in done.stdout.splitlines())


def test_every_package_that_has_a_bound_is_pinned_to_it() -> None:
    pins = constraints()
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert {"torch", "numpy", "scipy", "hydra-core", "wandb", "scikit-learn", "torch_geometric"} <= set(pins)
    assert not {"pytest", "ray", "jax", "physml"} & set(pins)
    assert [name for name, version in pins.items() if f'"{name}>={version}' not in text] == []


def test_packages_can_be_left_out() -> None:
    assert constraints().keys() - constraints("--without", "torch", "scipy").keys() == {"torch", "scipy"}
