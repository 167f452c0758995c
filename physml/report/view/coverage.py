"""How much of a table was trained."""

from dataclasses import dataclass
from functools import cached_property

from physml import __version__
from physml.report.outcome import SHORT_BUDGET
from physml.report.stats.summary import N_FOR_VERDICT
from physml.report.table.collect import CellResult, Table
from physml.report.table.fact_text import hours_text, rest_text
from physml.report.view.finding import printed_cells


@dataclass(frozen=True)
class Coverage:
    """How many printed cells were trained, with how many runs; of a table of our own all of its cells."""

    table: Table

    @cached_property
    def cells(self) -> list[CellResult]:
        own = [cell for cell in self.table.cells if cell.wanted]
        return own if self.table.own else printed_cells(self.table)

    @cached_property
    def trained(self) -> list[CellResult]:
        """Cells with a number that is not of a short budget; a table of our own has no other budget."""
        return [cell for cell in self.cells if cell.summary and (self.table.own or not is_short(cell))]

    @property
    def enough(self) -> int:
        return sum(cell.summary.n >= N_FOR_VERDICT for cell in self.trained if cell.summary)

    def text(self) -> str:
        """`2 of 6 printed cells trained, n = 10; 1.4 core-hours, about 2.8 more to complete`."""
        kind = "cells" if self.table.own else "printed cells"
        text = f"{len(self.trained)} of {len(self.cells)} {kind} trained"
        counts = {cell.summary.n for cell in self.trained if cell.summary}
        if len(counts) == 1:
            text += f", n = {counts.pop()}"
        elif counts:
            text += f", n = {min(counts)} to {max(counts)}"
            if self.enough < len(self.trained):
                text += f" (at least {N_FOR_VERDICT} in {self.enough})"
        facts = self.table.facts
        text += f"; {hours_text(facts)}" if facts.hours else ""
        if left := rest_text(self.table.rest):
            text += f", {left} more" if facts.hours else f"; {left} core-hours"
            text += " to complete"
        if facts.shipped:
            some = "" if facts.shipped == facts.runs else f"{facts.shipped} of {facts.runs} runs "
            text += f"; {some}recorded by physml {__version__}"
        return text


def is_short(cell: CellResult) -> bool:
    return cell.state.word == "not comparable" and cell.state.reason == SHORT_BUDGET
