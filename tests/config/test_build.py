"""The one place where config becomes objects: what may be named, how values are coerced, what is built."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from configs import put, run_config
from refusals import refuses
from torch import nn

from physml.base.errors import ConfigError
from physml.base.paths import ROOT, TASKS, own_folders
from physml.config import build
from physml.config.build import check, parts_of
from physml.config.identity import identity
from physml.config.load import coerce
from physml.config.resolve import refuse_foreign, resolve
from physml.config.schema import checked

FOREIGN = [
    *("os.system", "builtins.eval", "builtins.exec", "subprocess.Popen", "pickle.Unpickler"),
    *("importlib.import_module", "torch.hub.load", "torch.load", "torch.jit.ScriptModule"),
    *("torch_geometric.data.Data", "scipy.linalg.lu", "physmlx.models.lem.LEM", "torch.nnx.Linear"),
    *("tasksx.adding.Adding", "physml", "LEM", ".LEM"),
]
# The name lies in the allow-list, what it leads to does not.
ALIASES = [
    *("physml.queue.planning.subprocess.Popen", "physml.records.provenance.subprocess"),
    *("physml.queue.planning.RunSpec.to_json", "physml.base.files.tempfile.TemporaryDirectory"),
    *("physml.config.compose.Path", "physml.models.sequence.lem.nn.Module"),
    *("physml.models.sequence.lem.Tensor", "physml.base.files.write_text", "physml.config.build.__loader__"),
    *("physml.config.build.__class__", "torch.nn.modules.module.OrderedDict", "torch.nn.functional.linear"),
    *("torch.nn.init.uniform_", "torch.optim.Adam.step", "torch.nn.Module.__init__.__globals__"),
    *("tasks.adding.hashlib", "tasks.adding.EVAL_SEED", "tasks.adding.Tensor", "tasks...Adding"),
]
SELECTION = "physml.training.selection"


def plugin(folder: Path, name: str, text: str) -> str:
    path = folder / f"{name}.py"
    path.write_text(text)
    return str(path)


# ---------------------------------------------------------------------------- what may be named


@pytest.mark.parametrize("target", ["", *FOREIGN, *ALIASES])
def test_nothing_outside_the_allow_list_is_a_class_for_us(target: str) -> None:
    with pytest.raises(ConfigError):
        resolve(target)


@pytest.mark.parametrize("target", [None, 5, ["os.system"], {"a": 1}, True])
def test_a_target_must_be_text(target: Any) -> None:
    refuses(ConfigError, r"must name a class as module.Class", check, {"_target_": target}, "model")


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("physml.models.sequence.lem.LEM", "LEM"),
        ("tasks.adding.Adding", "Adding"),
        ("torch.nn.Linear", "Linear"),
        ("torch.optim.Adam", "Adam"),
        ("torch.optim.lr_scheduler.StepLR", "StepLR"),
    ],
)
def test_what_is_allowed_is_found(target: str, name: str) -> None:
    assert resolve(target).__name__ == name


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("physml.training.selection.Bes", r"has no class Bes\. Did you mean BestTest or BestValid\?$"),
        ("physml.models.sequence.lem.LME", "physml.models.sequence.lem has no class LME. Did you mean LEM"),
        ("tasks.addding.Adding", "no module tasks.addding. Did you mean tasks.adding"),
        ("torch.optim.Adm", "Did you mean Adam"),
        ("os.system", "not allowed. Allowed are physml.models, .*, tasks, torch.nn, torch.optim, torch_geo"),
        ("physml.training.trainer.Trainer", "not allowed. Allowed are physml.models"),
        ("physml.models.sequence.lem.Tensor", "comes from torch"),
        ("torch.nn.Parameter", "comes from torch.nn.parameter"),
    ],
)
def test_a_wrong_name_is_told(target: str, says: str) -> None:
    refuses(ConfigError, says, resolve, target)


LOUD = """
from pathlib import Path

from torch import nn

Path(__file__).with_suffix(".imported").touch()


class Loud(nn.Module):
    def __init__(self, d_in: int, d_hidden: int = 3, part: object = None) -> None:
        super().__init__()
        Path(__file__).with_suffix(".built").touch()
