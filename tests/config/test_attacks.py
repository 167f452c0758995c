"""Configs that name classes made for other ends: refused by name, by base or by annotation, nothing built."""

from pathlib import Path
from typing import Any

import pytest
from configs import put, run_config, write
from refusals import refuses

from physml.base.errors import ConfigError, InputError
from physml.cli import main
from physml.config.build import check
from physml.config.class_source import module_file
from physml.config.compose import compose
from physml.config.load import load
from physml.config.schema import checked
from physml.report.figure.simulated import function_of
from physml.report.figure.spec import load_figure
from physml.report.table.settings import load_settings
from physml.report.table.spec import Column, load_table

STARTER = "physml.queue.processes.ForkServer"  # starts a process when it is built
NODE = {"_target_": STARTER, "targets": [], "environment": {}}


PLACES = [
    *("model", "net", "task", "optim", "arrays", "provenance", "model.clip", "model.d_hidden", "model.dt"),
    *("net.dropout", "net.encoder", "task.length", "optim.lr", "optim.lr_factors", "optim.betas"),
    *("trainer.epochs", "trainer.select", "trainer.select.metric", "trainer.stop", "trainer.schedule"),
    *("runtime.threads", "tracker.tags"),
]


@pytest.mark.parametrize("wrapped", ["plain", "list", "mapping"])
@pytest.mark.parametrize("where", PLACES)
def test_a_class_that_starts_processes_is_refused_wherever_it_stands(where: str, wrapped: str) -> None:
    value: Any = {"plain": NODE, "list": [[NODE]], "mapping": {"a": {"b": NODE}}}[wrapped]
    refuses(ConfigError, rf"_target_={STARTER} is not allowed", checked, put(run_config(), where, value))


OTHER_ENDS = [
    *("physml.search.spec.SearchSpec", "physml.config.build.Node", "physml.task.sequences.Sequences"),
    *("physml.models.sequence.rnn.Callable", "physml.models./tmp/x.X", "tasks./tmp/x.X"),
    *("tasks.ptb.Generator", "torch.nn.DataParallel", "torch.nn.parallel.DistributedDataParallel"),
    *("torch.nn.utils.rnn.PackedSequence", "torch.optim.swa_utils.AveragedModel"),
    *("torch_geometric.nn.Sequential", "torch_geometric.nn.DataParallel", "torch_geometric.nn.models.GPSE"),
    *("torch_geometric.nn.SchNet", "torch_geometric.nn.model_hub.PyGModelHubMixin"),
]


@pytest.mark.parametrize("target", [STARTER, *OTHER_ENDS])
def test_classes_for_other_ends_are_refused_in_packages_that_are_allowed(target: str) -> None:
    with pytest.raises(ConfigError, match=r"not allowed|not a module name|has no class|must be a class"):
        check({"_target_": target}, "model")


RELU = {"_target_": "torch.nn.ReLU"}


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("model.dt", r"model\.dt must be a number; got \{_target_: torch\.nn\."),
        ("model.multiscale", r"model\.multiscale must be true or false"),
        ("model.init", r"model\.init must be one of"),
        ("model.clip", r"model\.clip must be a list"),
        ("model.chrono", r"model\.chrono must be a number"),
        ("net.dropout_kind", r"net\.dropout_kind must be one of"),
        ("task.length", r"task\.length must be a whole number"),
        ("optim.betas", r"optim\.betas must be a list"),
        ("trainer.select.metric", r"trainer\.select\.metric must be text"),
    ],
)
def test_an_allowed_class_is_refused_where_a_plain_value_is_annotated(where: str, says: str) -> None:
    refuses(ConfigError, says, checked, put(run_config(), where, RELU))


def test_a_part_is_a_module_or_of_the_class_annotated_and_never_in_a_list_of_numbers(tmp_path: Path) -> None:
    text = "class Open:\n    def __init__(self, part, parts: list = []):\n        self.part = part\n"
    plugin = write(tmp_path / "open_part.py", text)
    node = {"_target_": "open_part.Open"}
    rule = {"_target_": "physml.training.selection.Last"}
    check(node | {"part": RELU}, "x", [str(plugin)])
    check(node | {"part": node | {"part": 1}}, "x", [str(plugin)])
    for bad in (rule, [rule], {"a": [rule]}):
        with pytest.raises(ConfigError, match=r"x\.part.*: Last does not belong here"):
            check(node | {"part": bad}, "x", [str(plugin)])
    with pytest.raises(ConfigError, match=r"x\.parts\[0\]: Last does not belong here"):
        check(node | {"part": 1, "parts": [rule]}, "x", [str(plugin)])
    with pytest.raises(ConfigError, match=r"model\.clip\[1\] must be a number"):
        checked(put(run_config(), "model.clip", [0.0, RELU]))
    node = {"_target_": "physml.models.graph.graphcon.CitationGraphCON", "T": 1.0}
    with pytest.raises(ConfigError, match=r"model\.attention must be TransformerAttention; got .*ReLU"):
        check(node | {"attention": RELU}, "model")


# ---------------------------------------------------------------------------- by the command line


