"""Pages of tables, cells and runs: what their templates are given."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from markupsafe import Markup

from physml.base.errors import RecordError
from physml.config.conf_files import without_places
from physml.records import costs, curves
from physml.records.schema import Record, scores_of
from physml.report.outcome import State, outcome_of
from physml.report.table.collect import Placed
from physml.report.table.fact_text import margin_text
from physml.report.table.numbers import cell_texts, decimals, span_text
from physml.report.table.runs import number
from physml.report.table.spec import Column
from physml.report.text.document import NONE
from physml.site import pareto, plots
from physml.site.content import Results, slug

LONGEST = 40  # characters of a reason in a table; a cell's own page has it whole


def short(state: State) -> str:
    """An outcome for a table."""
    return str(state) if state.reason is None or len(state.reason) <= LONGEST else state.word


def table_page(ident: str) -> str:
    return f"table/{ident}/index.html"


def cell_page(results: Results, placed: Placed) -> str:
    return f"cell/{results.spec.id}/{slug(placed.row.label)}/{slug(placed.column.key)}/index.html"


def run_page(identity: str) -> str:
    return f"run/{identity}/index.html"


@dataclass(frozen=True)
class ColumnView:
    """One column of a table: an axis that all its rows share."""

    results: Results
    column: Column

    @cached_property
    def placed(self) -> list[Placed]:
        return [placed for placed in self.results.cells if placed.column is self.column]

    @cached_property
    def places(self) -> int:
        return decimals(self.results.table, self.column)

    @cached_property
    def references(self) -> dict[str, float]:
        """Trivial prediction -> its mean score."""
        key, predictions = self.column.key, self.results.table.references.items()
        return {name: scores[key].mean for name, scores in predictions if key in scores}

    @cached_property
    def axis(self) -> plots.Axis:
        numbers = [(placed.result.published, placed.result.summary) for placed in self.placed]
        return plots.interval_axis(numbers, self.references.values())

    @property
    def nearby(self) -> list[float]:
        return [value for value in self.references.values() if self.axis.low <= value <= self.axis.high]

    @property
    def margin(self) -> str:
        return margin_text(self.column.margin, self.column.unit)

    def row(self, placed: Placed) -> dict[str, Any]:
        """The texts of a cell, with its page, its outcome and a picture of its interval."""
        result = placed.result
        published, summary, outcome = result.published, result.summary, outcome_of(result.state)
        texts = cell_texts(result, self.column, self.places)
        label = f"published {texts['published']}; ours {texts['ours']}"
        return texts | {
            "label": placed.row.label,
            "page": cell_page(self.results, placed),
            "published_value": published and published.value,
            "ours_value": summary and summary.mean,
            "runs": texts["runs"].replace("/", " of "),
            "outcome": short(result.state),
            "sign": outcome.sign,
            "kind": outcome.kind,
            "plot": plots.interval(self.axis, published, summary, self.nearby, label)
            if published or summary
            else "",
        }


def table_context(results: Results) -> dict[str, Any]:
    document = results.document
    costs = pareto.costs(results) if results.table.own else {}
    return {
        "spec": results.spec,
        "document": document,
        "own": results.table.own,
        "pages": {(p.row.label, p.column.key): cell_page(results, p) for p in results.cells},
        "columns": [ColumnView(results, column) for column in results.spec.columns],
        "first": [pareto.with_costs(block, costs) for block in document.first],
        "costs": list(pareto.pictures(results)),
        # The grids of columns are shown with their intervals.
        "rest": document.long[len(results.spec.columns) :],
        "command": f"physml table {results.spec.id}",
    }


def cell_context(results: Results, placed: Placed, pictures: "Pictures") -> dict[str, Any]:
    """Context of a cell's page: runs, interval, the paper's band, curves, settings, provenance, command."""
    view = ColumnView(results, placed.column)
    result, places = placed.result, view.places
    records = results.counted(placed)
    values = [(record, number(record, placed.column)) for record in records]
    known = [value for _, value in values if value is not None]
    experiment = placed.cell.experiment
    row, dots = view.row(placed), None
    if known:
        near = plots.interval_axis([(result.published, result.summary)], known)
        axis = plots.Axis.over([*known, near.low, near.high])
        label, heading = f"{len(known)} runs, {row['ours']}", placed.column.heading
        dots = plots.dots(axis, known, result, label, heading)
    return {
        "spec": results.spec,
        "view": view,
        "row": row,
        "result": result,
        "experiment": experiment,
        "readings": result.comparison.readings if result.comparison else (),
        "dots": dots,
        "runs": [run_row(record, value, places) for record, value in values],
        "curves": pictures.of(records),
        "provenance": list(flat((records[0].get("provenance") or {}) if records else {})),
        "identity": results.identities.get(experiment) if experiment else None,
        "has_runs": bool(records),
        "earlier": _earlier(results, placed) if experiment else [],
        "reasons": [r for r in results.spec.reasons if r.fits(placed.row.label, placed.column.key)],
        "commands": _commands(results, placed),
    }


def run_row(record: Record, value: float | None, places: int) -> dict[str, Any]:
    seconds = costs.seconds(record)
    return {
        "split": record["split"],
        "seed": record["seed"],
        "value": NONE if value is None else f"{value:.{max(places, 2)}f}",
        "epochs": record.get("n_epochs", NONE),
        "time": NONE if seconds is None else span_text(float(seconds)),
        "date": str(record.get("ended") or "")[:10],
        "page": f"{run_page(record['identity'])}#split-{record['split']}-seed-{record['seed']}",
    }


def _earlier(results: Results, placed: Placed) -> list[tuple[str, ...]]:
    """Results of the experiment under earlier settings or code: identity, mean, runs and dates."""
    entries = []
    for identity, records in results.earlier(placed.cell.experiment or "").items():
        scores = [number(record, placed.column) for record in records if record["status"] == "finished"]
        values = [score for score in scores if score is not None]
        dates = sorted(str(record.get("ended") or "")[:10] for record in records)
        mean = f"{statistics.fmean(values):.4g}" if values else NONE
        span = f"{dates[0]} to {dates[-1]}" if dates[0] != dates[-1] else dates[0]
        entries.append((identity, mean, str(len(records)), span))
    return sorted(entries, key=lambda entry: entry[3])


def _commands(results: Results, placed: Placed) -> list[str]:
    experiment = placed.cell.experiment
    if experiment is None:
        return []
    spec = results.spec
    if spec.paired:
        run = f"physml run experiment={experiment}"
        runs = [f"{run} split={split} seed={seed}" for split, seed in spec.places_of(experiment)]
        return [*runs, f"physml table {spec.id}"]
    seeds = ",".join(map(str, spec.seeds_of(experiment)))
    splits = f" split={','.join(map(str, spec.splits))}" if len(spec.splits) > 1 else ""
    return [f"physml run -m experiment={experiment}{splits} seed={seeds}", f"physml table {spec.id}"]


class Pictures:
    """Curves of settings, each drawn once."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], tuple[str, Markup | None]] = {}

    def of(self, records: Sequence[Record]) -> tuple[str, Markup | None] | None:
        """The metric on validation data that chose the weights, against steps: words and picture."""
        if not records:
            return None
        key = (records[0]["identity"], *((record["split"], record["seed"]) for record in records))
        if key not in self._made:
            metric = _selecting(records[0])
            lines = list(_curves(records[: plots.MOST_CURVES], metric))
            label = f"{metric} of {len(lines)} runs by steps"
            some = len(records) > plots.MOST_CURVES
            first = f"one of the first {plots.MOST_CURVES} of {len(records)} runs" if some else "a run"
            words = f"{metric} by steps; a line is {first}"
            self._made[key] = (words, plots.curves(lines, label, ("steps", metric)))
        words, picture = self._made[key]
        return (words, picture) if picture else None


