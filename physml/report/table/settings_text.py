"""A table of settings in words."""

from physml.report.table.settings import SettingResult, SettingsTable
from physml.report.text.document import NONE, Document, Grid

RULE = (
    "`same`: ours is the printed one; `rounded`: it is so to the printed digits. `inside`, `outside`: a "
    "number beside a printed range. `differs` says why. Ours are read from the experiments and searches "
    "themselves."
)
CODE = "`code`: what the official code has, where it differs or the paper's cell cannot be read."
CSV_HEADS = ("table", "row", "column", "printed", "code", "ours", "state", "where")


def document(table: SettingsTable) -> Document:
    spec = table.spec
    code = any(cell.code is not None for cell in table.cells)
    heads = ("row", "setting", "printed", *(("code",) if code else ()), "ours", "state", "read from")
    lines = (_line(heads, cell) for cell in table.cells)
    return Document(
        id=spec.id,
        title=spec.title,
        heads=heads,
        grids=(Grid(tuple(lines), tuple(cell.state for cell in table.cells)),),
        facts=(
            f"Source: {spec.source}",
            f"State: {table.state}",
            f"Verdicts: {RULE}",
            *([CODE] if code else []),
            *([f"Claim: {spec.claim}"] if spec.claim else []),
            *(f"Note: {note}" for note in spec.notes),
        ),
        values=(CSV_HEADS, *(_values(spec.id, cell) for cell in table.cells)),
    )


def _line(heads: tuple[str, ...], cell: SettingResult) -> tuple[str, ...]:
    texts = {
        "row": cell.row, "setting": cell.column.title, "printed": cell.printed, "code": cell.code,
        "ours": cell.ours, "state": str(cell.state), "read from": cell.where,
    }  # fmt: skip
    return tuple(texts[head] or NONE for head in heads)


def _values(ident: str, cell: SettingResult) -> tuple[object, ...]:
    where = (ident, cell.row, cell.column.key)
    return (*where, cell.printed, cell.code, cell.ours, cell.state, cell.where)
