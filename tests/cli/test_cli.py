"""The command line: exit codes, messages for people, what is imported, what is printed into pipes."""

import codecs
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from physml.base.errors import DataError
from physml.base.paths import ROOT, results_root, work_root
from physml.cli import console, main, table
from physml.config.compose import compose, names
from physml.config.identity import identity
from physml.data.datasets import dataset_names
from physml.data.store import Store
from physml.queue import processes, worker
from physml.records import record
from physml.report import outcome
from physml.report.table.spec import experiments_of, find_table, load_table

HEAVY = ("torch", "hydra", "omegaconf", "rich", "yaml", "numpy", "scipy", "optuna", "wandb", "matplotlib")
TINY = ("model=lem", "task=adding", "profile=smoke", "trainer.epochs=1")
SMALL = " ".join(TINY)
STOPPED = (75, "", "stopped; start the same command again to go on.\n")
Physml = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.usefixtures("own_roots")  # nothing is written elsewhere


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


PROGRAM = (sys.executable, "-m", "physml")


# Commands one after another, from those that import the least on; states of a few tables are read and kept.
HELP = [(), ("--help",), ("run", "--help"), ("--version",)]
LISTS = [("list", "models"), ("list", "experiments")]
ALL = [("table", "--all", "80"), ("table", "--all", "400")]  # and the width of the terminal
READERS = [*ALL, ("table", "lem-4", "--no-run"), ("figure", "lem-fig-4", "--no-run")]
CFG = ("run", *TINY, "--cfg")
IN_TURN = """
import contextlib, io, json, os, sys
from physml.cli import main
made = []
for arguments in json.loads(sys.argv[1]):
    if arguments[-1:] and arguments[-1].isdecimal():
        os.environ["COLUMNS"] = arguments.pop()
    if "--all" in arguments:
        from physml.report.table import spec
        spec.table_ids = lambda: ["lem-4", "lem-8", "own-rates"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            code = main.main(arguments)
        except SystemExit as end:
            code = end.code
    made.append((code, out.getvalue(), list(sys.modules)))
print(json.dumps(made))
"""


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], tuple[str, set[str]]]:
    """What these commands print, and the heavy packages that they and those before them import."""
    folder, commands = tmp_path_factory.mktemp("in-turn"), [*HELP, *LISTS, *READERS, CFG]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PHYSML_DATA", raising=False)
        for name in ("RESULTS", "RUNS", "CACHE"):
            patch.setenv(f"PHYSML_{name}", str(folder / name))
        completed = run(sys.executable, "-c", IN_TURN, json.dumps(commands))
    assert completed.returncode == 0, completed.stderr
    ends = json.loads(completed.stdout)
    assert [code for code, _, _ in ends] == [0] * len(commands)
    pairs = ((out, {name for name in HEAVY if name in modules}) for _, out, modules in ends)
    return dict(zip(commands, pairs, strict=True))


# ---------------------------------------------------------------------------- wrong commands


