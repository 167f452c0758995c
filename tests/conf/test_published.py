"""Published numbers in conf/table against the collection of the papers' tables."""

from typing import Any

import pytest
from collections_of_papers import paper_tables
from each import each

from physml.base.paths import CONF
from physml.config import studies
from physml.report.table.settings import compare, load_settings
from physml.report.table.spec import Row, TableSpec, load_table, table_ids

# Column of ours -> column of the collection, where a table has several with published numbers.
COLUMNS = {
    "f09": "F=0.9",
    "f8": "F=8",
    **{f"white_{n}_{d}": f"white_{n}.{d}" for n, d in ((0, 1), (0, 2), (0, 3), (0, 4), (0, 8), (1, 2))},
    **{f"sp_0_{d}": f"sp_0.{d}" for d in ("03", "05", "1")},
    **{f"mult_{n}_{d}": f"mult_{n}.{d}" for n, d in ((0, 4), (0, 8), (1, 2))},
}

# How a row of a table over tasks calls its task.
TASKS = {"smnist": "sMNIST", "psmnist": "psMNIST", "har2": "HAR-2", "imdb": "IMDB"}
TASKS |= {"noise_padded_cifar10": "noise padded CIFAR-10"}


def every_spec() -> list[TableSpec]:
    return [load_table(CONF / "table" / f"{ident}.yaml") for ident in table_ids(kind="runs")]


def specs() -> list[TableSpec]:
    """Of the papers in the collection; a table of our own says so, and later models are not in it."""
    return [spec for spec in every_spec() if spec.source != "own" and not spec.id.startswith("later-")]


def test_the_papers_are_cited_not_files_and_a_table_of_our_own_has_no_published_number() -> None:
    for spec in every_spec():
        if spec.source == "own":
            assert not of_the_paper(spec) and spec.id.startswith("own-")
    for path in (CONF / "table").glob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        assert ".txt" not in text and "/work" not in text


def of_the_paper(spec: TableSpec) -> list[Row]:
    """Rows with something printed; what is added for comparison has neither parameters nor a number."""
    return [r for r in spec.rows if r.params is not None or any(c.published for c in r.cells.values())]


