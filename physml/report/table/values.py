"""The numbers of a table, unrounded, for its CSV file."""

import dataclasses
from collections.abc import Iterator

from physml.config.conf_files import shown
from physml.report.table import ranks_text
from physml.report.table.collect import Table
from physml.report.table.spec import Column

CSV_HEADS = (
    "table", "row", "column", "metric", "unit", "better", "protocol", "experiment",
    "published", "published_sd", "published_n", "published_statistic",
    "mean", "sd", "n", "low", "high", "within_low", "within_high", "search_sd", "best", "done", "wanted",
    "settings", "gain", "gain_low", "gain_high", "margin", "readings", "state",
    "reference", "over", "over_low", "over_high",
    "parameters", "parameters_printed", "train_s", "ms_per_step",
    "peak_memory_mib", "solved",
)  # fmt: skip


def values(table: Table) -> Iterator[tuple[object, ...]]:
    """The heads, then a line per row and column, in full precision; trivial references, and ranks."""
    yield CSV_HEADS
    for known in (*_lines(table), *ranks_text.values(table.ranking)):
        known |= {"table": table.spec.id}
        yield tuple(known.get(head) for head in CSV_HEADS)


def _lines(table: Table) -> Iterator[dict[str, object]]:
    """Trivial references are rows whose state is `trivial reference`."""
    rows = {row.label: row for row in table.spec.rows}

    def line(label: str, column: Column, **values: object) -> dict[str, object]:
        return {
            "row": label, "column": column.key, "metric": column.metric, "unit": column.unit or "1",
            "better": column.better, "protocol": column.protocol, **values,
        }  # fmt: skip

    for column in table.spec.columns:
        for cell in table.column(column.key):
            p, s = cell.published, cell.summary
            comparison, over = cell.comparison, cell.over
            within = cell.within or (None, None)
            yield line(
                cell.row, column,
                experiment=shown(table.spec.cell(rows[cell.row], column).experiment or "") or None,
                published=p and p.value, published_sd=p and p.sd, published_n=p and p.n,
                published_statistic=p and p.statistic,
                mean=s and s.mean, sd=s and s.sd, n=s and s.n, low=s and s.low, high=s and s.high,
                within_low=within[0], within_high=within[1], search_sd=cell.search and cell.search.sd,
                best=s and s.best, done=cell.done, wanted=cell.wanted, settings=cell.settings,
                gain=comparison and comparison.delta,
                gain_low=comparison and min(r.low for r in comparison.readings),
                gain_high=comparison and max(r.high for r in comparison.readings),
                margin=p and column.margin.of(p),
                readings=comparison
                and "; ".join(f"{r.assumption}: {r.outcome}" for r in comparison.readings),
                state=cell.state, reference=over and over[0], over=over and over[1].mean,
                over_low=over and over[1].low, over_high=over and over[1].high, parameters=cell.params_ours,
                parameters_printed=cell.params_paper, train_s=cell.train_s, ms_per_step=cell.ms_per_step,
                peak_memory_mib=cell.peak_memory_mib, solved=cell.solved,
            )  # fmt: skip
            for mine in cell.yours:
                label = f"{cell.row}: your run (seed {mine.seed})"
                yield line(label, column, best=mine.value, state=mine.state)
        for name, scores in table.references.items():
            if column.key in scores:
                score = dataclasses.asdict(scores[column.key]) | {"best": None}
                yield line(name, column, **score, state="trivial reference")
