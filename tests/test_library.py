"""physml as a library: names that import lazily, models with the papers' defaults, networks read back."""

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from refusals import refuses

import physml
from physml.base.errors import DataError, RecordError
from physml.base.paths import CONF, PACKAGE, ROOT, own_folders
from physml.cli.console import describe
from physml.config import build
from physml.config.compose import compose
from physml.config.identity import identity
from physml.data.store import store_of
from physml.run.perform import perform
from physml.run.progress import LineReporter
from physml.run.spec import RunSpec, checked_specs
from physml.task.base import Metrics, Task
from physml.training.evaluate import apply

NAMES = [name for name in physml.__all__ if name != "__version__"]


def test_every_name_is_there_for_type_checkers_too_and_every_class_of_a_config_is_one() -> None:
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    typed = {(name.name, str(node.module)) for node in imports for name in node.names}
    assert typed == {(name, physml._MODULE_OF[name]) for name in NAMES}
    for name, module in typed:
        assert getattr(physml, name) is getattr(importlib.import_module(module), name)
    assert set(physml.__all__) <= set(dir(physml))
    assert (PACKAGE / "py.typed").is_file()
    texts = [path.read_text(encoding="utf-8") for path in (CONF / "model").glob("*.yaml")]
    targets = {target for text in texts for target in re.findall(r"_target_: (physml\.[\w.]+)", text)}
    assert len(targets) > 80
    homes = {name: f"{module}.{name}" for name, module in physml._MODULE_OF.items()}
    assert {target for target in targets if homes.get(target.rpartition(".")[2]) != target} == set()


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'LME'"):
        physml.LME  # noqa: B018


def test_importing_physml_imports_nothing_else_and_a_model_no_config_trainer_or_tracker() -> None:
    code = "import sys; import physml; print('torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
    code = "import sys; from physml import LEM, GraphCON, UnICORNN; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "physml.models.sequence.lem" in loaded
    slow = {"hydra", "omegaconf", "wandb", "matplotlib", "torch_geometric", "sktime", "datasets", "rich"}
    assert not loaded & (slow | {"physml.config.compose", "physml.training.trainer"})


@pytest.mark.parametrize("name", ["LEM", "CoRNN", "UnICORNN", "LSTM", "ExpRNN", "IndRNN"])
def test_a_recurrent_model_needs_only_its_widths_where_the_paper_has_the_rest(name: str) -> None:
    cls = getattr(physml, name)
    needed = [
        p.name for p in inspect.signature(cls).parameters.values() if p.default is inspect.Parameter.empty
    ]
    extra = {"n_layers": 2} if name == "IndRNN" else {}
    assert set(needed) == {"d_in", "d_hidden", *extra}
    path, state = cls(3, 8, **extra)(torch.randn(2, 5, 3))
    assert path.shape == (2, 5, 8) and torch.isfinite(path).all()
    assert isinstance(state, tuple)


def test_graph_models_need_a_coupling_and_a_depth() -> None:
    x, edges = torch.randn(3, 8), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    for cls in (physml.GraphCON, physml.GradientGating):
        assert cls(physml.GraphConvolution(8, 8), 3)(x, edges).shape == (3, 8)
    assert physml.GCNII(8, 3)(x, edges).shape == (3, 8)


# ---------------------------------------------------------------------------- networks of runs


