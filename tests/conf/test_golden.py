"""Numbers that must not change in silence: identities of all experiments, first losses of all models.

`python tests/conf/test_golden.py` rewrites tests/golden/identities.json and first_losses.json; with names
such as experiment=lem/adding-500-lem it computes only the losses of these and of what is new. Look at the
diff before you commit it: a new identity makes old records stale, a new loss asks for a raised `version`.
"""

import functools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn

from physml.base import files
from physml.base.paths import CONF
from physml.config import build, studies
from physml.config.build import passes_messages
from physml.config.compose import compose, names
from physml.config.identity import identity
from physml.config.load import read_yaml
from physml.config.resolve import resolve
from physml.config.schema import checked
from physml.data.store import store_of
from physml.ops import backend
from physml.run.attempt import flush_denormals
from physml.task.base import Task
from physml.training.interrupt import Interrupt
from physml.training.trainer import Trainer

NEAR = 1e-5  # a relative difference that is none
GOLDEN = Path(__file__).parents[1] / "golden"
REWRITE = "If the change is meant: python tests/conf/test_golden.py"
TINY = (
    *("profile=smoke", "trainer.epochs=3", "trainer.max_steps=9", "trainer.eval_every=1"),
    # the same on machines with and without a C compiler
    *("runtime.device=cpu", "runtime.backend=torch"),
)


def task_for(model: str) -> str:
    cls = resolve(read_yaml(CONF / "model" / f"{model}.yaml")["_target_"])
    return "task=texas" if passes_messages(cls) else "task=adding"


@functools.cache
def all_runs() -> dict[str, tuple[str, ...]]:
    return {
        **{f"experiment={name}": (f"experiment={name}",) for name in names("experiment")},
        **{f"model={name}": (f"model={name}", task_for(name)) for name in names("model") if name != "own"},
    }


def identities() -> dict[str, str]:
    return {name: identity(compose([f"experiment={name}"]).config) for name in names("experiment")}


def first_of_each_kind() -> Iterator[str]:
    """One run of each model, and the first experiment of each study on tasks of one class."""
    seen = set()
    for name in all_runs():
        if name.startswith("model="):
            yield name
            continue
        experiment = name.removeprefix("experiment=")
        task = studies.experiment(experiment).choices["task"]
        kind = (experiment.partition("/")[0], read_yaml(CONF / "task" / f"{task}.yaml")["_target_"])
        if kind not in seen:
            seen.add(kind)
            yield name


@functools.cache
def cases() -> list[str]:
    """The first run of each kind; all runs with --grid."""
    from variants import variants  # which `python tests/conf/test_golden.py` does not find

    return variants(first_of_each_kind(), all_runs())


PAPERS = sorted(path.name for path in (CONF / "study").iterdir() if path.is_dir())
GROUPS = [f"model={name}" for name in names("model") if name != "own"] + [f"experiment={p}/" for p in PAPERS]


@functools.lru_cache(maxsize=8)  # experiments of one study stand side by side, and mostly share their data
def loaded(parts_and_split: str) -> Task:
    """The task of a config, with the data of its fixtures."""
    config = json.loads(parts_and_split)
    task = build.check(config["task"], "task").make()
    task.load(store_of({"data": {"verify": "bytes"}, "profile": "smoke"}), config["split"])
    return task


def first_losses(overrides: tuple[str, ...]) -> list[float]:
    """The mean training losses of three tiny epochs, by the real loop on the CPU in float32."""
    config, parts = checked(compose([*overrides, *TINY]).config)
    task = loaded(json.dumps({"task": config["task"], "split": config["split"]}))
    torch.set_num_threads(config["runtime"]["threads"])
    rows: list[dict[str, Any]] = []
    with backend.running(config["runtime"]["backend"]), flush_denormals():
        ends: Any = {"report": Mock(), "save": lambda _: None, "stop": Interrupt(), "on_row": rows.append}
        trainer = Trainer(config, parts, task, "cpu", **ends)
        trainer.check_data()
        trainer.fit()
    return [row["train/loss"] for row in rows]


def written(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def own_roots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    from physml.base.paths import own_folders  # which `python tests/conf/test_golden.py` does not find

    with pytest.MonkeyPatch.context() as patch:
        for key, value in own_folders(tmp_path_factory.mktemp("golden")).items():
            patch.setenv(key, value)
        yield


def test_no_identity_has_changed_and_golden_losses_are_of_what_is_in_conf() -> None:
    golden, now = written("identities.json"), identities()
    changed = sorted(name for name in {*golden, *now} if golden.get(name) != now.get(name))
    assert not changed, f"new identities: old records of these become stale. {REWRITE}"
    assert set(written("first_losses.json")) == set(all_runs()), REWRITE


@pytest.mark.usefixtures("own_roots")
@pytest.mark.parametrize("group", GROUPS)
def test_no_first_loss_has_changed(group: str) -> None:
    """Of a model, or of the experiments of a paper."""
    from each import run_all

    matching = [name for name in cases() if name == group or (group[-1] == "/" and name.startswith(group))]
    run_all((name, functools.partial(has_its_first_losses, name)) for name in matching)


def has_its_first_losses(name: str) -> None:
    expected, losses = written("first_losses.json")[name], first_losses(all_runs()[name])
    if losses == pytest.approx(expected, rel=NEAR):
        return
    off = np.abs(np.subtract(losses, expected)) / 3  # processors round differently, and some losses feel it
    assert np.all(off <= spread(all_runs()[name], losses)), (
        f"the numerics of {name} have changed, from {expected} to {losses}, by more than rounding explains: "
        f"raise `version` of its model, task or trainer. {REWRITE}"
    )


def spread(overrides: tuple[str, ...], losses: list[float]) -> np.ndarray:
    """How far the losses move when each weight is a little off at the start: the furthest of six tries."""
    moved = []
    for seed in range(6):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(build, "build_net", nudged(seed))
            moved.append(first_losses(overrides))
    return np.abs(np.subtract(moved, losses)).max(0)


def nudged(seed: int) -> Callable[..., nn.Module]:
    """`build_net` with its weights off by about NEAR of themselves."""

    def made(*arguments: Any, whole: Callable[..., nn.Module] = build.build_net) -> nn.Module:
        net = whole(*arguments)
        draws = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in net.parameters():
                weight.mul_(1 + NEAR * torch.randn(weight.shape, generator=draws))
        return net

    return made


@pytest.mark.usefixtures("own_roots")
@pytest.mark.parametrize("name", ["experiment=lem/fitzhugh_nagumo-lem", "experiment=g2/wisconsin-g2_sage"])
def test_a_loss_off_by_a_hundredth_is_more_than_rounding(name: str) -> None:
    losses = first_losses(all_runs()[name])
    assert np.all(3 * spread(all_runs()[name], losses) < 0.01 * np.abs(losses))


def rewrite(only: list[str]) -> None:
    """All identities, and the losses of `only` (`experiment=lem/adding-500-lem`), or of everything."""
    files.write_text(GOLDEN / "identities.json", json.dumps(identities(), indent=1) + "\n")
    kept = written("first_losses.json") if only else {}
    with tempfile.TemporaryDirectory(prefix="physml-golden-") as name:
        os.environ.update({f"PHYSML_{key}": f"{name}/{key.lower()}" for key in ("RESULTS", "RUNS", "CACHE")})
        losses = {
            key: kept[key] if key in kept and key not in only else first_losses(overrides)
            for key, overrides in all_runs().items()
        }
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(values)}" for key, values in losses.items())
    files.write_text(GOLDEN / "first_losses.json", f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    sys.exit(rewrite(sys.argv[1:]))
