"""One hostile label through every output: nothing of it acts on a terminal, a page, a sheet or a paper."""

import csv
import io
import re
import subprocess
import sys

import pytest
from rich.console import Console

from physml.base.errors import DataError, suggest
from physml.base.text import csv_cell, plain, shown, tex
from physml.report.outcome import State, outcome_of
from physml.report.text.document import Cell, Document, Grid, Lines, comma_separated, markdown
from physml.report.text.screen import Screen
from physml.run.trackers.registry import SERVICES

LABEL = "=cmd|' /C calc'!A0\x1b[2J\x1b]0;x\x07\u202egpj.exe\x9b31m<img src=x onerror=alert(1)>$x[*"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


@pytest.fixture
def document() -> Document:
    lines = ((LABEL, Cell("1.0", outcome_of(State("agrees")))), (Cell(LABEL, bold=True), LABEL))
    grid = Grid(("model", LABEL), lines, LABEL, folded=((0, 1),))
    said = tuple(Lines((LABEL,), LABEL, look) for look in ("", "items", "strong"))
    return Document(
        "mine-1", LABEL, (grid, *said), (grid,), said, {"--long": LABEL}, ((LABEL, 1.0), (None, 2))
    )


def test_files_of_tables_have_no_control_characters(document: Document) -> None:
    assert "<img" not in markdown(document).replace("\\<", "")
    for text in (markdown(document), comma_separated(document)):
        assert not CONTROL.search(text)
    first, second = csv.reader(io.StringIO(comma_separated(document)))
    assert first[0].startswith("'=cmd") and second == ["NA", "2"]


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("width", [40, 400])
def test_a_terminal_gets_none_either(document: Document, width: int, long: bool) -> None:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=True, color_system=None).print(Screen(document, long, long))
    assert not CONTROL.search(out.getvalue())


def test_a_printed_line_is_plain() -> None:
    code = (
        "import sys; from physml.cli.console import write_what_the_terminal_can as f; f(); f(); "
        f"print({LABEL!r}); print({LABEL!r}, file=sys.stderr); "
        "from rich.console import Console; from physml.base.text import terminal; "
        "Console(file=terminal(sys.stdout), force_terminal=True).print('[bold]x[/bold]'); print('end')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second, last = done.stdout.splitlines()
    assert first == plain(LABEL) and not CONTROL.search(first + done.stderr)
    assert second == "\x1b[1mx\x1b[0m" and last == "end"


@pytest.mark.parametrize(
    "words",
    [["run", "--on", "split={url}"], ["table", "{url}"], ["{url}"], ["search", "x", "--jobs", "{url}"]],
)
def test_a_password_in_a_wrong_place_is_not_repeated(words: list[str]) -> None:
    typed = [word.format(url="postgres://ana:S3CRET@host/base") for word in words]
    done = subprocess.run([sys.executable, "-m", "physml", *typed], capture_output=True, text=True)
    assert done.returncode == 2 and "***@host/base" in done.stderr
    assert "S3CRET" not in done.stdout + done.stderr


def test_text_is_no_formula_or_argument_and_numbers_and_words_stay() -> None:
    for text in ("=1", "+1+2", "-1-2", "@x", "\tx"):
        assert csv_cell(text) == f"'{text}"
    for value in ("-1.5", "+3", "1e-3", -2.0, None, "a=b", "–"):
        assert csv_cell(value) == value
    assert all(tex(text).startswith("{}") for text in ("[3pt] x", "*", " [a]"))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ana:S3CRET@host/base",
        "postgresql:/ana:S3CRET@host/base",
        "https://host/x?password=S3CRET&a=1",
        "mysql:/host/x?password=S3CRET",
        "https://ana:p@S3CRET@host/x",
        "mysql+x://S3CRET@host",
    ],
)
def test_an_address_is_shown_without_its_password(url: str) -> None:
    message = shown(f"cannot reach {url}: timed out")
    assert "S3CRET" not in message and "host" in message and message.endswith("timed out")


@pytest.mark.parametrize("url", ["https://api.wandb.ai", "sqlite:////home/a/mlflow.db", "me@host"])
def test_an_address_without_secrets_stays(url: str) -> None:
    assert shown(url) == url


@pytest.mark.parametrize(
    ("variable", "kind"), [("MLFLOW_TRACKING_URI", "mlflow"), ("WANDB_BASE_URL", "wandb")]
)
def test_a_tracker_says_no_password(variable: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "https://ana:S3CRET@host/x")
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    assert SERVICES[kind].address() == "https://***@host/x"


def test_a_long_word_is_cut_in_a_message_and_a_key_that_is_no_text_has_near_names() -> None:
    said = str(DataError(f"x.txt: {'9' * 3000} is no word. Get it again."))
    assert len(said) < 300 and said.endswith("999... is no word. Get it again.")
    assert suggest(1, ["seed"]) == "Known: seed." and suggest(None, ["none"]).startswith("Did you mean")
