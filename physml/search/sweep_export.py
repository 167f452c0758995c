"""A search as a sweep of W&B: a YAML file for `wandb sweep`, whose points `wandb agent` runs as physml.

A sweep has one length of training, so a search in stages is exported with its first stage. What a sweep finds
stays at W&B: the records of its runs are ad hoc, and no study is written.
"""

from pathlib import Path
from typing import Any

import yaml

from physml.base import files
from physml.base.paths import display_path
from physml.config.compose import compose
from physml.search import plain as search
from physml.search.plain import SearchSpec, written

PROGRAM = ("${env}", "${interpreter}", "-m", "physml", "run")
POINT = "${args_no_hyphens}"  # key=value, as the command line takes it
HEAD = """# Written by `physml search {experiment} --export wandb`. With the environment of physml active:
#   wandb sweep {path}
#   WANDB_AGENT_DISABLE_FLAPPING=true wandb agent <the id that it prints>
# The variable keeps the agent alive when settings diverge early.
"""


def export(spec: SearchSpec, path: Path | None = None, verify: str = "bytes") -> Path:
    """Write the sweep of a search; by default to <id>.sweep.yaml in the working folder."""
    search.check_metric(spec, search.trial_spec(spec, 0, search.draw(spec)[0], verify))
    path = path or Path(f"{spec.id.replace('/', '-')}.sweep.yaml")
    body = yaml.safe_dump(sweep_of(spec, verify), sort_keys=False, allow_unicode=True, width=10_000)
    head = HEAD.format(experiment=spec.experiment, path=display_path(path))
    files.write_text(path, "\n".join([*_notes(spec, head), body]))
    return path


def sweep_of(spec: SearchSpec, verify: str = "bytes") -> dict[str, Any]:
    """The content of the file. Its metric is the score of the selected weights, as in the search."""
    tracker = compose([f"experiment={spec.experiment}", "tracker=wandb"]).config["tracker"]
    return {
        "name": spec.experiment,
        "project": tracker["project"],
        "program": "physml",
        "method": method_of(spec),
        "metric": {
            "name": f"best/valid/{spec.metric}",
            "goal": "minimize" if spec.better == "lower" else "maximize",
        },
        "run_cap": spec.trials,
        "parameters": {key: _parameter(spec, key) for key in spec.space},
        "command": [*PROGRAM, *_fixed(spec, verify), POINT],
    }


def method_of(spec: SearchSpec) -> str:
    """random, or bayes for every search that is guided by earlier trials."""
    return "bayes" if spec.tpe or spec.sampler != "random" else "random"


def _fixed(spec: SearchSpec, verify: str) -> list[str]:
    """Everything of a trial's command but its point."""
    seed, split, changes = spec.seed, 0, {"data.verify": verify, **spec.set, **spec.trial}
    if spec.stages:
        first = spec.stages[0]
        seed, split = (first.seeds or [spec.seed])[0], first.splits[0]
        changes |= first.set
    changes |= {"seed": seed, "split": split, "runtime.score_test": False}
    named = [f"experiment={spec.experiment}", "tracker=wandb", "tracker.tags=[search]"]
    return [*named, *(f"{key}={written(value)}" for key, value in changes.items())]


def _parameter(spec: SearchSpec, key: str) -> dict[str, Any]:
    span = spec.range(key)
    if span is None:
        return {"values": [_plain(value) for value in spec.space[key]]}
    if span.low == span.high:
        return {"value": span.low}
    kind = "log_uniform_values" if span.log else "uniform"
    return {"distribution": kind, "min": float(span.low), "max": float(span.high)}


def _plain(value: Any) -> Any:
    """A plain value unchanged, others as a Hydra override: the agent writes values as Python does."""
    return value if isinstance(value, bool | int | float | str) else written(value)


def _notes(spec: SearchSpec, head: str) -> list[str]:
    """Differences of the sweep from the search."""
    notes = []
    if spec.stages:
        notes.append("The first stage alone, on one seed and split: train the best trials longer.")
    if method_of(spec) == "bayes":
        notes.append("bayes is a Gaussian process of W&B; the search here uses another estimator.")
    if spec.pruner != "none":
        notes.append("No run is stopped early: the metric is known at its end.")
    if spec.points:
        notes.append("The points that the search begins with are not in it.")
    return [head.rstrip("\n"), *(f"# {note}" for note in notes)]
