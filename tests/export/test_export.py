"""The folder of an exported network: its files, its card, its loader, and what is refused."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import yaml
from refusals import refuses
from safetensors import safe_open
from safetensors.torch import save_file

import physml
import physml.base.paths
import physml.run.weights
from physml.base.errors import ConfigError, DataError, InputError, RecordError
from physml.base.paths import own_folders
from physml.cli.main import main
from physml.config.compose import compose
from physml.export.export import export
from physml.export.program import traced
from physml.models.graph.linkx import LINKX
from physml.records import record
from physml.run.perform import perform
from physml.run.progress import LineReporter
from physml.run.spec import RunSpec, checked_specs

NAME = "adding-cornn"


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Results with three seeds of one setting, of which the first kept its weights; and a graph network."""
    root = tmp_path_factory.mktemp("roots")
    with pytest.MonkeyPatch.context() as patch:
        for key, value in own_folders(root).items():
            patch.setenv(key, value)
        for seed in range(3):
            keep = f"runtime.save_model={'true' if seed == 0 else 'false'}"
            trained("model=cornn", "task=adding", f"seed={seed}", keep)
        for model in ("gcn", "linkx"):
            trained(f"model={model}", "task=texas", "runtime.save_model=true")
        yield root


def trained(*overrides: str) -> RunSpec:
    (spec,) = checked_specs([compose([*overrides, "profile=smoke", "tracker=none", "trainer.max_steps=2"])])
    perform(spec, LineReporter())
    return spec


def record_path(roots: Path, seed: int = 0) -> Path:
    (path,) = (roots / "results" / "runs" / "adhoc" / NAME).glob(f"*seed{seed}.json")
    return path