"""


@pytest.fixture
def loud(tmp_path: Path) -> Path:
    """A plugin that leaves a file when it is imported, another when it is built."""
    return Path(plugin(tmp_path, f"loud_{tmp_path.name}", LOUD))


def loud_config(path: Path) -> dict[str, Any]:
    return run_config(f"plugins=[{path}]", "model=own", f"model._target_={path.stem}.Loud")


def test_a_config_is_looked_at_before_a_plugin_is_imported_and_the_place_of_a_foreign_name_told(loud) -> None:
    config = loud_config(loud)
    config["trainer"]["schedule"] = {"_target_": "os.system", "command": "true"}
    refuses(ConfigError, r"os.system", checked, config)
    assert not loud.with_suffix(".imported").exists()
    config = loud_config(loud)
    config["model"]["part"] = {"_target_": f"{loud.stem}.Loud", "d_in": 2}
    checked(config)
    assert not loud.with_suffix(".imported").exists() and not loud.with_suffix(".built").exists()
    built = check(config["model"], "model", config["plugins"], ("d_in",)).make(d_in=1)
    assert loud.with_suffix(".built").exists() and type(built).__name__ == "Loud"
    with pytest.raises(ConfigError, match=r"trainer.schedule.a\[1\]._target_=os.system"):
        refuse_foreign({"trainer": {"schedule": {"a": [1, {"_target_": "os.system"}]}}})


def test_nodes_inside_arguments_and_lists_are_built_and_a_base_class_is_not(tmp_path: Path) -> None:
    text = (
        "class Nest:\n    def __init__(self, *, parts: list, one: object, size: float):\n"
        "        self.parts, self.one, self.size = parts, one, size\n"
    )
    path = plugin(tmp_path, "nest_of_parts", text)
    leaf = {"_target_": "nest_of_parts.Nest", "parts": [], "one": 1, "size": 2}
    node = {"_target_": "nest_of_parts.Nest", "parts": [leaf, 5, [leaf]], "one": leaf, "size": 1}
    nest = check(node, "x", [path]).make()
    assert [type(p).__name__ for p in (nest.parts[0], nest.one, nest.parts[2][0])] == ["Nest"] * 3
    assert isinstance(nest.one.size, float)
    with pytest.raises(ConfigError, match=r"x.parts\[1\].siez: Nest has no such argument. Did you mean size"):
        check(leaf | {"parts": [1, leaf | {"siez": 1}], "size": 1}, "x", [path])
    path = plugin(tmp_path, "rule_of_nobody", "from typing import Protocol\n\n\nclass Rule(Protocol): ...\n")
    refuses(ConfigError, "x: Rule is a base class", check, {"_target_": "rule_of_nobody.Rule"}, "x", [path])


@pytest.mark.parametrize(
    ("where", "target", "says"),
    [
        ("model", "torch.optim.Adam", "model: Adam does not belong here: it has no forward"),
        ("optim", "torch.nn.ReLU", "optim: ReLU does not belong here: it has no step"),
        ("task", "physml.models.sequence.lem.LEM", "task: LEM does not belong here: it has no load"),
        ("trainer.select", f"{SELECTION}.Patience", "trainer.select: Patience does not belong here"),
        ("trainer.stop", f"{SELECTION}.Last", "trainer.stop: Last does not belong here"),
        ("trainer.average", f"{SELECTION}.Last", "trainer.average: Last does not belong here"),
    ],
)
def test_a_class_in_the_wrong_place_is_told(where: str, target: str, says: str) -> None:
    refuses(ConfigError, says, checked, put(run_config(), where, {"_target_": target}))


# ---------------------------------------------------------------------------- plugins


SMALL = """
class Small:
    def __init__(self, n: int = 1):
        self.n = n