@pytest.mark.parametrize("flag", ["--cfg", "--plan"])
@pytest.mark.parametrize("where", ["+model.extra", "model.d_hidden", "optim.lr", "trainer.batch_size"])
def test_no_process_is_started_by_a_config_that_is_only_looked_at(where, flag, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    node = f"{{_target_: {STARTER}, targets: [], environment: {{BROWSER: 'touch {tmp_path}/ran'}}}}"
    assert main.main(["run", "model=lem", "task=adding", "profile=smoke", f"{where}={node}", flag]) == 2
    assert "ForkServer is not allowed" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_a_row_of_a_table_starts_no_process(tmp_path: Path, prints, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    rows = {"mine": {"model": "lem", "set": {"model": {"d_hidden": NODE}}}}
    study = {"task": "fitzhugh_nagumo", "provenance": {"kind": "own", "source": "x"}, "rows": rows}
    file = write(tmp_path / "mine.yaml", study)
    row = f"label=Mine,experiment={file}:mine"
    shown = prints(2, "table", "lem-4", "--seeds", "0", "--row", row, "--plan")
    assert "ForkServer is not allowed" in shown.out + shown.err


# ---------------------------------------------------------------------------- what only constructors know


AVERAGE = "{_target_: physml.training.averaging.Triggered, epochs: 0, latest: 1, metric: null}"


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["model.dt=5"], r"dt must lie in \[0, 2\]; got 5"),
        (["model.init=new"], "init must be one of"),
        (["optim.lr=-1"], "optim: Adam: Invalid learning rate"),
        (["net.dropout=3"], "dropout must lie in"),
        (["task.length=1"], "length must be at least 2"),
        (["trainer.select._target_=physml.training.selection.BestTest", "+trainer.select.metric=mes"], "mse"),
        ([f"trainer.average={AVERAGE}"], r"trainer\.average\.epochs must be at least 1"),
        (["optim.lr_factors={readuot.*: 2}"], "no parameter is left for readuot"),
    ],
)
def test_a_value_out_of_range_is_refused_before_anything_is_started(overrides: list[str], says: str) -> None:
    refuses(InputError, says, checked, run_config(*overrides))


def test_a_range_is_found_where_the_width_of_the_data_is_not_known_yet_which_is_left_to_the_run() -> None:
    with pytest.raises(InputError, match=r"dt must be positive; got -1"):
        checked(compose(["model=graphcon_gcn", "task=texas", "model.dt=-1"]).config)
    # Texas has 1703 features; a coupling made for them fits a network without an encoder.
    target = "physml.models.graph.graph_layers.GraphConvolution"
    coupling = f"model.coupling={{_target_: {target}, d_in: 1703, d_out: 1703, bias: true}}"
    net = ["net.hidden=null", "net.encoder_activation=identity", coupling]
    checked(compose(["model=graphcon_gcn", "task=texas", *net]).config)


# ---------------------------------------------------------------------------- names of files


@pytest.mark.parametrize("read", [load_table, load_figure, load_settings])
def test_an_id_in_a_file_is_refused(read: Any, tmp_path: Path) -> None:
    kind = {load_settings: "settings", load_figure: "curves"}.get(read, "runs")
    path = write(tmp_path / "lem-4.yaml", f"id: ../../x\nkind: {kind}\ntitle: T\n")
    refuses(ConfigError, r"lem-4\.yaml: id must not be a key: it is lem-4", read, path)


@pytest.mark.parametrize("name", ["tasks.{}.f", "physml.lab.simulate.{}.f", "tasks.../x.f"])
def test_a_figure_runs_no_file_from_elsewhere(name: str, tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n\n\ndef f():\n    pass\n")
    refuses(ConfigError, "not a module name", function_of, name.format(tmp_path / "evil"))
    assert not (tmp_path / "ran").exists()
    refuses(ConfigError, "not a module name", module_file, f"tasks.{tmp_path}/evil")


def test_a_file_that_is_wrong_is_named_once_and_a_config_may_name_another_key(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", "key: a\nmetric: x\nbetter: lower\nprotocol: clean\n")
    refuses(ConfigError, r"^c\.yaml: metric must look like test/rmse; got 'x'\.$", load, Column, path)
    assert run_config("model.d_hidden=${seed}", "seed=7")["model"]["d_hidden"] == 7


SECRETS = [
    *("${oc.env:PHYSML_SECRET}", "a ${oc.env:PHYSML_SECRET} b", "${oc.decode:${oc.env:PHYSML_SECRET}}"),
    *("${${net.hidden}}", "${nothing:1}", "${net.hidden"),
]


@pytest.mark.parametrize("text", SECRETS)
def test_a_config_reads_no_variables(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHYSML_SECRET", "hush")
    study = tmp_path / "study.yaml"
    for source in (f'source: "{text}"', f'source: ours, "{text}": 1'):
        study.write_text(
            f"task: adding\nprovenance: {{kind: own, {source}}}\n"
            "common: {task: {length: 20}}\nrows:\n  mine: {model: lem}\n"
        )
        with pytest.raises(ConfigError, match=r"`\$\{...\}` may name another key"):
            compose([f"experiment={study}:mine", "seed=1"])
    with pytest.raises(ConfigError, match=r"`\$\{...\}` may name another key|brackets and quotes"):
        run_config(f"model.d_hidden='{text}'")
