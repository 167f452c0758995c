"""A table of settings in words."""

from physml.report.outcome import DIFFERS, NO_VERDICT, outcome_of
from physml.report.table.settings import SettingResult, SettingsTable
from physml.report.text.document import NONE, Document, Grid, Lines, blocks

RULE = (
    "`same`: ours is the printed one; `rounded`: it is so to the printed digits. `inside`, `outside`: a "
    "number beside a printed range. `differs` says why."
)
CODE = "`code`: what the official code has, where it differs or the paper's cell cannot be read."
CSV_HEADS = ("table", "row", "column", "printed", "code", "ours", "state", "where")


def document(table: SettingsTable) -> Document:
    """First the settings that differ, or that say nothing of a printed one; all of them below."""
    spec = table.spec
    code = any(cell.code is not None for cell in table.cells)
    heads = ("row", "setting", "printed", *(("code",) if code else ()), "ours", "state", "read from")
    cells = [(cell, outcome_of(cell.state)) for cell in table.cells]
    lines = tuple(_line(heads, cell) for cell, _ in cells)
    odd = tuple(
        line for line, (_, outcome) in zip(lines, cells, strict=True) if outcome in (DIFFERS, NO_VERDICT)
    )
    short = Grid(heads, odd, f"{len(odd)} of {len(cells)} settings differ").without([len(heads) - 1])
    facts = [*([CODE] if code else []), *([f"Claim: {spec.claim}"] if spec.claim else [])]
    return Document(
        id=spec.id,
        title=spec.title,
        first=blocks(
            Lines((spec.source,), look="soft"),
            Lines((f"{table.state}.",), look="strong"),
            *([short] if len(odd) < len(cells) else []),
            Lines(("Ours are read from the experiments and searches themselves.",)),
        ),
        long=blocks(
            Grid(heads, lines, "All settings", tuple(outcome for _, outcome in cells)),
            Lines((*facts, *(f"Note: {note}" for note in spec.notes)), look="items"),
        ),
        rules=(Lines((RULE,), look="items"),),
        more={"--long": "all settings, notes", "--rules": "the words"},
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
