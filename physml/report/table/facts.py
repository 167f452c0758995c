"""Provenance of a table's numbers: code, machine, data, rules."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from physml.data import proof
from physml.records import shipped
from physml.records.costs import CORE_HOURS, HOURS, core_hours, spent_on
from physml.records.schema import Record


@dataclass(frozen=True)
class Facts:
    """The provenance printed below the table. Each field is a sorted list of the values that occur."""

    commits: tuple[str, ...] = ()
    shipped: int = 0  # how many runs were not made here, but came with physml
    dirty: int = 0  # how many runs were made on uncommitted code
    devices: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()  # which epoch's weights count
    dates: tuple[str, ...] = ()  # first and last day of the runs
    runs: int = 0
    hours: dict[str, float] = field(default_factory=dict)  # of training and evaluation, by unit
    shorts: tuple[str, ...] = ()
    provenance: dict[str, str] = field(default_factory=dict)  # experiment -> kind
    notes: tuple[str, ...] = ()  # on the data of an experiment
    unproven: dict[str, tuple[str, ...]] = field(default_factory=dict)  # how a file was verified -> files


def facts_of(records: Sequence[Record]) -> Facts:
    def each(*path: str) -> tuple[str, ...]:
        values: list[Any] = list(records)
        for key in path:
            values = [(value or {}).get(key) for value in values]
        return tuple(sorted({str(value) for value in values if value is not None}))

    days = sorted(day[:10] for day in each("ended"))
    kinds = {r["experiment"]: (r.get("provenance") or {}).get("kind") for r in records}
    return Facts(
        runs=len(records),
        hours=_hours(records),
        commits=each("code", "commit"),
        shipped=sum(map(shipped.is_shipped, records)),
        dirty=sum(bool((r.get("code") or {}).get("dirty")) for r in records),
        devices=each("machine", "device"),
        precisions=each("precision"),
        backends=each("backend"),
        rules=each("selected", "rule"),
        dates=tuple(dict.fromkeys(days[:1] + days[-1:])),
        shorts=each("short"),
        provenance={experiment: str(kind) for experiment, kind in sorted(kinds.items()) if kind},
        notes=tuple(
            sorted({f"{r['experiment']}: {note}" for r in records for note in _data(r).get("notes", ())})
        ),
        unproven=_unproven(records),
    )


def _hours(records: Sequence[Record]) -> dict[str, float]:
    hours: defaultdict[str, float] = defaultdict(float)
    for record in records:
        if spent := core_hours(record):
            unit, processor = spent_on(record)
            hours[f"{unit} on {processor}" if unit == HOURS else unit] += spent
    return dict(sorted(hours.items(), key=lambda item: item[0] != CORE_HOURS))


def _data(record: Record) -> Mapping[str, Any]:
    return record.get("data") or {}


def _unproven(records: Sequence[Record]) -> dict[str, tuple[str, ...]]:
    """Data files whose bytes were not compared with a published checksum, by what was done instead."""
    unproven: dict[str, set[str]] = {}
    for record in records:
        for file in _data(record).get("files", ()):
            how = file.get("verified")
            # The checksum of a file that was first seen may have been found later.
            found_later = how == "first seen" and not proof.doubt({**_data(record), "files": [file]})
            if how not in (None, "bytes", "fixture") and not found_later:
                unproven.setdefault(how, set()).add(file["name"])
    return {how: tuple(sorted(names)) for how, names in sorted(unproven.items())}
