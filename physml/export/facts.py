"""Facts for the card of a network: its run, the runs beside it, the data they learned from. No torch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from physml.base import opened
from physml.base.errors import PhysmlError
from physml.config.class_source import read_class
from physml.data.catalogue import task_datasets
from physml.data.datasets import Upstream, upstream
from physml.records import record
from physml.records.record import ADHOC
from physml.records.schema import Record
from physml.report.stats.summary import Spread, Summary, summarise_runs
from physml.run.named import of_file, record_of
from physml.run.weights import NAME, About


@dataclass(frozen=True)
class Facts:
    """A network that is exported.

    about: what its file says. run: the record of its run, where it is at hand. beside: the records of all
    finished runs of the same identity, its own among them.
    """

    about: About
    run: Record | None
    beside: Sequence[Record]

    @property
    def record(self) -> dict[str, Any]:
        """Record of its run; empty if it is not at hand."""
        return dict(self.run or {})

    @property
    def model(self) -> str:
        return str(self._choice("model") or self.about.config["model"]["_target_"].rpartition(".")[2])

    @property
    def task(self) -> str:
        return str(self._choice("task") or self.about.config["task"]["_target_"].rpartition(".")[2])

    @property
    def name(self) -> str:
        experiment = str(self.record.get("experiment") or f"{self.task}-{self.model}")
        return experiment.removeprefix(f"{ADHOC}/")

    @property
    def unit(self) -> str:
        """Over which the spread is taken: splits, their seeds averaged first, where there are several."""
        return "split" if len({record["split"] for record in self.beside}) > 1 else "run"

    @cached_property
    def datasets(self) -> list[Upstream]:
        """Those of conf/dataset that the task reads; none where data are generated or a hub's."""
        return [upstream(name) for name in task_datasets().get(self.task, [])]

    @cached_property
    def spread(self) -> dict[str, Summary]:
        """Metric on test data -> mean and spread over the recorded runs, as the tables take them."""
        spread: dict[str, Summary] = {}
        for name in self.own:
            values = {
                (record["split"], record["seed"]): float(value)
                for record in self.beside
                if (value := _test_metrics(record).get(name)) is not None
            }
            if values:
                over: Spread = "splits" if self.unit == "split" else "runs"
                spread[name] = summarise_runs(values, "higher", over)  # whose best is not shown
        return spread

    @property
    def own(self) -> Mapping[str, float]:
        """Metrics on test data of this very run."""
        return _test_metrics(self.run) if self.run else {}

    @property
    def source_of_model(self) -> str | None:
        """The `Source:` of the model's docstring; None for a class of one's own."""
        try:
            doc = read_class(self.about.config["model"]["_target_"]).doc
        except PhysmlError:
            return None
        match = re.search(r"^Source: (.+?)(?=\n\s*\n|\n\w+: |\Z)", doc, re.DOTALL | re.MULTILINE)
        return None if match is None else " ".join(match.group(1).split())

    def _choice(self, group: str) -> str | None:
        name = (self.record.get("choices") or {}).get(group)
        return None if name == "own" else name


def _test_metrics(record: Record) -> Mapping[str, float]:
    scores = (record["metrics"]["best"] or {}).get("test") or {}
    return {name: score for name, score in scores.items() if score is not None}


def facts_of(path: Path, about: About, run: object) -> Facts:
    """The facts of the network in a file of weights; `run` as its caller named it."""
    own = _record(path, run)
    if own is None or not own.get("path"):
        return Facts(about, own, [own] if own else [])
    records = record.records_beside(Path(own["path"]))
    same = [r for r in records if r["identity"] == own["identity"] and r["status"] == "finished"]
    return Facts(about, own, same or [own])


def _record(path: Path, run: object) -> Record | None:
    """From the card of kept weights, the name of the run, or the place of its weights, its record's too."""
    if isinstance(run, dict):
        return run  # type: ignore[return-value]
    card = opened.read_mapping(path.with_suffix(".json"))  # of kept weights, or another file with its name
    if path.name != NAME and {"experiment", "identity", "split", "seed"} <= card.keys():
        return of_file("{experiment}/{identity}-split{split}-seed{seed}".format(**card))
    if Path(str(run)).suffix != ".safetensors" and not (Path(str(run)) / path.name).is_file():
        return record_of(str(run))
    place = path.absolute().parts[:-1]
    for n in (3, 4, 2):  # folder/stem, with adhoc/ or without, and of an experiment a paper/
        name = "/".join(place[-n:])
        if recorded := of_file(name):
            return recorded
    return None