def _selecting(record: Record) -> str:
    """`valid/rmse` of the rule `min valid/rmse`; the loss in training where nothing selects."""
    selected = record.get("selected")
    rule = selected["rule"] if selected else ""
    return next((word for word in rule.split() if "/" in word), "train/loss")


def _curves(records: Sequence[Record], metric: str) -> Iterator[tuple[Sequence[float], Sequence[float]]]:
    for record in records:
        try:
            x, y = curves.read_curve(record, metric)
        except RecordError:  # a record without a curve
            continue
        yield x.tolist(), y.tolist()


# ---------------------------------------------------------------------------- runs


def run_context(
    records: Sequence[Record], cells: Sequence[tuple[str, str]], pictures: Pictures
) -> dict[str, Any]:
    """Context of the page on all runs of one setting. cells: page and name of each cell that they are in."""
    first = records[0]
    return {
        "first": first,
        "records": [_full_row(record) for record in records],
        "metrics": list(dict.fromkeys(name for record in records for name in scores_of(record))),
        "cells": cells,
        "curves": pictures.of([record for record in records if record["status"] == "finished"]),
        "config": list(flat(without_places(first["config"]))),
        "files": [
            (file["name"], file.get("sha256") or NONE, file.get("verified") or NONE)
            for file in first.get("data", {}).get("files", [])
        ],
        "machines": sorted({_machine(record) for record in records}),
        "packages": first.get("packages") or {},
        "command": f"physml run experiment={first['experiment']} seed={first['seed']}"
        + (f" split={first['split']}" if first["split"] else ""),
    }


def _full_row(record: Record) -> dict[str, Any]:
    code = record.get("code") or {}
    selected = record.get("selected")
    return run_row(record, None, 2) | {
        "status": record["status"],
        "reason": record.get("reason"),
        "scores": scores_of(record),
        "epoch": selected.get("epoch") if selected else NONE,
        "commit": (code.get("commit") or "")[:10] + (" + changes" if code.get("dirty") else ""),
    }


def _machine(record: Record) -> str:
    known = record.get("machine") or {}
    forms = {"device": "{}", "cpu": "{}", "gpu": "{}", "torch": "torch {}"}
    return ", ".join(form.format(known[key]) for key, form in forms.items() if known.get(key))


def said(value: Any) -> str:
    """A value of a config, as YAML has it; a list as its parts.

    Example:
        >>> said(["mean", "dx"]), said(None), said([[0, 1], True])
        ('mean, dx', 'null', '[0, 1], true')
    """
    if isinstance(value, list | tuple):
        return ", ".join(f"[{said(v)}]" if isinstance(v, list | tuple) else said(v) for v in value)
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def flat(node: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Key and value of every leaf: `model.dt`, `1.0`."""
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", said(value)