@pytest.fixture
def spec(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunSpec:
    for key, value in own_folders(tmp_path).items():
        monkeypatch.setenv(key, value)
    return of("model=lem", "task=adding", "runtime.save_model=true")


def of(*overrides: str) -> RunSpec:
    return checked_specs([compose([*overrides, "profile=smoke", "tracker=none", "trainer.max_steps=2"])])[0]


def scored(net: torch.nn.Module, task: Task) -> Metrics:
    sums: Counter[str] = Counter()
    with torch.no_grad():
        for batch in task.batches("valid", 50):
            sums.update(task.score(apply(net, batch, None)[0], batch))
    return task.finish(dict(sums))


def test_a_kept_network_scores_what_its_record_says(spec: RunSpec) -> None:
    record = perform(spec, LineReporter())
    path = spec.work_folder / "model.safetensors"
    assert "weights: " in describe(record) and "model.safetensors" in describe(record)
    task = build.build_task(spec.config)
    task.load(store_of(spec.config), 0)
    state = torch.get_rng_state()
    for source in (path, str(path), spec.record_path, record, json.loads(spec.record_path.read_text())):
        net = physml.load(source)
        assert not net.training
        assert scored(net, task)["mse"] == pytest.approx(record["metrics"]["best"]["valid"]["mse"], rel=1e-6)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_run_that_kept_no_weights_says_how_to_keep_them(spec: RunSpec) -> None:
    plain = of("model=lem", "task=adding")
    assert identity(plain.config) == identity(spec.config)
    record = perform(plain, LineReporter())
    assert "weights" not in record and "weights" not in describe(record)
    with pytest.raises(DataError, match=r"kept no weights. Train it again with runtime.save_model=true"):
        physml.load(plain.record_path)


def test_weights_that_are_gone_say_where_they_were_looked_for(spec: RunSpec) -> None:
    perform(spec, LineReporter())
    (spec.work_folder / "model.safetensors").unlink()
    refuses(DataError, r"model.safetensors is not there. Set PHYSML_RUNS", physml.load, spec.record_path)


def test_other_files_are_refused_in_one_line(spec: RunSpec, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"w": torch.zeros(2)}, tmp_path / "foreign.safetensors")
    (tmp_path / "torn.safetensors").write_bytes(b"\x10\x00\x00")
    for name in ("foreign.safetensors", "torn.safetensors"):
        refuses(RecordError, "is not a network that physml has kept", physml.load, tmp_path / name)


HOSTILE = {
    "n_layers": lambda about: about["config"]["net"].update(n_layers=10**18),
    "d_hidden": lambda about: about["config"]["model"].update(d_hidden=10**9),
    "d_in": lambda about: about["sizes"].update(d_in=10**30),
    "vectors": lambda about: about.update(vectors=[10**9] * 3),
    "no config": lambda about: about.update(config=[]),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_counts_in_a_file_of_weights_are_bounded_before_anything_is_built(
    how: str, spec: RunSpec, tmp_path: Path
) -> None:
    from safetensors.torch import save_file

    about = {
        "config": spec.config,
        "identity": spec.place.identity,
        "sizes": {"d_in": 2, "d_out": 1, "readout": "last", "tokens": False},
        "vectors": None,
    }
    about = json.loads(json.dumps(about))
    HOSTILE[how](about)
    save_file({"w": torch.zeros(2)}, tmp_path / "x.safetensors", {"physml": json.dumps(about)})
    refuses(RecordError, "is not a network that physml has kept", physml.load, tmp_path / "x.safetensors")


def test_a_kept_network_of_a_plugin_needs_the_plugin_by_name(spec: RunSpec, tmp_path: Path) -> None:
    (tmp_path / "kept_rnn.py").write_text(
        "from physml.models.sequence.lem import LEM\n\n\nclass KeptRNN(LEM):\n    pass\n", encoding="utf-8"
    )
    plugin = tmp_path / "kept_rnn.py"
    mine = of(
        f"plugins=[{plugin}]",
        "model._target_=kept_rnn.KeptRNN",
        "model.d_hidden=4",
        "task=adding",
        "runtime.save_model=true",
    )
    record = perform(mine, LineReporter())
    refuses(Exception, r"kept_rnn.KeptRNN is not allowed", physml.load, record)
    assert type(physml.load(record, plugins=[plugin]).layers[0]).__name__ == "KeptRNN"  # type: ignore[index,union-attr]


POSIX = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "pwd", "grp", "resource", "termios"):
            raise ImportError(name)

sys.meta_path.insert(0, Absent())
import torch
from physml import LEM, CoRNN, UnICORNN, GraphCON, GradientGating, recurrent
print(LEM(2, 4, backend="torch")(torch.zeros(1, 3, 2))[0].shape)
"""


def test_layers_need_no_module_that_windows_lacks() -> None:
    done = subprocess.run([sys.executable, "-c", POSIX], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "torch.Size([1, 3, 4])\n", done.stderr