UNFIT = (
    "model=g2_gcn does not fit task=psmnist: it needs net.hidden, a key of net=graph and net=graphs, "
    "and the task brings net=sequence"
)
OTHER = "row A, column .*: lem/fitzhugh_nagumo-lem has the task FitzHughNagumo; that of lem-2 is EigenWorms"
WRONG = [
    ("rum", "there is no rum. Did you mean run"),
    ("--strange list", "unrecognized arguments: --strange. See physml --help"),
    ("run", "no model is chosen. Add model=NAME, or a class of your own: model._target_=.*Known: .*lem"),
    ("run model=lem", "no task is chosen. Add task=NAME, or .*Known: adding"),
    ("run model=g2_gcn task=psmnist", UNFIT),
    ("run model=g2_gcn task=texas model.p=${net.foo}", "'net.foo' not found"),
    ("run model=lem task=ading", "there is no task named ading. Did you mean adding"),
    ("run experiment=lem/fitzhugh_nagumo-lme", "no experiment named .*Did you mean lem/fitzhugh_nagumo-lem"),
    ("run experiment=./mine.yaml", "mine.yaml names no row of a study. Write it as ./study.yaml:ROW"),
    (f"run {SMALL} model.d_hiden=3", "no config key model.d_hiden. Did you mean d_hidden"),
    (f"run {SMALL} +model.d_hiden=3", "model.d_hiden: LEM has no such argument. Did you mean d_hidden"),
    (f"run {SMALL} model.dt=5 --cfg", r"^error: dt must lie in \[0, 2\]; got 5\.0\.$"),
    (f"run -m {SMALL} model.dt=1,5 --cfg", r"^error: dt must lie in \[0, 2\]; got 5\.0\.$"),
    (f"run {SMALL} seed=one", "seed must be a whole number; got 'one'"),
    (f"run -m {SMALL} seed=0,x", "seed must be a whole number; got 'x'"),
    (f"run -m {SMALL} seed=0-4", r"seed=0-4: a sweep names seeds as -m 'seed=range\(0,5\)'"),
    (f"run {SMALL} seed", "an override must be KEY=VALUE; got `seed`"),
    (f"run {SMALL} split=7", "split=7"),
    (f"run {SMALL} trainer.select.metric=mes", "no config key trainer.select.metric"),
    (f"run {SMALL} +trainer.select.metric=mes", "no metric mes. Did you mean mse"),
    ("run model=lem,lstm task=adding", "needs -m"),
    ("run model={d_hidden:3} task=adding", "Set keys of it one by one: model.KEY=VALUE"),
    (f"run {SMALL} hydra.run.dir=x", "keys of hydra itself"),
    (f"run -m {SMALL} optim.lr=interval(0,1)", "-m takes lists and ranges"),
    (f"run -m {SMALL} seed=0,1 --jobs 0", "must be a whole number from 1 on; got '0'"),
    (f"run {SMALL} --max-hours soon", "must be a positive number of hours; got 'soon'"),
    ("status --watch --every -1", "must be a positive number of seconds; got '-1'"),
    ("status --watch --every nan", "must be a positive number of seconds; got 'nan'"),
    ("doctor --shared . --wait 1e99", "must be a positive number of seconds; got '1e99'"),
    ("logs --lines 0", "must be a whole number from 1 on; got '0'"),
    ("list --measure", "--measure is for tasks: physml list tasks --measure"),
    ("list models --measure", "--measure is for tasks: physml list tasks --measure"),
    ("site --out ~nosuchuser/x", "there is no home folder for ~nosuchuser"),
    (f"run task=hf model=lstm task.name={'x' * 300}", r"'x+ \.\.\.: no file can be called so"),
    ("search sequence/recall-lem --repeat 1000000000 --plan", "must be a whole number from 1 to 100"),
    ("table lem-4 --no-run --html ~nosuchuser/x", "there is no home folder for ~nosuchuser"),
    ("table lem-4 --no-run --latex ~nosuchuser/x", "there is no home folder for ~nosuchuser"),
    ("export lem/x --out ~nosuchuser/x", "there is no home folder for ~nosuchuser"),
    ("rerun lem/fitzhugh_nagumo-lem --plugin ~nosuchuser/x", "there is no home folder for ~nosuchuser"),
    (f"run -m {SMALL} seed=range(0,0)", r"seed=range\(0,0\): it has no values"),
    (f"run {SMALL} --plam", "unrecognized arguments: --plam"),
    (f"run {SMALL} ~profile=[x] --cfg", "a config of a group is chosen by profile=NAME"),
    (f"run {SMALL} +tracker=[1,2] --cfg", "tracker"),
    ("run experiment=~nosuchuser/x.yaml", "there is no home folder for ~nosuchuser"),
    (f"run {SMALL} plugins=['~nosuchuser/a.py']", "there is no home folder for ~nosuchuser"),
    ("run experiment=\udcff.yaml", "an argument must be UTF-8 text; got 'experiment=.udcff.yaml'"),
    (f"run {SMALL} --probe", "--probe measures what --plan shows: give both"),
    ("table", "name a table, e.g. physml table lem-4"),
    ("table lem-44", "there is no table 'lem-44'. Did you mean lem-4"),
    ("table lem-4 lem-44 --no-run", "there is no table 'lem-44'. Did you mean lem-4"),
    ("figure lem-fig-4 lem-fig-44 --no-run", "there is no figure 'lem-fig-44'. Did you mean lem-fig-4"),
    ("search sequence/recall-lem sequence/recall-lme --plan", "there is no search sequence/recall-lme"),
    ("table lem-4 --seeds a,b --no-run", "seeds must look like 0,1,2, 0-4 or n5; got 'a,b'"),
    ("table lem-4 --no-run --row mine.yaml", "a row must look like label=Mine,experiment="),
    ("table lem-4 --no-run --row label=A,experiment=./a.yaml", "row A: .*a.yaml names no row of a study"),
    ("table lem-4 --no-run --row label=LEM,experiment=./a.yaml", "the row LEM appears twice"),
    ("table lem-4 --no-run --yours nothing.json", "nothing.json cannot be read: No such file"),
    ("table lem-4 --no-run --row label=A,experiment=./a.yaml:b,seed=0", "no column seed. Did you mean seeds"),
    ("table lem-4 --no-run --latex .", "error: .*: Is a directory"),
    ("table lem-4 --no-ru", "unrecognized arguments: --no-ru. Did you mean --no-run"),
    ("table lem-4 --no-run --csv", "unrecognized arguments: --csv. See physml table --help"),
    ("table lem-4 --no-run --force", "--force trains anew, and --no-run trains nothing: give one of them"),
    ("table lem-4 --no-run --seeds=", "--seeds= is empty. Is a variable of the shell not set"),
    ("table lem-4 --no-run --seeds 0-2000000", "at most 100000 seeds; got '0-2000000'"),
    ("data get", "name what to download, such as physml data get mnist, or all: physml data get all"),
    ("site --serve 99999", "a port must be a number from 0 to 65535; got '99999'"),
    ("pilot list", "pilot stands before table, figure, search, run; got list"),
    ("figure lem-fig-44", "there is no figure 'lem-fig-44'. Did you mean lem-fig-4"),
    ("list tabels", "there is no tabels. Did you mean tables"),
    ("data lst", "there is no lst. Did you mean list"),
    ("data", "required: {list,get,check}$"),
    ("data list ading", "there is no data set or task ading. Did you mean adding"),
    ("search fitzhugh", "there is no search fitzhugh"),
    ("diff a.json", "required: RECORD"),
    ("diff a.json b.json", "a.json cannot be read"),
    ("table 4 --paper corn", "there is no paper 'corn'. Did you mean cornn"),
    ("run experiment=lem-4", "lem-4 is a table: physml table lem-4"),
    ("rerun lem-4", "lem-4 is a table: physml table lem-4"),
    (f"run {SMALL} --device cpu", "unrecognized arguments: --device. .*Did you mean runtime.device=cpu"),
    (f"run {SMALL} runtime.device=gpu", "runtime.device must be auto, cpu or cuda; got 'gpu'"),
    ("run model=LEM task=adding", "there is no model named LEM. Did you mean lem?"),
    ("table LEM-4", "there is no table 'LEM-4'. Did you mean lem-4?"),
    ("table lem-fig-1", "lem-fig-1 is a figure: physml figure lem-fig-1"),
    ("failed foo", "there is no table 'foo'. All: physml list tables"),
    ("table --all lem-4", "--all lists every table: it takes no ID, --latex or --html"),
    ("table lem-4 lem-9 --no-run --latex a.tex", "one FILE holds one table: name a single ID"),
    ("compare Mine LEM --table lem-4", "Known: .*LEM, 'LEM, searched here', LSTM"),
    ("table lem-2 --plan --row label=A,experiment=lem/fitzhugh_nagumo-lem", OTHER),
]


