"""From a folder that is not the repository: a model of one's own, as a run and as a row; rows that break."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import run_child
import run_harness
from configs import write
from made_records import finished

from physml.base.paths import ROOT
from physml.cli import main
from physml.config.compose import Composed, compose
from physml.queue import requested as requested_runs
from physml.records import record
from physml.records.schema import Record
from physml.report.table.spec import experiments_of, find_table, load_table
from physml.run.spec import spec_of
from scripts import readme_commands

# The example of the how-to, in tiny sizes too.
SHOWN = readme_commands.files((ROOT / "docs" / "add-a-model.md").read_text(encoding="utf-8"))
MY_RNN = SHOWN["my_rnn.py"]
MINE = SHOWN["mine.yaml"].replace("leak: 0.2", "leak: 0.2, smoke: {d_hidden: 3}")
ROW = "label=Mine,experiment=./mine.yaml:rnn"
TABLE = ("table", "lem-4", "--long", "--smoke", "--seeds", "0", "--row", ROW)
Physml = Callable[..., tuple[int, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "elsewhere" / "my_rnn.py", MY_RNN)
    return write(tmp_path / "elsewhere" / "mine.yaml", MINE).parent


@pytest.fixture
def physml(folder: Path, inside: Path, tmp_path: Path) -> Physml:
    """A command in that folder, as a process of its own, a fork; exit code, output and errors."""

    def call(*arguments: str) -> tuple[int, str]:
        output = tmp_path / "output"
        output.unlink(missing_ok=True)
        process = run_harness.Started(run_child.elsewhere, [str(folder), *arguments], output)
        return process.wait(), process.text()

    return call


@pytest.fixture
def inside(own_roots: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "220")
    return own_roots / "results"


def records(folder: Path) -> list[Record]:
    return [record.read(path) for path in sorted(folder.rglob(record.RUNS))]


def row_of(out: str, label: str) -> str:
    """The row in the first of all columns, which `--long` shows."""
    whole = out[out.index(", protocol ") :]
    return next(line for line in whole.splitlines() if line.startswith(f"{label} "))


@pytest.mark.slow
def test_a_plugin_is_run_and_becomes_a_row_and_an_edit_makes_another_setting(physml, folder, inside) -> None:
    runs = inside / "runs"
    target = ("plugins=[my_rnn.py]", "model._target_=my_rnn.MyRNN", "task=fitzhugh_nagumo", "profile=smoke")
    command = [sys.executable, "-m", "physml", "run", *target, "model.d_hidden=3", "+model.leak=0.2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    completed = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    (record,) = records(runs / "adhoc" / "fitzhugh_nagumo-myrnn")
    assert record["config"]["model"] == {"_target_": "my_rnn.MyRNN", "d_hidden": 3, "leak": 0.2}
    assert record["config"]["plugins"] == ["my_rnn.py"]
    code, said = physml(*TABLE)
    assert code == 0, said
    assert re.search(r"none printed +\d+\.\d", row_of(said, "Mine"))
    assert "missing" in row_of(said, "LEM"), "a row of the paper is not trained for a row of one's own"
    smoke = inside / "smoke" / "runs"
    (mine,) = records(smoke / "adhoc" / "mine-rnn")
    assert (mine["status"], mine["experiment"]) == ("finished", "./mine.yaml:rnn")
    assert mine["config"]["model"]["d_hidden"] == 3
    assert not (runs / "adhoc" / "mine-rnn").exists() and not (smoke / "lem").exists()

    (folder / "my_rnn.py").write_text(MY_RNN.replace("torch.tanh(", "torch.sin("))
    code, said = physml(*TABLE, "--no-run")
    assert code == 0 and "stale" in row_of(said, "Mine")
    assert physml(*TABLE)[0] == 0
    first, second = records(smoke / "adhoc" / "mine-rnn")
    assert first["identity"] != second["identity"] and first["metrics"] != second["metrics"]
    assert not list(folder.rglob("*.json")), "results go where PHYSML_RESULTS says"
    status = ["git", "status", "--porcelain", "results/runs"]
    assert "mine" not in subprocess.run(status, cwd=ROOT, capture_output=True, text=True).stdout


WAVES = '''
import numpy as np
import torch
from physml.task.sequences import Labelled

class Waves(Labelled):
    """Waves of a file."""
    files = ("waves.csv",)

    def __init__(self, *, protocol="clean"):
        self.protocol, self.d_in, self.d_out, self.n_classes = protocol, 1, 2, 2

    def load(self, store, split):
        rows = np.loadtxt(self.file("waves.csv"), delimiter=",", ndmin=2)
        x, y = torch.tensor(rows[:, :-1, None]).float(), torch.tensor(rows[:, -1]).long()
        self.place({part: (x, y) for part in ("train", "valid", "test")}, store)
'''


@pytest.mark.parametrize(
    ("place", "code", "says"),
    [
        ("dict(", 2, "Waves.load has placed no data. Let it call self.place(..., store)."),
        ("raise SystemExit(0)\n        self.place(", 1, "reason: SystemExit: 0"),
    ],
)
def test_a_task_that_places_no_data_or_ends_the_program_is_named(
    place: str, code: int, says: str, physml: Physml, folder: Path, inside: Path
) -> None:
    write(folder / "waves.csv", "0.1,0.2,0\n0.3,0.4,1\n")
    write(folder / "waves.py", WAVES.replace("self.place(", place).replace("}, store", "}, store=store"))
    words = (
        "plugins=[waves.py]",
        "task._target_=waves.Waves",
        "model=lem",
        "model.d_hidden=3",
        "trainer.epochs=1",
    )
    got, text = physml("run", *words)
    assert got == code and says in text


def test_runs_on_a_data_file_that_is_edited_or_gone_are_told_as_they_are(physml, folder, inside) -> None:
    study = {
        "task": "own",
        "plugins": ["waves.py"],
        "provenance": {"kind": "own", "source": "me"},
        "common": {"task": {"_target_": "waves.Waves"}, "trainer": {"epochs": 1}},
        "rows": {"lem": {"model": "lem", "set": {"model": {"d_hidden": 3}}}},
    }
    column = {"key": "acc", "metric": "test/accuracy", "better": "higher", "protocol": "clean"}
    rows = [{"label": "LEM", "experiment": "./wst.yaml:lem"}]
    write(folder / "waves.py", WAVES)
    data = write(folder / "waves.csv", "0.1,0.2,0\n0.3,0.4,1\n")
    write(folder / "wst.yaml", study)
    write(
        folder / "wtab.yaml", {"title": "t", "source": "me", "seeds": [0], "columns": [column], "rows": rows}
    )
    assert physml("table", "wtab.yaml", "--jobs", "1")[0] == 0
    data.write_text("0.1,0.2,0\n0.3,0.5,1\n")
    code, said = physml("status", "--all")
    assert code == 0 and "1 run: 1 done" in said
    code, said = physml("rerun", "./wst.yaml:lem", "--plugin", "waves.py")
    assert code == 2 and said.rstrip().endswith("To train it again, put waves.csv back as it was.")
    assert physml("table", "wtab.yaml", "--jobs", "1")[0] == 0
    for name in ("./wst.yaml:lem", "wtab.yaml"):
        code, said = physml("plot", name, "--out", "p.csv")
        assert code == 0 and said.count("1 run, ") == 1
    code, said = physml("track", "sync", "--plan", "./wtab.yaml")
    assert code == 0 and "2 of 2 records to send" in said
    assert physml("diff", "./wst.yaml:lem", "./wst.yaml:lem") == (0, "no difference\n")
    data.rename(folder / "gone.csv")
    code, said = physml("plot", "./wst.yaml:lem", "--out", "p.csv")
    assert code == 0 and said.count("1 run, ") == 2
    code, said = physml("table", "wtab.yaml", "--no-run")
    assert code == 2 and "waves.csv is missing" in said
    assert "The runs here have other settings, or data, than this table today." in said


def test_a_layer_needs_d_in_and_a_layer_around_it_does_not(physml: Physml, folder: Path) -> None:
    write(
        folder / "nod.py",
        """from torch import nn