"""


def test_a_plugin_is_loaded_from_its_file_once_and_refused_once_it_was_edited(tmp_path: Path) -> None:
    path = plugin(tmp_path, "small_plugin", SMALL)
    assert resolve("small_plugin.Small", [path]) is resolve("small_plugin.Small", [path])
    assert sys.modules["small_plugin"].__file__ == path
    assert not (tmp_path / "__pycache__").exists(), "cached code could be older than the file"
    plugin(tmp_path, "small_plugin", SMALL + "\n# edited\n")
    refuses(ConfigError, "has changed since it was imported", resolve, "small_plugin.Small", [path])


@pytest.mark.parametrize("name", ["torch", "numpy", "json", "physml", "tasks", "statistics", "omegaconf"])
def test_a_plugin_may_not_take_the_name_of_a_package(tmp_path: Path, name: str) -> None:
    path = plugin(tmp_path, name, SMALL)
    before = sys.modules.get(name)
    with pytest.raises(ConfigError, match=f"the plugin {name}.py has the name of .* Rename the file"):
        resolve(f"{name}.Small", [path])
    assert sys.modules.get(name) is before


def test_two_plugins_of_one_name_are_refused_and_a_later_one_may_import_an_earlier_one(tmp_path) -> None:
    (tmp_path / "sub").mkdir()
    paths = [plugin(tmp_path, "twin", SMALL), plugin(tmp_path / "sub", "twin", SMALL)]
    with pytest.raises(ConfigError, match=r"two plugins are named twin.py. Rename one"):
        run_config(f"plugins=[{','.join(paths)}]")
    first = plugin(tmp_path, "earlier_plugin", SMALL)
    text = "from earlier_plugin import Small\n\n\nclass Big(Small):\n    pass\n"
    assert resolve("later_plugin.Big", [first, plugin(tmp_path, "later_plugin", text)]).__name__ == "Big"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\ny = = 2\n", "line 2: SyntaxError"),
        ("import math\n\nmath.no_such_thing\n", "line 3: AttributeError"),
        ("\nraise SystemExit(3)\n", "line 2: SystemExit"),
        ("import no_such_module_anywhere\n", "line 1: ModuleNotFoundError"),
        ("x = '\x00'\n", "cannot be imported"),
    ],
)
def test_a_broken_plugin_is_told_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = plugin(tmp_path, "broken_plugin", text)
    assert path in refuses(ConfigError, says, resolve, "broken_plugin.Small", [path])
    assert "broken_plugin" not in sys.modules


def test_a_syntax_error_in_a_plugin_is_told_with_its_line_and_none_leads_to_a_foreign_class(tmp_path) -> None:
    path = plugin(tmp_path, "wrong_syntax", "class Small:\n    def\n")
    with pytest.raises(ConfigError, match=r"wrong_syntax.py: line 2: "):
        identity(run_config(f"plugins=[{path}]", "model=own", "model._target_=wrong_syntax.Small"))
    path = plugin(tmp_path, "leading_out", "from subprocess import Popen\n\nfrom torch.nn import GRU\n")
    refuses(ConfigError, "comes from subprocess", resolve, "leading_out.Popen", [path])
    assert resolve("leading_out.GRU", [path]) is nn.GRU


@pytest.mark.parametrize("name", ["no_such_file.py", "my-rnn.py", "notes.txt"])
def test_a_plugin_must_be_a_python_file(tmp_path: Path, name: str) -> None:
    if not name.startswith("no"):
        (tmp_path / name).write_text(SMALL)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(ConfigError, match=r"no plugin file|must be a Python file with a plain name"):
        run_config(f"plugins=['{tmp_path / name}']")


# ---------------------------------------------------------------------------- hostile working folders

HOSTILE = """
from pathlib import Path

