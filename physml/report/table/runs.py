"""The finished and unfinished records of one experiment, and whether they may be held against a paper."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from physml.data import proof
from physml.data.datasets import UNVERIFIED
from physml.records.schema import SCHEMA, Record
from physml.records.searches import SearchSpread, spread_of_search
from physml.report.outcome import State
from physml.report.stats.claims import Gain, differences, gain, mostly_ahead
from physml.report.stats.summary import Spread, Values, independent
from physml.report.stats.verdict import Settings, settings_of
from physml.report.table.spec import Cell, Column, Run

LAST_PART = 0.9  # of the steps of a run
GRAVE = ("failed", "blocked")  # what can be mended is said before that a run has diverged
LARGEST = 1e70  # of a score: intervals take its fourth power
SLACK = 1e-9  # relative: a score of 0.29 in % is 28.999999999999996
# Trivial references that look at no input: what a network scores that has learned nothing but frequencies.
CONSTANTS = frozenset({
    *("constant", "majority class", "mean of train", "median of train"),
    *("uniform", "unigram", "every function", "share of each function"),
})  # fmt: skip


@dataclass(frozen=True)
class Runs:
    """The records of one experiment, by split and seed."""

    experiment: str
    identity: str | None
    places: Collection[tuple[int, int]]  # split and seed of every run that is wanted
    finished: dict[tuple[int, int], Record]
    ended: dict[tuple[int, int], Record]  # without a result
    stale: int  # runs of the same experiment under another identity or schema

    @classmethod
    def find(
        cls,
        experiment: str,
        identity: str | None,
        records: Iterable[Record],
        places: Collection[tuple[int, int]],
    ) -> "Runs":
        """Those of the `places`."""
        finished: dict[tuple[int, int], Record] = {}
        ended: dict[tuple[int, int], Record] = {}
        stale = 0
        for record in records:
            at = (record["split"], record["seed"])
            if at not in places:
                continue
            fresh = identity is not None and record["identity"] == identity
            if not fresh or record.get("schema", SCHEMA) != SCHEMA:
                stale += record["experiment"] == experiment
            elif record["status"] == "finished":
                finished.setdefault(at, record)
            else:
                ended.setdefault(at, record)
        ended = {at: ended[at] for at in sorted(ended.keys() - finished.keys())}
        return cls(experiment, identity, places, dict(sorted(finished.items())), ended, stale)

    def among(self, running: Collection[Run]) -> bool:
        """True if one of them is running."""
        return any((self.experiment, *at) in running for at in self.places)

    @property
    def first(self) -> Mapping[str, Any]:
        """The first finished run; empty where there is none."""
        return next(iter(self.finished.values()), {})

    @property
    def settings(self) -> Settings:
        return settings_of(self.first.get("provenance"))

    def search_spread(self, column: Column) -> SearchSpread | None:
        """Final scores of repeats of the search that found the settings, in the column's unit."""
        about = self.first.get("provenance") or {}
        if about.get("kind") != "searched-here" or not about.get("search"):
            return None
        part, _, metric = column.metric.partition("/")
        if part != "test":
            return None
        spread = spread_of_search(Path(about["search"]).stem, metric, column.better)
        return spread and spread.scaled(column.scale)

    @property
    def test_to_train(self) -> float | None:
        """How many samples or nodes are for test, over those for training."""
        every = ((record.get("data") or {}).get("sizes") or {} for record in self.finished.values())
        parts = ((sizes.get("test"), sizes.get("train")) for sizes in every)
        return next((test / train for test, train in parts if test and train), None)

    def references(self, column: Column) -> dict[str, Values]:
        """The scores of trivial predictions on the data of each finished run, in the column's unit."""
        part, _, name = column.metric.partition("/")
        by_reference: defaultdict[str, Values] = defaultdict(dict)
        for at, record in self.finished.items() if part == "test" else ():
            for reference, scores in record.get("references", {}).items():
                if (value := in_unit(scores.get(name), column)) is not None:
                    by_reference[reference][at] = value
        return by_reference

    def gains(self, column: Column, spread: Spread) -> dict[str, Gain]:
        """Trivial prediction -> the gain over it on the same data."""
        values = self.values(column)
        return {
            name: gain(values, scores, column.better, spread)
            for name, scores in self.references(column).items()
            if values.keys() & scores.keys()
        }

    def chance(self, column: Column, spread: Spread) -> str | None:
        """The constant prediction that the runs are not shown to beat: the interval of their gain holds 0 or
        less, and the sign test does not show them ahead of it either, whatever the size of the gains.

        None where a run solved the task, however many did not.
        """
        values = self.values(column)
        if solved(values, column):
            return None
        gains, scores = self.gains(column, spread), self.references(column)

        def unbeaten(name: str) -> bool:
            low = gains[name].low
            if name not in CONSTANTS or low is None or low > 0:
                return False
            return not mostly_ahead(independent(differences(values, scores[name], column.better), spread))

        return min(filter(unbeaten, gains), key=lambda name: gains[name].mean, default=None)

    @property
    def diverged(self) -> int:
        """How many of the wanted runs have diverged."""
        return sum(record["status"] == "diverged" for record in self.ended.values())

    @property
    def improving(self) -> bool:
        """True if most runs are best in the last tenth of their training: more of it may help."""
        late = [
            selected["step"] >= LAST_PART * steps
            for record in self.finished.values()
            if (selected := record.get("selected")) and (steps := record.get("n_steps"))
        ]
        return sum(late) > len(late) / 2

    def unfinished(self, blocked: str | None, few: str | None = None) -> State:
        """The state of an experiment of which not all wanted runs have a result, and none is running."""
        n = len(self.places)
        reasons = {r["status"]: r.get("reason") or "no reason recorded" for r in self.ended.values()}
        if gravest := next((status for status in GRAVE if status in reasons), None):
            return State(gravest, reasons[gravest])
        if self.diverged:
            return State("diverged", done=self.diverged, wanted=n)
        if self.finished:
            return State("partial", few, len(self.finished), n)
        if blocked is not None or self.identity is None:
            lost = self.identity is None and self.stale  # such as runs on a data file that has gone
            return State("stale" if lost else "blocked", blocked or "the experiment can't be composed")
        return State("stale" if self.stale else "missing")

    def owns(self, record: Record) -> bool:
        return record["experiment"] == self.experiment or record["identity"] == self.identity

    @property
    def doubt(self) -> str | None:
        """The doubt about the data of the finished runs; None where they are proved."""
        return proof.worst(proof.doubt(record.get("data") or {}) for record in self.finished.values())

    def values(self, column: Column) -> Values:
        """The column's number of every finished run that has it, in the column's unit."""
        numbers = {at: number(record, column) for at, record in self.finished.items()}
        return {at: value for at, value in numbers.items() if value is not None}