def ran(folder: Path) -> list[str]:
    """What the loader prints, in a folder that is not ours."""
    command = [sys.executable, "load.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=300)
    return done.stdout.split("\n")


def test_weights_are_found_beside_their_record(roots: Path, tmp_path: Path, monkeypatch) -> None:
    """A folder of results that was moved, read from somewhere else."""
    for folder in ("results", "runs"):
        shutil.copytree(roots / folder, tmp_path / "moved" / folder)
    path = record_path(tmp_path / "moved")
    for key, value in own_folders(tmp_path / "other").items():
        monkeypatch.setenv(key, value)
    x = torch.randn(2, 5, 2)
    with monkeypatch.context() as patch:
        patch.setenv("PHYSML_RUNS", str(roots / "runs"))
        want = physml.load(path)(x)[0]
    assert torch.equal(physml.load(path)(x)[0], want)
    (tmp_path / "moved" / "runs").rename(tmp_path / "elsewhere")
    refuses(DataError, r"is not there. Set .* It is not beside .*seed0.json either", physml.load, path)
    kept = tmp_path / "elsewhere" / "adhoc" / NAME / path.stem / "model.safetensors"
    path.with_suffix("").mkdir()
    kept.rename(path.with_suffix("") / "model.safetensors")
    assert torch.equal(physml.load(path)(x)[0], want)


def test_weights_are_copied_and_loaded_again(roots: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    assert main(["export", NAME, "--to", "safetensors", "--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} == {
        "README.md",
        "config.yaml",
        "load.py",
        "model.safetensors",
    }
    assert capsys.readouterr().out.count("written: ") == 4
    x = torch.randn(3, 9, 2)
    want = physml.load(record_path(roots))(x)[0]
    for name in (out, out / "model.safetensors", NAME, f"adhoc/{NAME}/{record_path(roots).stem}"):
        assert torch.equal(physml.load(name)(x)[0], want)
    kept = yaml.safe_load((out / "config.yaml").read_text())
    assert kept["identity"] == record_path(roots).name[:8] and kept["sizes"]["d_in"] == 2
    assert kept["config"]["model"]["_target_"] == "physml.models.sequence.cornn.CoRNN"
    assert ran(out)[0] == "(2, 1)"


def test_the_card_has_the_spread_of_all_seeds_and_reads_as_front_matter(roots: Path, tmp_path: Path) -> None:
    export(str(record_path(roots)), "safetensors", tmp_path / "out")
    runs = [json.loads(record_path(roots, seed).read_text()) for seed in range(3)]
    values = [run["metrics"]["best"]["test"]["mse"] for run in runs]
    text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    mean, sd = torch.tensor(values).double().mean(), torch.tensor(values).double().std()
    assert f"| mse | {values[0]:.5g} | {mean:.5g} ± {sd:.3g} | 3 |" in text
    words = ("Protocol: clean", "profile=smoke", "arxiv.org/abs/2010.00951", "CITATION.cff", "their owner")
    assert [missing for missing in words if missing not in text] == []
    before, matter, _ = text.split("---\n", 2)
    front = yaml.safe_load(matter)
    assert before == "" and front["library_name"] == "physml" and "license" not in front
    assert front["tags"] == ["physml", "cornn", "adding"]
    (metric,) = front["model-index"][0]["results"][0]["metrics"]
    assert metric["type"] == "mse" and metric["value"] == pytest.approx(float(mean), rel=1e-5)
    hub_cards = pytest.importorskip("huggingface_hub", reason="comes with the extra text")
    assert hub_cards.ModelCard(text).data.eval_results[0].metric_type == "mse"


def test_the_data_and_their_licence_are_those_of_conf(roots: Path, tmp_path: Path) -> None:
    export("texas-gcn", "safetensors", tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    licence = yaml.safe_load((physml.base.paths.CONF / "dataset" / "geom_texas.yaml").read_text())["licence"]
    assert f"Licence of the data: {licence}." in text
    assert "`edge_index`, int64 (2, E)" in text
    assert ran(tmp_path / "out")[0].startswith("(3, ")
    export("texas-linkx", "safetensors", tmp_path / "linkx")
    assert re.match(r"\(\d{2,}, ", ran(tmp_path / "linkx")[0]), "of all nodes of the graph that it knows"


def test_an_onnx_graph_runs_without_torch(roots: Path, tmp_path: Path) -> None:
    for package in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(package, reason="needs the extra onnx")
    exported = export(NAME, "onnx", tmp_path / "out", lengths=True)
    assert exported.difference is not None and exported.difference < 1e-5
    loader = tmp_path / "out" / "load.py"
    assert len([line for line in loader.read_text().splitlines() if line]) <= 12
    loader.write_text(loader.read_text() + "    import sys\n    print('torch' in sys.modules)\n")
    assert ran(tmp_path / "out")[:2] == ["(2, 1)", "False"]
    assert "`lengths`, int64 (B,)" in (tmp_path / "out" / "README.md").read_text()
    assert str(roots).encode() not in (tmp_path / "out" / "model.onnx").read_bytes()


def test_without_onnx_the_error_names_the_extra(roots: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["export", NAME, "--to", "onnx", "--out", str(tmp_path / "out")]) == 2
    install = "pip install 'onnx>=1.17' 'onnxruntime>=1.20' 'onnxscript>=0.5'"
    said = f"error: --to onnx needs onnx. Install it with: {install}\n"
    assert capsys.readouterr().err == said and not (tmp_path / "out").exists()


def test_a_layer_of_ones_own_is_exported_with_its_file(roots: Path, tmp_path: Path, monkeypatch) -> None:
    plugin = tmp_path / "taken_rnn.py"
    plugin.write_text("from physml.models.sequence.gated import GRU\n\nclass TakenRNN(GRU):\n    pass\n")
    own = ("model=own", "model._target_=taken_rnn.TakenRNN", "model.d_hidden=4", f"plugins=[{plugin}]")
    spec = trained(*own, "task=adding", "runtime.save_model=true")
    run, out = str(spec.record_path), tmp_path / "out"
    refuses(ConfigError, "taken_rnn", export, run, "safetensors", out)
    monkeypatch.setenv("HOME", str(plugin.parent))
    export(run, "safetensors", out, plugins=[f"~/{plugin.name}"])
    assert yaml.safe_load((out / "config.yaml").read_text())["config"]["plugins"] == ["taken_rnn.py"]
    assert ran(out)[0] == "(2, 1)" and "runs the code of `taken_rnn.py`" in (out / "README.md").read_text()
    assert str(tmp_path) not in "".join(path.read_text(errors="ignore") for path in out.iterdir())


@pytest.mark.parametrize("name", ["lem/fitzhugh_nagumo-lem", "cornn/psmnist-cornn128"])
def test_weights_that_come_with_physml_are_exported_by_their_experiment(name: str, tmp_path: Path) -> None:
    exported = export(name, "safetensors", tmp_path / "out")
    assert "model.safetensors" in exported.written
    assert f"name: {name}" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize("card", ['{"a": 1}', "[", "[1]", None])
def test_weights_beside_a_file_that_is_no_card_of_theirs_are_exported(
    card: str | None, roots: Path, tmp_path: Path
) -> None:
    """And those whose record is not at hand."""
    path = tmp_path / "mine.safetensors"
    shutil.copyfile(physml.run.weights.weights_of(record_path(roots)), path)
    place = {"experiment": "lem/adding-500-lem", "identity": "0" * 8, "split": 0, "seed": 0}
    path.with_suffix(".json").write_text(card or json.dumps(place))
    export(path, "safetensors", tmp_path / "out")
    assert "No record of the run is at hand." in (tmp_path / "out" / "README.md").read_text("utf-8")


def test_names_of_no_run_or_several_and_folders_with_files_are_refused(roots: Path, tmp_path: Path) -> None:
    refuses(ConfigError, f"there is no run addin-cornn.* Did you mean .*{NAME}", physml.load, "addin-cornn")
    with pytest.raises(DataError, match=r"seed 1 kept no weights. Train it again with"):
        physml.load(f"{NAME}/{record_path(roots, 1).stem}")
    again = record_path(roots).with_name(record_path(roots).name.replace("split0", "split7"))
    record.write(again, {**record.read(record_path(roots)), "split": 7})
    try:
        with pytest.raises(ConfigError, match=r"2 runs of adhoc/adding-cornn kept their weights. Name one: "):
            physml.load(NAME)
    finally:
        again.unlink()
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match=r"is not empty. Name another folder, or add --force"):
        export(NAME, "safetensors", tmp_path)
    refuses(InputError, r"is a file. Name a folder", export, NAME, "safetensors", tmp_path / "mine.txt")
    export(NAME, "safetensors", tmp_path, force=True)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_network_of_one_graph_is_loaded_with_its_number_of_nodes(roots: Path) -> None:
    net = physml.load(trained("model=linkx", "task=texas", "runtime.save_model=true").record_path)
    assert isinstance(net.stack, LINKX) and net.stack.n_nodes == net.stack.of_links.in_features > 1
    out = net(torch.zeros(net.stack.n_nodes, net.d_in), torch.tensor([[0], [1]]))
    assert out.shape == (net.stack.n_nodes, net.d_out)


def test_graphs_and_lengths_of_weights_are_refused_and_leave_nothing(roots: Path, tmp_path: Path) -> None:
    refuses(InputError, "works on graphs", traced, physml.load("texas-gcn"))
    with pytest.raises(InputError, match="--lengths is for a graph"):
        export(NAME, "safetensors", tmp_path / "out", lengths=True)
    assert not (tmp_path / "out").exists()


HOSTILE: dict[str, Callable[[dict], None]] = {
    "too-large": lambda about: about["config"]["model"].update(d_hidden=10**7),
    "too-wide": lambda about: about["sizes"].update(d_in=10**12),
    "no-number": lambda about: about["sizes"].update(d_in="2"),
    "negative": lambda about: about["sizes"].update(d_out=-1),
    "no-config": lambda about: about.update(config=[1]),
    "half-config": lambda about: about["config"].pop("net"),
    "a-process": lambda about: about["config"]["model"].update(_target_="subprocess.Popen"),
    "vectors": lambda about: about.update(vectors=[10**9, "x"]),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_weights_are_refused_in_one_line(kind: str, roots: Path, tmp_path: Path) -> None:
    """A file of weights with other metadata."""
    path = tmp_path / "it.safetensors"
    with safe_open(physml.run.weights.weights_of(record_path(roots)), "pt") as file:
        about = json.loads(file.metadata()["physml"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    HOSTILE[kind](about)
    save_file(tensors, path, {"physml": json.dumps(about)})
    with pytest.raises((RecordError, ConfigError)) as caught:
        physml.load(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_a_pickle_is_never_opened(roots: Path, tmp_path: Path) -> None:
    torch.save({"a": 1}, tmp_path / "it.safetensors")
    refuses(RecordError, "is not a network that physml has kept", physml.load, tmp_path / "it.safetensors")
    torch.save({"a": 1}, tmp_path / "it.json")
    refuses(RecordError, "is damaged", physml.load, tmp_path / "it.json")
