"""Verdict on a run that was trained again: are its numbers the recorded ones? No torch, no hydra.

Rounding differs between processors, backends and numbers of threads, and training amplifies it. So a
difference is judged by two limits:

- Rounding alone: one rounding of the precision for each step, relative to the number, at most 1 %.
- Spread, where the first does not hold and the records tell a source of other rounding: rounding that has
  grown over training ends, at worst, at the number of another seed. Of pairs of seeds of the recorded setting
  on the same split, 95 % differ by less than t sd sqrt(2), for all numbers together (Bonferroni). The curves
  must then start together, within 1 % at the first evaluation: rounding begins small, a mistake does not.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from physml.base.errors import MissingExtra, RecordError
from physml.base.paths import display_path
from physml.base.text import digits
from physml.records.curves import curve_of
from physml.records.record import differences
from physml.records.schema import Record, scores_of
from physml.records.shipped import is_shipped
from physml.report.stats.summary import N_FOR_VERDICT, t_quantile

Outcome = Literal["equal", "within", "different"]
# Of one operation, relative.
ROUNDING = {"fp32": 2.0**-23, "tf32": 2.0**-10, "bf16": 2.0**-7, "bf16-products": 2.0**-7}
MOST_ROUNDING = 0.01
ALPHA = 0.05
SAME = ("status", "metrics", "selected", "n_steps", "n_epochs", "n_parameters")
FIELDS = ("hashed", "n_parameters", "code", "packages", "machine", "backend")
ROUNDED_BY = ("machine.", "packages.", "backend", "code.")
SUBSTANCE = ("hashed", "n_parameters", "data.version", "data.kind", "data.sizes", "data.files")


@dataclass(frozen=True)
class Shift:
    """One number of both runs, and how far apart they may lie."""

    name: str
    before: float
    after: float
    limit: float
    by_spread: bool  # which of the two limits it is

    @property
    def size(self) -> float:
        return abs(self.after - self.before)

    @property
    def share(self) -> float:
        """Size of the shift over its limit; above 1 the limit is exceeded."""
        return 0.0 if self.size == 0.0 else self.size / self.limit if self.limit else math.inf


@dataclass(frozen=True)
class RerunVerdict:
    """The outcome, and a sentence for a person."""

    outcome: Outcome
    sentence: str


def verdict(old: Record, new: Record, seeds: Sequence[Record] = ()) -> RerunVerdict:
    """The recorded run against the one that was trained again. seeds: runs of its setting, for the spread."""
    if is_shipped(old):  # without the scores of the last weights
        new = {**new, "metrics": {**new["metrics"], "last": None}}
    between = _between(old, new)
    if all(old.get(key) == new.get(key) for key in SAME):
        n = len(_numbers(old))
        count = f"all {n} scores, the selected step and the number of steps" if n else "status and steps"
        return RerunVerdict("equal", f"equal to the bit: {count}.{between}")
    if old["status"] != new["status"]:
        reason = f" ({new['reason']})" if new.get("reason") else ""
        text = f"different: the run {_ended(new)}{reason}; the recorded one {_ended(old)}."
        return RerunVerdict("different", f"{text}{between or _unexplained(old)}")
    other_rounding = _other_rounding(old, new)
    shifts = _shifts(old, new, ())
    start = None
    if max((shift.share for shift in shifts), default=0.0) > 1 and other_rounding:
        shifts, start = _shifts(old, new, seeds), start_of(old, new)
    worst = max(shifts, key=lambda shift: shift.share, default=None)
    explanation = _explained(worst, old, new, seeds) + _start_text(start) + (between or _unexplained(old))
    apart = start is not None and start[1] > MOST_ROUNDING
    other_names = _numbers(old).keys() != _numbers(new).keys()
    if _other_substance(old, new) or other_names or apart or (worst and worst.share > 1):
        return RerunVerdict("different", f"different: {explanation}")
    what = "what another processor, backend or thread count explains" if other_rounding else "rounding"
    return RerunVerdict("within", f"not equal to the bit, but within {what}: {explanation}")


def _ended(record: Record) -> str:
    return "finished" if record["status"] == "finished" else f"is {record['status']}"


# --- numbers


def _numbers(record: Record) -> dict[str, float]:
    """The scores that are numbers."""
    return {name: float(value) for name, value in scores_of(record).items() if value is not None}


def _shifts(old: Record, new: Record, seeds: Sequence[Record]) -> list[Shift]:
    before, after = _numbers(old), _numbers(new)
    spreads = _spreads(before, seeds)
    relative = rounding_of(old)
    shifts = []
    for name in before.keys() & after.keys():
        rounding, spread = relative * abs(before[name]), spreads.get(name, 0.0)
        shifts.append(Shift(name, before[name], after[name], max(rounding, spread), spread > rounding))
    return shifts


def rounding_of(record: Record) -> float:
    """Largest change by rounding alone in a run, relative to a number: once for each step."""
    return min(MOST_ROUNDING, ROUNDING.get(_precision(record), 2.0**-23) * record.get("n_steps", 0))


def _precision(record: Record) -> str:
    return record.get("precision", "fp32")


def _spreads(names: Iterable[str], seeds: Sequence[Record]) -> dict[str, float]:
    """By number, what 95 % of pairs of seeds stay below, for all numbers together."""
    names = list(names)
    spreads = {}
    for name in names:
        values = [numbers[name] for record in seeds if name in (numbers := _numbers(record))]
        if len(values) >= N_FOR_VERDICT:
            factor = t_quantile(len(values) - 1, 1 - ALPHA / len(names))
            spreads[name] = factor * statistics.stdev(values) * math.sqrt(2)
    return spreads


def start_of(old: Record, new: Record) -> tuple[int, float] | None:
    """The first step that both curves have, and how far they are apart there: relative, the worst column.

    None where a curve is missing or cannot be read.
    """
    try:
        rows, others = ({row["step"]: row for row in curve_of(record)[1][1]} for record in (old, new))
        step = next((step for step in rows if step in others), None)
        if step is None:
            return None
        scored = [name for name, value in rows[step].items() if "/" in name and value]
        pairs = [(float(rows[step][name]), float(others[step][name])) for name in scored]
    except (RecordError, MissingExtra, KeyError, ValueError):
        return None
    largest = ((abs(a - b) / size if (size := max(abs(a), abs(b))) else 0.0) for a, b in pairs)
    return int(step), max(largest, default=0.0)


# --- what differs


def _flat(record: Record) -> dict[str, Any]:
    """The fields of a record that can explain other numbers."""
    data = record.get("data") or {}
    files = {file["name"]: file["sha256"] for file in data.get("files") or ()}
    kept = {key: data.get(key) for key in ("version", "kind", "sizes")} | {"files": files}
    kept["fingerprint"] = str(data.get("fingerprint") or "none")
    return {key: record.get(key) for key in FIELDS} | {"data": kept}


def _differences(old: Record, new: Record) -> list[tuple[str, Any, Any]]:
    return differences(_flat(old), _flat(new))


def _other_substance(old: Record, new: Record) -> bool:
    """True where the setting or the data are others."""

    def wrong(fingerprint: Any) -> bool:
        return str(fingerprint).startswith("differs")

    return any(
        name.startswith(SUBSTANCE) or (name == "data.fingerprint" and wrong(before) != wrong(after))
        for name, before, after in _differences(old, new)
    )


def _other_rounding(old: Record, new: Record) -> bool:
    """True where numbers may be rounded otherwise: by machine, packages, backend or code; a GPU by itself."""
    machine: Mapping[str, Any] = new.get("machine") or {}
    if machine.get("device", "cpu") != "cpu" and not machine.get("deterministic"):
        return True
    return any(name.startswith(ROUNDED_BY) for name, *_ in _differences(old, new))


def _between(old: Record, new: Record) -> str:
    differences_found = _differences(old, new)
    if old.get("code", {}).get("dirty"):
        differences_found.append(("code", "with changes that were not committed", None))
    phrases = "; ".join(_phrase(*pair) for pair in differences_found if pair[0] != "code.dirty" or pair[2])
    return f" Other than recorded: {phrases}." if phrases else ""


def _phrase(name: str, before: Any, after: Any) -> str:
    if name == "code":
        return f"the code then, {before}"
    if name == "code.dirty":
        return "the code now, with changes that are not committed"
    return f"{name.replace('.', ' ', 1)} {_short(after)}, was {_short(before)}"


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text[:10] if len(text) >= 40 and " " not in text else text


def _unexplained(old: Record) -> str:
    machine: Mapping[str, Any] = old.get("machine") or {}
    where = f" ({machine['cpu']})" if machine.get("cpu") else ""
    return (
        " Code, packages, data, machine and backend are as recorded. Processors of one name"
        f"{where} can differ, and the records do not tell."
    )


def _explained(worst: Shift | None, old: Record, new: Record, seeds: Sequence[Record]) -> str:
    """The number that is furthest from its recorded value, or else what differs beside the numbers."""
    if worst is None or worst.size == 0.0:
        pairs = differences({key: old.get(key) for key in SAME}, {key: new.get(key) for key in SAME})
        return f"{'; '.join(f'{name} {after}, was {before}' for name, before, after in pairs[:3])}."
    relation = "above" if worst.share > 1 else "below"
    seen = f"{worst.name} is {worst.after:.6g}, recorded {worst.before:.6g}: a difference of"
    size, limit = digits(worst.size, 2), digits(worst.limit, 2)
    return f"{seen} {size}, {relation} {limit} ({_limit(worst, old, seeds)})."


def _limit(worst: Shift, old: Record, seeds: Sequence[Record]) -> str:
    """The reason for a limit, in words."""
    n = len(seeds)
    if worst.by_spread:
        return f"95 % of pairs of seeds differ by less, by the {n} recorded on this split"
    text = f"rounding over {old.get('n_steps', 0)} steps in {_precision(old)}"
    if worst.share > 1 and n < N_FOR_VERDICT:
        text += f"; {n} recorded seed{'s' if n != 1 else ''} on this split, too few for a spread"
    return text


def _start_text(start: tuple[int, float] | None) -> str:
    """A sentence on whether the curves start together; empty if there is no common start."""
    if start is None:
        return ""
    step, apart = start
    if apart == 0.0:
        return f" The curves start together: equal after {step} steps in the digits they keep."
    begun = "not together" if apart > MOST_ROUNDING else "together"
    return f" The curves start {begun}: {apart:.1g} apart, relative, after {step} steps."


def dirty(record: Record) -> str | None:
    """A line for a record of uncommitted code."""
    if not record.get("code", {}).get("dirty"):
        return None
    place = display_path(Path(record["path"])) if record.get("path") else record["experiment"]
    return f"{place} was made on uncommitted code: no commit holds what produced it."