@pytest.mark.parametrize(("command", "says"), WRONG, ids=[ascii(command) for command, _ in WRONG])
def test_a_wrong_command_is_told_what_to_do_and_leaves_nothing(physml, own_roots, command, says: str) -> None:
    code, out, err = physml(*command.split())
    assert (code, out) == (2, "") and re.search(says, err), err
    assert "Traceback" not in err and "None:" not in err
    left = {path.name for path in own_roots.rglob("*.json")}
    assert left <= {"attempts.json"}  # of a split that only the task knows
    assert re.match(r"error: |physml( \w+)?: error: ", err.strip().splitlines()[-1])


def test_a_process_ends_with_the_same_code_and_no_traceback() -> None:
    completed = run(*PROGRAM, "run", "model=lme", "task=adding")
    assert (completed.returncode, completed.stdout) == (2, "")
    assert "Did you mean" in completed.stderr and "Traceback" not in completed.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_stop_before_anything_has_begun_is_one_line(physml, monkeypatch, own_roots, number: int) -> None:
    """Configs take a second to compose, and others' code in there must not swallow the stop."""

    def compose(overrides: list[str]) -> None:
        with contextlib.suppress(Exception):
            os.kill(os.getpid(), number)
            time.sleep(30)

    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, usual)  # a shell starts what runs in the background deaf to Ctrl-C
    try:
        monkeypatch.setattr("physml.config.compose.compose", compose)
        assert physml("run", *TINY) == STOPPED
        assert signal.getsignal(number) is usual
    finally:
        signal.signal(number, before)
    assert [path.name for path in own_roots.rglob("*")] == ["cache", "native"]  # which the fixture made