def number(record: Record, column: Column) -> float | None:
    part, _, name = column.metric.partition("/")
    best = (record.get("metrics") or {}).get("best") or {}
    return in_unit((best.get(part) or {}).get(name), column)


def in_unit(score: float | None, column: Column) -> float | None:
    """A score in the column's unit; None where it is not finite, or too large for a mean with its spread."""
    return None if score is None or not abs(score) < LARGEST else score * column.scale


def solved(values: Values, column: Column) -> int | None:
    """How many of the runs reach the column's threshold; None without one."""
    if (least := column.solved) is None:
        return None
    sign = 1.0 if column.better == "higher" else -1.0
    return sum(sign * (v - least) >= -SLACK * abs(least) for v in values.values())


def incomparable(column: Column, cell: Cell, runs: Runs) -> str | None:
    """The reason why finished runs may not be compared with the paper, or None."""
    name = column.metric.partition("/")[2]
    for record in runs.finished.values():
        data = record.get("data") or {}
        if record.get("short") or (record.get("config") or {}).get("profile") == "smoke":
            return "short budget"
        if (kind := data.get("kind")) in ("substitute data", "undeclared data", UNVERIFIED):
            return str(kind)
        if str(data.get("fingerprint") or "").startswith("differs"):
            return "different data"
        if (record.get("scoring") or {}).get(name, record.get("protocol")) != column.protocol:
            return "other protocol"
    return cell.not_comparable
