"""The table for a paper: chosen rows and columns, the best in bold."""

import re
from dataclasses import replace
from typing import Any

from made_records import finished, ids
from refusals import refuses

from physml.base.errors import ConfigError
from physml.config.load import structure
from physml.report.table.collect import Table, collect
from physml.report.table.latex import latex_table
from physml.report.table.spec import TableSpec

VALUES = {"t/a": (0.5, 0.6, 0.7), "t/b": (0.7, 0.8, 0.9)}


def table(**changes: Any) -> Table:
    printed = {"value": 80.1, "sd": 1.0, "digits": 1, "statistic": "mean", "n": 3}
    rows: list[dict[str, Any]] = [
        {"label": "A_1", "experiment": "t/a", "cells": {"acc": {"published": printed}}},
        {"label": "B", "experiment": "t/b", "cells": {"acc": {"published": printed | {"value": 75.0}}}},
        {"label": "C", "cells": {}},
    ]
    column = {"metric": "test/acc", "scale": 100, "unit": "%", "protocol": "clean"}
    high = column | {"key": "acc", "better": "higher"}
    low = column | {"key": "low", "label": "the same, lower", "better": "lower"}
    content = {"id": "own", "title": "Own", "source": "me", "columns": [high, low], "seeds": [0, 1, 2]}
    spec = structure(TableSpec, content | {"rows": rows}, "own.yaml")
    records: list[Any] = [
        finished(name, seed, test={"acc": value}, protocol="clean", **(changes if name == "t/b" else {}))
        for name, values in VALUES.items()
        for seed, value in enumerate(values)
    ]
    return collect(spec, ids(*VALUES), records)


def body(text: str) -> list[str]:
    return re.findall(r"^(?!.*(?:multicolumn|Model)).* & .*$", text, re.MULTILINE)


def test_rows_and_columns_are_chosen_and_keep_their_order() -> None:
    text = latex_table(table(), ["B", "A*"], ["acc"], ["ours", "runs"])
    assert body(text) == [r"B & 80.0 $\pm$ 10.0 & 3/3 \\", r"A\_1 & 60.0 $\pm$ 10.0 & 3/3 \\"]
    assert r"\cmidrule(lr){2-3}" in text and r"\begin{tabular}{lrr}" in text
    assert "over 3 runs" in text and text.count(r"\toprule") == text.count(r"\bottomrule") == 1
    cells = (replace(c, summary=replace(c.summary, n=2)) if c.row == "B" else c for c in table().cells)
    uneven = replace(table(), cells=tuple(cells))
    assert "over 2 to 3 runs" in latex_table(uneven) and "over 2 runs" in latex_table(uneven, ["B"])
    single = latex_table(table(), ["B"], ["acc"], ["published"])
    assert "cmidrule" not in single and r"Model & acc [\%] \\" in single and "Ours" not in single


def test_the_best_of_each_column_is_bold_and_what_is_not_comparable_is_left_out() -> None:
    lines = body(latex_table(table(), bold_best=True))
    assert lines == [
        r"A\_1 & \textbf{80.1} $\pm$ 1.0 & 60.0 $\pm$ 10.0 & -- & \textbf{60.0} $\pm$ 10.0 \\",
        r"B & 75.0 $\pm$ 1.0 & \textbf{80.0} $\pm$ 10.0 & -- & 80.0 $\pm$ 10.0 \\",
    ]
    assert not any(line.startswith("C &") for line in body(latex_table(table())))
    close = (
        replace(c, summary=c.summary and replace(c.summary, mean=80.0 + 0.01 * i))
        for i, c in enumerate(table().cells)
    )
    lines = body(
        latex_table(replace(table(), cells=tuple(close)), columns=["acc"], show=["ours"], bold_best=True)
    )
    assert [line.count("textbf{80.0}") for line in lines] == [1, 1]
    assert body(latex_table(table(), ["C"], ["acc"])) == [r"C & -- & -- \\"]
    lines = body(latex_table(table(short="an hour"), bold_best=True))
    assert lines[0].split(" & ")[2] == r"\textbf{60.0} $\pm$ 10.0"
    assert lines[1] == r"B & 75.0 $\pm$ 1.0 & -- & -- & 80.0 $\pm$ 10.0 \\"


def test_a_wrong_name_gets_near_ones() -> None:
    changes: dict[str, Any] = {
        "own: there is no row 'D'": {"rows": ["D"]},
        "own: there is no 'ac' to show. Did you mean acc": {"columns": ["ac"]},
        "own: there is no 'our' to show. Did you mean ours": {"show": ["our"]},
    }
    for message, change in changes.items():
        refuses(ConfigError, message, latex_table, table(), **change)
