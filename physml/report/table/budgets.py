"""Where rows that stand side by side were trained in another way. No torch, no hydra."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from physml.report.table.runs import Runs
from physml.report.table.spec import TableSpec

PARTS = ("trainer", "optim", "precision")  # of a config
FIRST = ("trainer.epochs", "trainer.steps", "optim.lr")
MOST = 8  # keys that are listed, and values of others


def differs_in(config: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    """The keys of training whose value none of the other configs has; empty where there is none.

    Example:
        >>> differs_in({"trainer": {"epochs": 30}}, [{"trainer": {"epochs": 400}}])
        'trainer.epochs 30 / 400'
    """
    own, theirs = dict(_values(config)), [dict(_values(other)) for other in others]
    keys = sorted({*own, *(key for values in theirs for key in values)}, key=_order)
    found = []
    for key in keys:
        values = [values.get(key) for values in theirs]
        if values and own.get(key) not in values:
            known = list(dict.fromkeys(map(_short, values)))
            more = " or ..." if len(known) > MOST else ""
            found.append(f"{key} {_short(own.get(key))} / {' or '.join(known[:MOST])}{more}")
    more = f" and {len(found) - MOST} more" if len(found) > MOST else ""
    return ", ".join(found[:MOST]) + more


def unlike(spec: TableSpec, of: Mapping[str, Runs]) -> Iterator[str]:
    """A line for each row of the reader's own that was trained unlike all other rows of a column."""
    for row in spec.rows:
        texts: dict[str, list[str]] = {}
        for column in spec.columns if row.extra else ():
            config = _config(of.get(spec.cell(row, column).experiment or ""))
            cells = [spec.cell(other, column) for other in spec.rows if other is not row]
            others = [found for cell in cells if (found := _config(of.get(cell.experiment or "")))]
            if config and (text := differs_in(config, others)):
                texts.setdefault(text, []).append(column.title)
        for text, titles in texts.items():
            where = f", {', '.join(titles)}" if len(texts) > 1 else ""
            yield f"{row.label}{where} differs in: {text}"


def _config(runs: Runs | None) -> Mapping[str, Any] | None:
    return next((record.get("config") for record in runs.finished.values()), None) if runs else None


def _values(config: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves below the parts of training, by their dotted keys."""
    for key, value in config.items():
        if not where and key not in PARTS:
            continue
        at = f"{where}.{key}" if where else key
        if isinstance(value, Mapping):
            yield from _values(value, at)
        elif value is not None:
            yield at, value


def _order(key: str) -> tuple[int, str]:
    return (FIRST.index(key) if key in FIRST else len(FIRST), key)


def _short(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)[:40]