class NoD(nn.Module):
    def __init__(self, d_hidden: int) -> None:
        super().__init__()
        self.d_in, self.d_out = 1, d_hidden

class Coupling(nn.Linear):
    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__(d_in, d_hidden)
        self.d_in = self.d_out = d_hidden

    def forward(self, x, edge_index):
        return super().forward(x)
""",
    )
    alone = ("plugins=[nod.py]", "model._target_=nod.NoD", "model.d_hidden=3", "task=adding")
    code, said = physml("run", *alone, "profile=smoke")
    assert code == 2 and "NoD takes no d_in: its constructor must be __init__(self, d_in, ...)" in said
    around = "model.coupling={_target_: nod.Coupling, d_in: 4, d_hidden: 4}"
    graph = ("plugins=[nod.py]", "model=graphcon_gcn", "model.n_layers=1", "net.hidden=4", "task=texas")
    code, said = physml("run", *graph, around, "profile=smoke")
    assert code == 0, said


STUDY = """
task: fitzhugh_nagumo
provenance: {kind: own, source: my paper}
plugins: [../my_rnn.py]
rows:
  mine:
    model: own
    set: {model: {_target_: my_rnn.MyRNN, d_hidden: 16, smoke: {d_hidden: 3}}, trainer: {batch_size: 32}}
  leaking: {base: mine, set: {model: {leak: 0.5}}}