# ---------------------------------------------------------------------------- what is imported


Told = dict[tuple[str, ...], tuple[str, set[str]]]


def test_the_program_alone_prints_its_help_by_purpose_and_list_alone_names_everything(physml: Physml) -> None:
    code, out, err = physml()
    assert (code, err) == (0, "") and physml("--help")[1] == out
    titles = [f"{title}:" for title in main.GROUPS]
    assert [line for line in out.splitlines() if line in titles] == titles
    assert set(re.findall(r"^  ([a-z]+)  ", out, re.MULTILINE)) >= set(main.COMMANDS)
    code, out, _ = physml("list")
    assert code == 0 and f"{len(names('model'))} models:" in out and "physml list KIND" in out
    assert {"lem", "adding", "lem-4"} <= set(re.split(r"[,\s]+", out)) and len(out.splitlines()) < 60


def test_a_row_of_a_table_in_a_pipe_is_one_line(physml: Physml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    out = physml("table", "lem-4", "--no-run", "--long")[1]
    rows = [line for line in out.splitlines() if line.startswith("LEM ")]
    assert any("0.2" in line and "±" in line for line in rows)  # printed and ours


def test_commands_import_what_they_need_alone(in_turn: Told) -> None:
    assert all(in_turn[command][1] == set() for command in HELP)
    assert all(in_turn[command][1] <= {"yaml"} for command in LISTS)
    assert not any("torch" in in_turn[command][1] for command in READERS)
    assert "torch" in in_turn[CFG][1]  # classes are looked at where keys are checked


@pytest.mark.parametrize("command", [*LISTS, ("data", "list")])
def test_a_list_has_a_line_for_each_and_long_has_more(physml, monkeypatch, command: tuple[str, ...]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    whole = physml(*command)[1]
    known = dataset_names() if "data" in command else names(command[1].removesuffix("s"))
    listed = {line.split()[0] for line in whole.splitlines()}
    assert set(known) <= listed and len(whole.splitlines()) == len(listed)
    assert any(len(line) > 80 for line in whole.splitlines())  # in a pipe nothing is cut
    assert "experiments" in command or len(physml(*command, "--long")[1]) > len(whole)


def test_a_line_is_cut_to_the_width_of_a_terminal_and_columns_are_aligned(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(console.sys.stdout, "isatty", lambda: True, raising=False)
    shown = console.one_line([("name", "word " * 40), ("b", "c")]).splitlines()
    assert len(shown) == 2 and len(shown[0]) <= 80 and shown[0].endswith("…")
    lines = [console.Line(cells) for cells in (("a", "bb"), ("ccc", "d"), ("", "e"))]
    assert console.aligned(lines).splitlines() == ["a    bb", "ccc  d", "     e"]
    first, *under = console.aligned([console.Line(("n" * 50, "word " * 20))], 80).splitlines()
    assert first == "n" * 50 and all(line.startswith("    word") and len(line) <= 80 for line in under)


# ---------------------------------------------------------------------------- run, --cfg, --plan, diff


def test_cfg_shows_a_config_whose_run_leaves_a_record_and_a_second_start_says_done(physml, own_roots) -> None:
    code, out, _ = physml("run", *TINY, "--cfg")
    config = compose(list(TINY)).config
    assert code == 0 and out.startswith(f"# identity {identity(config)}\n")
    assert yaml.safe_load(out) == config and not (own_roots / "results").exists()
    code, out, _ = physml("run", *TINY)
    (path,) = (own_roots / "results" / "runs" / "adhoc" / "adding-lem").glob(record.RUNS)
    assert code == 0 and out.startswith(f"finished: {path.relative_to(own_roots)}\n") and "mse" in out
    before = path.read_bytes()
    assert " 1 run: 1 done" in physml("status")[1]
    code, out, _ = physml("run", *TINY)
    assert code == 0 and out.startswith("finished already") and "--force trains it again" in out
    assert path.read_bytes() == before and record.read(path)["config"]["experiment"] is None


def test_diff_names_what_two_runs_differ_in(physml: Physml, own_roots: Path, monkeypatch) -> None:
    for seed in "01":
        physml("run", *TINY, f"seed={seed}", f"model.d_hidden={3 + int(seed)}")
    first, second = sorted(own_roots.rglob("*-seed?.json"), key=lambda path: path.stem[-1])
    (own_roots / "other").mkdir()
    monkeypatch.chdir(own_roots / "other")
    code, out, _ = physml("diff", first.relative_to(own_roots).as_posix(), str(second))
    assert code == 0 and "config.model.d_hidden: 3 | 4" in out and "config.seed: 0 | 1" in out
    assert physml("diff", str(first), str(first))[1] == "no difference\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [("run", "-m", *TINY, "seed=0,1"), ("table", "lem-9", "--smoke", "--seeds", "0")]
)
def test_plans_are_aligned_columns_that_nothing_is_cut_from(physml, own_roots, monkeypatch, command) -> None:
    """The steps of `run` are timed in a process of their own, as always, those of the table in this one."""

    def worker_here(arguments: list[str], *_: object) -> object:
        code = worker.main(arguments)
        return SimpleNamespace(poll=lambda: code, kill=lambda: None, wait=lambda: code)

    label, n_rows, n_runs = r"adhoc/\S+ \w{8}", 1, 2
    if command[0] == "table":
        label, n_rows, n_runs = r"lem/\S+ \w{8}", len(experiments_of(load_table(find_table("lem-9")))), 1
        monkeypatch.setattr(processes, "start_fresh", worker_here)
    code, out, _ = physml(*command, "--plan", "--probe")
    head, *rows, total = out.strip().splitlines()
    assert re.split("  +", head) == ["setting", "to do", "ms/step", "core-h each", "all", "state"]
    assert code == 0 and len(rows) == n_rows and total.startswith(f"{n_rows * n_runs} runs")
    assert "no run was started here" in physml("status")[1]
    for row in rows:
        assert re.match(rf"{label} +{n_runs} of {n_runs}( +\S+){{3}} +missing$", row)
        assert row[head.index("state") :] == "missing"
    assert re.match(r"(\d+) runs, \1 to do: \d+\.\d\d core-hours$", total)
    assert not list((own_roots / "results").rglob("*.json"))


def test_a_plan_for_a_gpu_says_so_and_none_measures_unasked_or_needs_a_work_folder(physml, monkeypatch):
    _, out, _ = physml("run", "model=lem", "task=adding", "profile=smoke", "runtime.device=cuda", "--plan")
    head, *_, total = out.strip().splitlines()
    assert "GPU-h each" in head and total.startswith("1 run, 1 to do: ")
    monkeypatch.setattr("physml.queue.planning.start_worker", pytest.fail)
    code, out, _ = physml("run", "-m", *TINY, "seed=0,1", "--plan")
    assert code == 0 and "\n2 runs, 2 to do: 2 of unknown time (--plan --probe measures)" in out
    monkeypatch.setenv("PHYSML_RUNS", f"{os.devnull}/x")
    code, out, _ = physml("table", "lem-4", "--plan", "--seeds", "77")
    assert code == 0 and "lem/fitzhugh_nagumo-lem " in out


def test_a_plan_counts_settings_that_are_done_and_has_the_cost_of_those_whose_data_are_missing(
    physml: Physml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PHYSML_DATA", raising=False)
    out = "All runs of 9 settings are done.\n90 runs, 0 to do: 0.00 core-hours\n"
    assert physml("table", "lem-4", "--plan") == (0, out, "")
    code, out, _ = physml("table", "lem-1", "--plan")
    assert code == 0 and re.search(r"^lem/smnist-lem +0 of 3 +\d+\.\d +\d\S* +blocked$", out, re.M)
    assert re.search(r"^lem/smnist-lem-official +0 of 3 +\d+\.\d +\d\S* +\d done, \d blocked$", out, re.M)


@pytest.mark.parametrize("root", ["RESULTS", "RUNS", "CACHE", "DATA"])
def test_a_root_in_no_home_is_refused(root: str, physml: Physml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"PHYSML_{root}", "~nosuchuser/x")
    assert physml("run", *TINY) == (2, "", "error: ~nosuchuser/x: there is no home folder for ~nosuchuser.\n")


def test_a_terminal_that_knows_ascii_alone_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    for encoding in ("ascii", "utf-8"):
        monkeypatch.setenv("PYTHONIOENCODING", encoding)
        completed = run(*PROGRAM, "list", "tables")
        assert (completed.returncode, completed.stderr) == (0, "")
        shown.append(completed.stdout)
    assert shown[0].isascii() and not shown[1].isascii()
    assert len(shown[0].splitlines()) == len(shown[1].splitlines())


def test_in_ascii_a_table_keeps_its_columns_and_every_outcome_its_sign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    text = run(*PROGRAM, "table", "lem-4", "--no-run").stdout
    assert re.search(r"\nLEM +\|0.2 +\|0.290 \+-0.057 \|~ cannot be told apart\n", text) and "\\u" not in text
    codecs.register_error("physml", console._substitute)
    cell = "G²-GCN…  0.5 ± 0.1 △ × Jürgen, Δ α"
    assert cell.encode("ascii", "physml").decode() == "G2-GCN.  0.5 +-0.1 > x Jurgen, Delta alpha"
    signs = [known.sign.encode("ascii", "physml").decode() for known in outcome.ALL]
    assert len(set(signs)) == len(outcome.ALL) and set(map(len, signs)) == {1}


GET = "To get one: physml data get NAME"


def test_data_list_is_whole_in_a_pipe(physml: Physml, monkeypatch: pytest.MonkeyPatch) -> None:
    key = {"data_seed": 1234, "sizes": {"train": 2, "test": 1}}
    monkeypatch.delenv("PHYSML_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "110")
    Store.from_env().generated("fitzhugh_nagumo", key, 1, lambda: {"a": np.ones(3)})
    code, out, _ = physml("data", "list", "--long")
    kept = r" present \S+ KiB (\S+\.npz): generated, data_seed 1234, sizes test 1 train 2"
    assert code == 0 and re.search(rf"{kept} at cache/generated/\1 ", " ".join(out.split()))
    for start in ("adding\n", "fitzhugh_nagumo\n", "lorenz96\n", "mnist, licence: CC BY-SA 3.0\n"):
        assert f"\n{start}" in out
    assert re.search(r"\n  absent +9\.5 MiB  MNIST/raw/train-images-idx3-ubyte\.gz: training images\n", out)
    here = f"0 of {len(dataset_names())} data sets at hand. {GET}\n"
    assert out.endswith(f"{here}PHYSML_DATA, a folder of files that you have already, is not set.\n")


@pytest.mark.parametrize("action", ["list", "check"])
def test_data_list_and_check_fit_a_terminal_and_tell_of_a_wrong_root(physml, own_roots, monkeypatch, action):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PHYSML_DATA", str(own_roots / "nowhere"))
    code, out, _ = physml("data", action, "mnist", "uci_har", "imdb")
    *lines, root, hint = out.splitlines()
    assert code == (2 if action == "check" else 0) and max(map(len, lines)) <= 80
    assert root == f"0 of 3 data sets at hand. {GET}"
    assert hint == f"PHYSML_DATA={own_roots / 'nowhere'} is not there."


@pytest.mark.parametrize("arguments", [("table", "lem-4", "--write"), ("figure", "cornn-fig-5")])
def test_results_that_cannot_be_written_are_said(physml, monkeypatch, tmp_path, arguments) -> None:
    (tmp_path / "a file").touch()
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path / "a file"))
    code, _, err = physml(*arguments, "--no-run")
    says = r"cannot be written: Not a directory\. .*set PHYSML_RESULTS to another folder"
    assert code == 2 and re.search(says, err)


def test_a_figure_of_other_seeds_replaces_no_result_and_missing_or_damaged_runs_are_said(physml) -> None:
    code, out, _ = physml("figure", "lem-fig-4", "--seeds", "0", "--no-run", "--formats", "csv")
    (path,) = re.findall(r"written: (\S+)", out)
    assert code == 0 and Path(path).resolve() == (work_root() / "figures" / "lem-fig-4.csv").resolve()
    code, out, _ = physml("figure", "lem-fig-2", "--no-run")
    assert code == 0 and "no picture is written" in out and "written: " not in out
    assert re.search("no run was started here. .*physml status lem-4", physml("status")[1])
    (recorded,) = record.records("lem/fitzhugh_nagumo-lem-dt2")
    path = results_root() / "runs" / "lem" / "fitzhugh_nagumo-lem-dt2" / Path(recorded["path"]).name
    path.parent.mkdir(parents=True)
    path.write_text("{")
    code, out, err = physml("figure", "lem-fig-4", "--no-run", "--formats", "csv")
    assert code == 2 and "1/1, complete" in out and f"{path.name} is damaged" in err


@pytest.mark.parametrize(("command", "between"), [(ALL[0], r".*\n +"), (ALL[1], r".* ")])
def test_tables_are_listed_with_their_state(in_turn: Told, command: tuple[str, ...], between: str) -> None:
    out, _ = in_turn[command]
    assert max(map(len, out.splitlines())) <= int(command[-1])
    assert re.search(rf"^lem-4 +Test error on FitzHugh-Nagumo{between}\d+/\d+ runs", out, re.M)
    assert re.search(r"^own-rates +Test RMSE[\s\S]+? \d+/\d+ runs; .*\d+ blocked", out, re.M)


# ---------------------------------------------------------------------------- ends that are no answers


@pytest.mark.parametrize("arguments", [("--help",), ("table", "lem-4", "--no-run")])
def test_a_reader_that_has_seen_enough_is_no_error(arguments: tuple[str, ...]) -> None:
    command = f"{sys.executable} -u -m physml {' '.join(arguments)} | head -1; exit ${{PIPESTATUS[0]}}"
    completed = run("bash", "-c", command)
    assert (completed.returncode, completed.stderr, completed.stdout.count("\n")) == (0, "", 1)


AT_A_STOP = AttributeError("half made")  # a signal within an import, where the clean-up of a library fails
AT_A_STOP.__context__ = KeyboardInterrupt()


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (DataError("the file is gone."), (2, "", "error: the file is gone.\n")),
        (OSError(28, "No space left on device", "x"), (2, "", "error: x: No space left on device.\n")),
        (KeyboardInterrupt(), STOPPED),
        (AT_A_STOP, STOPPED),
        (KeyError("a bug"), None),
    ],
)
def test_errors_become_one_line_and_a_code_and_a_bug_is_not_hidden(physml, monkeypatch, error, end) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr("physml.records.record.read", fail)
    if end is None:
        with pytest.raises(KeyError):
            physml("diff", "a.json", "b.json")
    else:
        assert physml("diff", "a.json", "b.json") == end