def printed_rows(entry: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By our labels: where a model stands twice, it is told by what differs."""
    names = [row["model"] for row in entry["rows"]]
    return {
        row["model"] if names.count(row["model"]) == 1 else f"{row['model']}, {told_by(row['config'])}": row
        for row in entry["rows"]
        if not all(value.get("missing") for value in row["values"].values())
    }


def told_by(config: dict[str, Any]) -> str:
    """By the task, by the initialisation and what was tuned, where these are printed; else by the units."""
    if config.get("task") in TASKS:
        return TASKS[config["task"]] + (f", {config['units']} units" if "units" in config else "")
    if "chrono" not in config:
        return f"{config['units']} units"
    tuned = "" if config["tuning_dt"] == "/" else f", tuned Δt {config['tuning_dt']}"
    return f"chrono {config['chrono']}{tuned}"


def printed_column(key: str, entry: dict[str, Any]) -> str:
    name = COLUMNS.get(key, key)
    return name if name in entry["columns"] else entry["columns"][0]


def of_config(row: dict[str, Any], what: str, column: str) -> Any:
    """Units, params or layers: of the row, or of one of its data sets, as in mnist_units."""
    config = row.get("config", {})
    own = (value for key, value in config.items() if key.endswith(f"_{what}") and key.split("_")[0] in column)
    return config[what] if what in config else next(own, None)


@each("spec", specs)
def test_every_published_number_and_unit_is_as_printed_and_has_its_digits(spec: TableSpec) -> None:
    entry = paper_tables()[spec.id]
    printed = printed_rows(entry)
    assert [row.label for row in of_the_paper(spec)] == list(printed)
    n_printed = 0
    for row in of_the_paper(spec):
        values = printed[row.label]["values"]
        for column in spec.columns:
            cell = spec.cell(row, column)
            if cell.published is None:
                continue
            n_printed += 1
            assert cell.published.digits is not None or cell.published.quoted is not None
            name = printed_column(column.key, entry)
            scale = column.scale if entry["unit"] != column.unit else 1.0
            assert cell.published.value == pytest.approx(values[name]["value"] * scale, rel=1e-12)
            sd = None if cell.published.sd is None else cell.published.sd / scale
            assert sd == pytest.approx(values[name]["std"], rel=1e-12) if sd else values[name]["std"] is None
            params = of_config(printed[row.label], "params", name)
            assert cell.params == (None if params is None else str(params))
    assert n_printed == entry["completeness"]["cells"] - entry["completeness"]["missing"]
    printed = printed_rows(paper_tables()[spec.id])
    for row in of_the_paper(spec):
        for column in spec.columns:
            experiment = spec.cell(row, column).experiment
            if experiment is None:
                continue
            model = studies.experiment(experiment).settings.get("model", {})
            name = printed_column(column.key, paper_tables()[spec.id])
            for key, what in (("d_hidden", "units"), ("n_layers", "layers")):
                size = of_config(printed[row.label], what, name)
                as_printed = model.get(key, 1) == size or size is None
                assert as_printed != ((spec.id, row.label) in NOT_AS_PRINTED and key == "d_hidden")


# Units that contradict the parameters printed beside them, which count.
NOT_AS_PRINTED = {("lem-6", "nnRNN (Kerg et al., 2019)")}


@pytest.mark.parametrize(
    "spec", [s for s in specs() if s.id in ("cornn-5", "unicornn-7")], ids=lambda s: s.id
)
def test_a_row_of_a_table_over_tasks_runs_its_task(spec: TableSpec) -> None:
    for row in spec.rows:
        (cell,) = row.cells.values()
        model, task, *units = row.label.split(", ")
        id = {"noise padded CIFAR-10": "ncifar"}.get(task, task.lower().replace("-", ""))
        size = units[0].removesuffix(" units") if units and task.endswith("MNIST") else ""
        paper = model.lower()
        assert cell.experiment == f"{paper}/{id}-{paper}{size}"


# ---------------------------------------------------------------------------- tables of settings

# How the collection calls what a row's label ends with.
SETTINGS_OF = {
    **{name: key for key, name in TASKS.items()},
    **{"adding": "adding", "adding, T=5000": "adding (T=5000)", "adding, N=10000": "adding (N=10000)"},
    **{f"{k}MNIST, {n} units": f"{k}mnist ({n} units)" for k in ("s", "ps") for n in (128, 256)},
    **{"EigenWorms": "eigenworms", "respiratory rate": "bidmc_rr", "heart rate": "bidmc_hr"},
    **{"FitzHugh-Nagumo": "fitzhugh_nagumo", "Google12": "google12"},
    **{"Penn Treebank by character": "ptb_char", "Penn Treebank by word": "ptb_word"},
    **{"MNIST superpixels": "mnist_superpixel75", "ZINC-12k": "zinc12k", "PPI": "ppi"},
    **{"Wisconsin": "wisconsin", "Squirrel, regression": "squirrel_regression"},
}


@pytest.mark.parametrize("ident", table_ids(kind="settings"))
def test_every_printed_setting_is_as_printed(ident: str) -> None:
    spec, entry = load_settings(CONF / "table" / f"{ident}.yaml"), paper_tables()[ident]
    assert [c.key for c in spec.columns] == entry["columns"]
    assert list(spec.aliases) == entry["also"]
    labels = [row.label.partition(", ") for row in spec.rows]
    assert [(model, SETTINGS_OF[task] if task else None) for model, _, task in labels] == [
        (row["model"], row.get("config", {}).get("task")) for row in entry["rows"]
    ]
    printed = 0
    for row, collected in zip(spec.rows, entry["rows"], strict=True):
        for column in spec.columns:
            cell, value = spec.cell(row, column), collected["values"][column.key]
            beside = next(iter(value.get("alt") or []), None) or value.get("hint")
            assert (cell.code is None) == (beside is None), (row.label, column.key)
            if beside is not None and cell.code is not None:
                assert compare(cell.code, str(beside["value"])) == "same"
            assert (cell.printed is None) == bool(value.get("missing")), (row.label, column.key)
            if cell.printed is not None:
                printed += 1
                assert compare(cell.printed, str(value["value"])) == "same"
    assert printed == entry["completeness"]["cells"] - entry["completeness"]["missing"]