"""
OWN_TABLE = """
title: My table
source: my paper, Table 1
seeds: [0, 1]
columns: [{key: rmse, metric: test/rmse, better: lower, protocol: clean}]
claim: {text: mine beats leaking, order: [{better: mine, than: [leaking], column: rmse}]}
rows:
  - label: mine
    experiment: studies/fitzhugh_nagumo.yaml:mine
    cells: {rmse: {published: {value: 0.2, digits: 1}}}
  - {label: leaking, experiment: "studies/fitzhugh_nagumo.yaml:leaking"}
  - {label: LEM, experiment: lem/fitzhugh_nagumo-lem}
"""
OWN_FIGURE = """
title: My figure
source: my paper, Figure 1
kind: curves
x_label: step
y_label: RMSE
metric: valid/rmse
seeds: [0]
panels:
  - title: Mine
    series: [{label: mine, experiment: "./studies/fitzhugh_nagumo.yaml:mine"}]
"""


@pytest.fixture
def papers(folder: Path) -> Path:
    for name, text in {"studies/fitzhugh_nagumo": STUDY, "mytable": OWN_TABLE, "myfig": OWN_FIGURE}.items():
        write(folder / f"{name}.yaml", text)
    return folder


@pytest.mark.slow
def test_a_table_and_a_figure_of_ones_own(physml: Physml, papers: Path, inside: Path) -> None:
    code, said = physml("table", "./mytable.yaml", "--smoke", "--plan")
    assert code == 0 and "6 runs, 6 to do" in said
    code, said = physml("table", "./mytable.yaml", "--smoke", "--on", "pilot")
    assert code == 0, said
    code, said = physml("table", "./mytable.yaml", "--smoke", "--no-run", "--long", "--write")
    assert code == 0 and "All rows: runs: 2/2" in said
    assert "Claim: mine beats leaking" in said and "0.2" in row_of(said, "mine")
    kept = {path.name for path in (inside / "smoke" / "runs" / "adhoc").iterdir()}
    assert kept == {"fitzhugh_nagumo-leaking", "fitzhugh_nagumo-mine"}
    written = (inside / "smoke" / "tables" / "mytable.csv").read_text()
    assert ",./fitzhugh_nagumo.yaml:leaking," in written and str(papers) not in written
    code, said = physml("figure", "./myfig.yaml", "--smoke")
    assert code == 0 and "Mine, mine: 1/1" in said and (inside / "smoke" / "figures" / "myfig.png").is_file()
    code, said = physml("status", "./mytable.yaml", "--smoke")
    assert code == 0 and "6 runs: 6 done" in said
    assert not list(papers.rglob("*.json"))


@pytest.mark.slow
def test_a_row_of_ones_own_with_several_seeds(physml: Physml, folder: Path) -> None:
    code, said = physml("table", "lem-4", "--long", "--smoke", "--row", f"{ROW},seeds=0-2")
    assert code == 0 and "3/3" in row_of(said, "Mine"), said
    code, said = physml("table", "lem-4", "--smoke", "--seeds", "n5", "--plan", "--row", ROW)
    assert code == 0 and "5 runs, 2 to do" in said


def test_lists_name_the_folder_of_ones_own_configs(papers: Path, monkeypatch, prints) -> None:
    for name, text in {
        "table/mine-1": OWN_TABLE,
        "study/my/fitzhugh_nagumo": STUDY,
        "model/leaking": "plugins: [../../my_rnn.py]\n_target_: my_rnn.MyRNN\nd_hidden: 4\n",
    }.items():
        write(papers / "conf" / f"{name}.yaml", text)
    monkeypatch.setenv("PHYSML_CONF", "conf")
    monkeypatch.chdir(papers)
    named = {"tables": "mine-1", "experiments": "my/fitzhugh_nagumo-mine", "models": "leaking"}
    for kind, name in named.items():
        assert re.search(rf"^{name} .*\[.*conf\]$", prints(0, "list", kind, name).out, re.M)


def test_without_a_place_for_results_they_go_to_the_adhoc_folder_of_the_checkout(folder, monkeypatch) -> None:
    monkeypatch.delenv("PHYSML_RESULTS", raising=False)
    monkeypatch.chdir(folder)
    for overrides, name in (
        (["experiment=./mine.yaml:rnn"], "mine-rnn"),
        (["plugins=[my_rnn.py]", "model._target_=my_rnn.MyRNN", "task=adding"], "adding-myrnn"),
    ):
        spec = spec_of(compose(overrides))
        assert spec.record_path.parent == ROOT / "results" / "runs" / "adhoc" / name
        ignored = subprocess.run(["git", "check-ignore", "-q", str(spec.record_path)], cwd=ROOT)
        assert ignored.returncode in (0, 128), "128: not a git checkout"


LOOKS = (
    "run experiment=./mine.yaml:rnn --cfg",
    "run -m experiment=./mine.yaml:rnn seed=0,1 --plan",
    "run model=kept task=adding profile=smoke --plan --on slurm",
    f"table lem-4 --plan --row {ROW}",
    f"table lem-4 --no-run --row {ROW}",
    f"pilot table lem-4 --plan --row {ROW}",
    "search ./mine.yaml:rnn --plan",
    "list models kept",
    "status --all",
)


@pytest.mark.slow
@pytest.mark.parametrize("look", LOOKS)
def test_a_look_runs_no_plugin(look: str, physml: Physml, folder: Path, monkeypatch) -> None:
    (folder / "my_rnn.py").write_text(f"open('was_run', 'w')\n{MY_RNN}")
    search = (
        "search: {metric: rmse, better: lower, trials: 2, seed: 1, trial: {profile: smoke}}\n"
        "searches: {rate: {space: {optim.lr: {low: 1.0e-3, high: 1.0e-2, log: true}}}}\n"
    )
    study = MINE.replace("rows:", f"{search}rows:").replace("    set:", "    search: rate\n    set:")
    (folder / "mine.yaml").write_text(study)
    kept = "_target_: my_rnn.MyRNN\nplugins: [../../my_rnn.py]\nd_hidden: 3\n"
    write(folder / "conf" / "model" / "kept.yaml", kept)
    monkeypatch.setenv("PHYSML_CONF", str(folder / "conf"))
    code, said = physml(*look.split())
    assert not (folder / "was_run").exists() and code in (0, 1) and "runs code of" not in said, said


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("mine.yaml", "leak: 0.2", "laek: 0.2", "model.laek: MyRNN has no such argument. Did you mean leak"),
        ("mine.yaml", "my_rnn.MyRNN", "my_rnn.MyRN", ".*my_rnn.py has no class MyRN. Did you mean MyRNN"),
        ("mine.yaml", "[my_rnn.py]", "[other.py]", "there is no plugin file .*other.py"),
        ("mine.yaml", "  rnn:", "  nrn:", ".*has no row 'rnn'. Did you mean nrn"),
        ("my_rnn.py", "y = (1", "y = = (1", ".*my_rnn.py: line 18: invalid syntax"),
        ("my_rnn.py", "import torch\n", "import troch\n", ".*my_rnn.py .*line 3: ModuleNotFoundError"),
    ],
)
def test_a_mistake_in_a_row_of_ones_own_is_told_before_anything_is_trained(
    physml: Physml, folder: Path, inside: Path, file: str, old: str, new: str, says: str
) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))
    code, said = physml(*TABLE)
    assert code == 2 and re.search(f"row Mine: {says}", said), said
    assert "Traceback" not in said and not (inside / "runs").exists()


# ---------------------------------------------------------------------------- rows that cannot be made

EXPERIMENTS = set(experiments_of(load_table(find_table("lem-9"))))
LSTM, SINGLE = "lem/fitzhugh_nagumo-lstm", "lem/fitzhugh_nagumo-lem_singlescale"


@pytest.mark.slow
def test_rows_that_cannot_be_made_leave_the_others_alone(inside: Path, forked, monkeypatch, capsys) -> None:
    """Of the rows of lem-9, one has a misspelt key, one asks for a device that is not there."""

    def spoilt(overrides: list[str]) -> Composed:
        composed = compose(overrides)
        if f"experiment={LSTM}" in overrides:
            composed.config["model"]["d_hiden"] = 3
        if f"experiment={SINGLE}" in overrides:
            composed.config["runtime"]["device"] = "abacus"
        return composed

    monkeypatch.setattr(requested_runs, "compose", spoilt)
    monkeypatch.setenv("PHYSML_FORK", "0")  # the harness makes the workers
    assert main.main(["table", "lem-9", "--smoke", "--seeds", "0", "--jobs", "2", "--long"]) == 2
    out = " ".join(capsys.readouterr().out.split())
    assert re.search(r"LSTM .*blocked \((\w)\).* \(\1\) model\.d_hiden: LSTM has no such argument\.", out)
    assert re.search(r"blocked \((\w)\).* \(\1\) runtime\.device must be auto, cpu or cuda; got 'abacus", out)
    by_experiment = {r["experiment"]: r for r in records(inside / "smoke")}
    assert set(by_experiment) == EXPERIMENTS - {LSTM, SINGLE}
    assert {r["status"] for r in by_experiment.values()} == {"finished"}
    value = by_experiment["lem/fitzhugh_nagumo-lem"]["metrics"]["best"]["test"]["rmse"] * 100
    assert f" {value:.3g}"[:4] in out
    assert "smoke run: tiny sizes" in (inside / "smoke" / "tables" / "lem-9.md").read_text(encoding="utf-8")
    assert not (inside / "tables").exists(), "the place of tables with results"


def test_a_damaged_record_is_told_in_its_row(inside: Path, prints) -> None:
    folder = inside / "smoke" / "runs" / "lem" / "fitzhugh_nagumo-lem"
    write(folder / "0a1b2c3d-split0-seed0.json", '{"schema": 1, ')
    out, errors = prints(2, "table", "lem-9", "--smoke", "--no-run", "--long")
    says = r"blocked \((\w)\).* \(\1\) \S*0a1b2c3d-split0-seed0\.json is damaged"
    assert re.search(says, " ".join(out.split())) and "LSTM" in out
    assert re.search(r"^error: lem/fitzhugh_nagumo-lem cannot be run: \S*0a1b2c3d-split0-seed0", errors, re.M)


def test_a_damaged_record_leaves_the_others_of_its_row(inside: Path) -> None:
    spec = spec_of(compose(["experiment=lem/adding-250-lem-dt_root"]))
    other = finished("lem/adding-250-lem-dt_root", 1, identity=spec.place.identity)
    record.write(spec.record_path.with_name(spec.record_path.name.replace("seed0", "seed1")), other)
    write(spec.record_path, '{"schema": 1, ')
    runs = [(other["experiment"], 0, seed) for seed in (0, 1)]
    requested = requested_runs.RequestedRuns(runs, requested_runs.RunOptions(), "t")
    assert [r["seed"] for r in requested.wanted_records()] == [1]
    assert "is damaged" in requested.broken[other["experiment"]]


ONE_ROW = """title: One row
source: own
seeds: [0]
columns: [{key: mse, metric: test/mse, better: lower, protocol: clean}]
rows: [{label: LEM, experiment: lem/adding-250-lem-dt_root}]
"""


@pytest.mark.parametrize("before", [(), ("pilot",)])
def test_a_damaged_record_is_the_reason_of_exit_code_2(before, inside, tmp_path, prints) -> None:
    path = write(spec_of(compose(["experiment=lem/adding-250-lem-dt_root"])).record_path, '{"schema": 1, ')
    errors = prints(2, *before, "table", str(write(tmp_path / "one.yaml", ONE_ROW))).err
    assert re.search(rf"^error: lem/adding-250-\S+ cannot be run: \S*{path.name} is damaged", errors, re.M)


def test_a_metric_that_no_run_will_have_is_told_before_anything_is_trained(inside, tmp_path, capsys, prints):
    """Each mistake is told once, and before the hours that the rows need."""
    wrong = ONE_ROW.replace("test/mse", "test/mes")
    wrong = wrong.replace("rows: [", "rows: [{label: L, experiment: lem/x-y}, ")
    errors = prints(2, "table", str(write(tmp_path / "one.yaml", wrong))).err
    assert errors.count("its task has no metric test/mes. Did you mean test/mse") == 1
    assert errors.count("there is no experiment named lem/x-y") == 1
    assert not (inside / "runs").exists()
    for metric, better in (("test/mse", "higher"), ("valid/mse", "higher")):
        wrong = ONE_ROW.replace("test/mse, better: lower", f"{metric}, better: {better}")
        assert main.main(["table", str(write(tmp_path / "one.yaml", wrong)), "--no-run"]) == 2
        assert "column mse: lower mse is better; got better: higher" in capsys.readouterr().err


def test_a_wrong_metric_of_a_figure_and_a_seed_that_chose_are_told(inside, tmp_path, prints, monkeypatch):
    wrong = OWN_FIGURE.replace("valid/rmse", "valid/mes")
    wrong = wrong.replace("./studies/fitzhugh_nagumo.yaml:mine", "lem/adding-250-lem-dt_root")
    said = prints(2, "figure", str(write(tmp_path / "mine.yaml", wrong))).err
    assert "its task has no metric valid/mes. Did you mean valid/mse" in said
    assert not (inside / "runs").exists()
    search = {"search": {"seed": 1000, "stages": [{"seeds": [7]}, {"seeds": []}]}}
    monkeypatch.setattr("physml.records.searches.content_of_file", lambda _: search)
    table = ONE_ROW.replace("lem/adding-250-lem-dt_root", "lem/fitzhugh_nagumo-lstm").replace("mse", "rmse")
    path = write(tmp_path / "one.yaml", table.replace("seeds: [0]", "seeds: [0, 1000]"))
    said = prints(2, "table", str(path)).err
    assert "fitzhugh_nagumo-lstm: seed 1000 is one of those that its search" in said


def test_the_plan_of_a_table_tells_which_rows_cannot_be_made(inside: Path, monkeypatch, prints) -> None:
    def spoilt(overrides: list[str]) -> Composed:
        composed = compose(overrides)
        composed.config["optim"]["weigth_decay"] = 0.1
        return composed

    monkeypatch.setattr(requested_runs, "compose", spoilt)
    out, errors = prints(2, "table", "lem-9", "--smoke", "--plan")
    refusal = "cannot be run: optim.weigth_decay: Adam has no such argument. Did you mean"
    assert "0 runs, 0 to do" in out and errors.count(refusal) == len(EXPERIMENTS)