def test_a_run_that_fails_ends_with_one(physml: Physml, own_roots: Path) -> None:
    (own_roots / "failing_rnn.py").write_text(
        "from torch import nn\n\n\nclass Failing(nn.Module):\n"
        "    def __init__(self, d_in: int, d_hidden: int):\n        super().__init__()\n"
        "        self.d_in, self.d_out = d_in, d_hidden\n        self.line = nn.Linear(d_in, d_hidden)\n\n"
        "    def forward(self, u, state=None):\n        raise RuntimeError('no idea')\n"
    )
    target = ("plugins=[failing_rnn.py]", "model=own", "model._target_=failing_rnn.Failing")
    code, out, _ = physml("run", *target, "task=adding", "profile=smoke")
    assert code == 1 and out.startswith("failed: ") and "reason: RuntimeError: no idea" in out
    code, out, _ = physml("failed")
    (log,) = re.findall("output in (.*)", out)
    assert code == 1 and "no idea" in out and "no idea" in Path(log).read_text()
    assert "1 run: 1 failed" in physml("status")[1] and "no idea" in physml("logs")[1]


def test_a_smoke_table_ends_with_its_rows_and_failures() -> None:
    spec = load_table(find_table("lem-4"))
    every, rows = set(experiments_of(spec)), len(spec.rows)
    assert table._smoke_end(spec, every) == f"ok: {rows} rows, 0 failed"
    lacking = table._smoke_end(spec, every - {"lem/fitzhugh_nagumo-lem"})
    assert lacking == f"{rows} rows, 1 without a finished run: LEM"