Path(__file__).with_suffix(".was_imported").touch()
raise SystemExit("a file of the working folder was imported")
"""
NAMES = [
    *("torch", "numpy", "yaml", "hydra", "omegaconf", "argparse", "difflib", "json", "adding", "lem"),
    "tempfile",
]
# The console script, as pip writes it.
STUB = "import sys\nfrom physml.cli.main import main\nsys.exit(main())\n"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "tasks").mkdir(parents=True)
    for name in NAMES:
        (folder / f"{name}.py").write_text(HOSTILE)
    for name in ("__init__", "adding"):
        (folder / "tasks" / f"{name}.py").write_text(HOSTILE)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("way", ["module", "script"])
def test_nothing_of_the_working_folder_is_imported(hostile: Path, tmp_path: Path, way: str) -> None:
    script = tmp_path / "bin" / "physml"
    script.parent.mkdir()
    script.write_text(STUB)
    start = ["-m", "physml"] if way == "module" else [str(script)]
    small = ["profile=smoke", "trainer.epochs=1", "task.n_eval=8", "task.length=10"]
    command = [sys.executable, *start, "run", "model=lem", "task=adding", *small]
    # physml importable, as an installation makes it; records, caches and work in a folder of the test
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PHYSML_")} | own_folders(tmp_path)
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    completed = subprocess.run(command, cwd=hostile, env=environment, capture_output=True, text=True)
    assert completed.returncode == 0 and "finished" in completed.stdout, completed.stderr
    assert not list(hostile.rglob("*.was_imported"))
    assert len(list((tmp_path / "results" / "runs").rglob("*-seed0.json"))) == 1


def test_tasks_are_those_of_the_checkout_even_when_others_are_loaded(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "__init__.py").write_text("")
    (tmp_path / "tasks" / "adding.py").write_text("class Adding:\n    pass\n")
    kept = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "tasks"}
    for name in kept:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    import tasks.adding

    assert tasks.adding.__file__ == str(tmp_path / "tasks" / "adding.py")
    try:
        assert sys.modules[resolve("tasks.adding.Adding").__module__].__file__ == str(TASKS / "adding.py")
    finally:
        for name in [n for n in sys.modules if n.partition(".")[0] == "tasks"]:
            del sys.modules[name]
        sys.modules.update(kept)


# ---------------------------------------------------------------------------- values


VALUES: list[tuple[Any, Any, Any]] = [
    *((1, float, 1.0), (2.0, int, 2), (True, bool, True), ("a", str, "a"), (1, Any, 1), (None, None, None)),
    *((None, int | None, None), (3.0, int | None, 3), (1, float | None, 1.0)),
    *((1, int | float, 1), (1.5, int | float, 1.5), (0.1, float | torch.Tensor, 0.1)),
    *((2.0, Literal[1, 2], 2), ("a", Literal["a", "b"], "a")),
    *(([1, 2.0], tuple[float, float], (1.0, 2.0)), ([1, 2], tuple[float, ...], (1.0, 2.0))),
    *(([1, 2], list[float], [1.0, 2.0]), ([1, 2], Sequence[float], [1.0, 2.0])),
    *(([[1], [2.0]], list[list[int]], [[1], [2]]), ([1], list, [1]), ([1], tuple, (1,))),
    ([[1, 2], [3]], tuple[tuple[float, ...], ...], ((1.0, 2.0), (3.0,))),
    *((1, float | Sequence[float], 1.0), ([1], float | Sequence[float], [1.0])),
    *(({"a": 1}, dict[str, float], {"a": 1.0}), ({"a": 1}, Mapping[str, float] | None, {"a": 1.0})),
    ({"a": 1}, dict, {"a": 1}),
]


@pytest.mark.parametrize(("value", "hint", "expected"), VALUES)
def test_values_become_what_their_annotation_says(value: Any, hint: Any, expected: Any) -> None:
    got = coerce(value, hint, "x")
    assert got == expected and type(got) is type(expected)
    if isinstance(expected, list | tuple):
        assert list(map(type, got)) == list(map(type, expected))


NAN, INF = float("nan"), float("inf")
OF_ANOTHER_KIND: dict[Any, list[Any]] = {
    **{float: ["1", True, NAN, INF], int: ["1", 1.5, True, None, INF], bool: [1, 0, "true"], str: [1, None]},
    **{Literal[1, 2]: [True], Literal[True]: [1], Literal["a", "b"]: ["c"], None: [0]},
    **{list[int]: [None, 3, [1, "2"], [1, [2]], {"a": 1}], list[str]: ["ab"]},
    **{tuple[float, float]: [[1, 2, 3]], dict[str, int]: [[1], {"a": "b"}, {1: 2}]},
    **{float | torch.Tensor: ["fast"], torch.Tensor: ["fast"], int | float | None: ["fast"]},
}


@pytest.mark.parametrize(("value", "hint"), [(v, hint) for hint, vs in OF_ANOTHER_KIND.items() for v in vs])
def test_values_of_another_kind_are_refused_by_name(value: Any, hint: Any) -> None:
    refuses(ConfigError, r"the\.place.* must ", coerce, value, hint, "the.place")


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ({"d_hidden": 4}, "model needs a _target_"),
        (5, "model needs a _target_, the class to build; got 5"),
        ({"_target_": "physml.models.sequence.lem.LEM"}, "LEM needs d_hidden. Add"),
        ({"_target_": "physml.models.sequence.lem.LEM", "d_in": 3}, "model.d_in: LEM has no such argument"),
        ({"_target_": "physml.models.sequence.lem.LEM", "d_hiden": 3}, "Did you mean d_hidden"),
        ({"_target_": "torch.nn.LSTM", "hidden_size": 3}, "model.hidden_size: LSTM has no such argument"),
    ],
)
def test_a_node_that_cannot_be_built_is_told(node: Any, says: str) -> None:
    refuses(ConfigError, says, check, node, "model", supplied=("d_in",))


# ---------------------------------------------------------------------------- optimizer groups


def optimizer(factors: dict[str, float] | None, net: nn.Module, **changes: Any) -> torch.optim.Optimizer:
    config = run_config("optim.lr=0.5")
    config["optim"] |= {"lr_factors": factors} | changes
    return build.build_optimizer(parts_of(config), net)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD"])
def test_torch_updates_in_one_pass_what_it_would_parameter_by_parameter(name: str) -> None:
    weights = []
    for said in ({}, {"foreach": False}):
        torch.manual_seed(0)
        net = nn.Linear(5, 3).double()
        node = {"_target_": f"torch.optim.{name}", "lr": 0.01, "weight_decay": 0.1, "lr_factors": None}
        optim = build.build_optimizer(parts_of({**run_config(), "optim": node | said}), net)
        assert bool(optim.defaults["fused"]) == (not said)
        for _ in range(5):
            optim.zero_grad()
            net(torch.arange(10.0).view(2, 5).double()).square().sum().backward()
            optim.step()
        weights.append([p.detach() for p in net.parameters()])
    torch.testing.assert_close(*weights)


def test_an_optimizer_of_others_and_complex_weights_are_left_as_they_are() -> None:
    net = nn.Linear(2, 2)
    assert not optimizer(None, nn.Linear(2, 2, dtype=torch.complex64)).defaults["fused"]
    config = run_config()
    config["optim"] = {"_target_": "torch.optim.Adamax", "lr": 0.01, "lr_factors": None}
    assert "fused" not in build.build_optimizer(parts_of(config), net).defaults


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(2, 3), nn.Linear(3, 1)
        self.frozen = nn.Parameter(torch.zeros(1), requires_grad=False)


def rates(optim: torch.optim.Optimizer, net: nn.Module) -> dict[str, float]:
    rate = {id(p): group["lr"] for group in optim.param_groups for p in group["params"]}
    return {name: rate[id(p)] for name, p in net.named_parameters() if id(p) in rate}


def test_groups_are_those_of_factors_where_the_first_pattern_counts_or_one_without_any() -> None:
    net = Two()
    optim = optimizer(None, net)
    assert len(optim.param_groups) == 1
    assert rates(optim, net) == dict.fromkeys(("a.weight", "a.bias", "b.weight", "b.bias"), 0.5)
    optim = optimizer({"a.weight": 0.1, "a.*": 2, "b.bias": 0}, net)
    assert rates(optim, net) == {"a.weight": 0.05, "a.bias": 1.0, "b.weight": 0.5, "b.bias": 0.0}
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    net.b(net.a(torch.ones(1, 2))).sum().backward()
    optim.step()
    moved = {name for name, p in net.named_parameters() if not torch.equal(p, before[name])}
    assert "b.bias" not in moved and {"a.bias", "b.weight"} <= moved
    assert set(rates(optimizer({"*": 0.5}, net), net).values()) == {0.25}


def test_a_pattern_that_fits_no_parameter_or_stands_behind_a_wider_and_no_number_are_refused() -> None:
    for patterns in (["a.wieght"], ["frozen"], ["A.*"], ["a.*", "a.weight"]):
        says, factors = f"no parameter is left for {patterns[-1]}", dict.fromkeys(patterns, 0.1)
        refuses(ConfigError, says, optimizer, factors, Two())
    for factor in ("fast", -1, None, True):
        refuses(ConfigError, r"optim.lr_factors.a\.\*? ", optimizer, {"a.*": factor}, Two())
