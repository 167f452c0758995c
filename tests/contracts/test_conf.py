"""Contracts over every file of conf/: it composes, is checked, builds, takes a step, names every argument."""

import copy
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from each import each, run_all
from refusals import refuses
from variants import grid, variants

from physml.base.errors import ConfigError, PhysmlError
from physml.base.paths import CONF
from physml.base.seeding import stream
from physml.config import build, studies
from physml.config.class_source import read_class
from physml.config.compose import GROUPS, compose, names
from physml.config.load import read_yaml
from physml.config.resolve import resolve
from physml.config.schema import checked
from physml.data.store import Store
from physml.report.figure import spec as figure_spec
from physml.report.table import spec as table_spec
from physml.search import spec as search
from physml.task.nodes import OneGraph
from physml.training.evaluate import apply

FILES = {str(p.relative_to(CONF)): p.read_text(encoding="utf-8") for p in sorted(CONF.rglob("*.yaml"))}
MODELS = [name for name in names("model") if name != "own"]
TASKS = [name for name in names("task") if name != "own"]
BASE = ("model=lem", "task=adding", "profile=smoke", "tracker=none")
BASE_OF_GRAPHS = ("model=gcn", "task=texas", "profile=smoke", "tracker=none")
BASE_OF_MANY_GRAPHS = ("model=gcn", "task=zinc", "profile=smoke", "tracker=none")

# Arguments that a config need not name: they choose how torch computes, not what.
COMPUTED = {"foreach", "maximize", "capturable", "differentiable", "fused", "decoupled_weight_decay"}
EXEMPT = {
    "optim": {"params"} | COMPUTED,
    "model": {"d_in", "n_nodes"},
    "net": {"layer", "d_in", "d_out", "readout", "tokens", "vectors"},
    "task": set(),
}
OURS = {"optim": {"lr_factors"}, "model": {"smoke"}, "net": set(), "task": {"smoke", "datasets", "defaults"}}


def config_of(*overrides: str) -> dict[str, Any]:
    return copy.deepcopy(_composed(overrides))


@functools.cache
def _composed(overrides: tuple[str, ...]) -> dict[str, Any]:
    return compose(list(overrides)).config


LOADED: dict[tuple[str, str], Any] = {}


def loaded(config: dict[str, Any], store: Store) -> Any:
    """The task of a config with its data. Equal tasks are loaded once: a step leaves no trace in them."""
    key = (json.dumps([config["task"], config["split"]], sort_keys=True), str(store.cache))
    if key not in LOADED:
        LOADED[key] = build.build_task(config)
        LOADED[key].load(store, config["split"])
    return LOADED[key]


def takes_a_step(config: dict[str, Any], store: Store) -> None:
    """Builds task, net, optimizer and schedule; one step moves the weights and has a finite loss."""
    config, parts = checked(config)
    task = loaded(config, store)
    torch.manual_seed(0)
    net = build.build_net(parts, task)
    optimizer = build.build_optimizer(parts, net)
    if parts.schedule:
        parts.schedule.make(optimizer=optimizer)
    batch = next(iter(task.batches("train", config["trainer"]["batch_size"], stream(0, "order", 0))))
    before = [p.detach().clone() for p in net.parameters()]
    output, _ = apply(net, batch, None)
    loss = task.loss(output, batch)
    loss.backward()
    optimizer.step()
    assert torch.isfinite(loss)
    assert any(not torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    assert all(torch.isfinite(p).all() for p in net.parameters())


def build_node(group: str, name: str) -> dict[str, Any]:
    return read_yaml(CONF / group / f"{name}.yaml")


def class_of(group: str, name: str) -> type:
    return resolve(build_node(group, name)["_target_"])


@functools.cache
def of_graphs(group: str, name: str) -> bool:
    cls = class_of(group, name)
    return cls.readout in ("node", "graph") if group == "task" else build.passes_messages(cls)


# ---------------------------------------------------------------------------- composes, builds, takes a step
def base_of(group: str, name: str) -> tuple[str, ...]:
    """Overrides of a small run of which a file of conf/ can be a part."""
    if group == "net" and build_node(group, name).get("pool"):
        return BASE_OF_MANY_GRAPHS
    return BASE_OF_GRAPHS if group in ("model", "net", "task") and of_graphs(group, name) else BASE


def refused(model: str, task: str) -> bool:
    """Whether the model knows one graph alone, and the task has many."""
    one_graph = getattr(class_of("model", model), "one_graph", False)
    return one_graph and not issubclass(class_of("task", task), OneGraph)


@functools.cache
def tasks_of_models() -> dict[str, list[str]]:
    """The tasks that each model is tried on: one, and a task with two models; with --grid all of its kind."""
    by_model: dict[str, list[str]] = {}
    for kind in (False, True):
        models = [m for m in MODELS if of_graphs("model", m) == kind]
        tasks = [t for t in TASKS if of_graphs("task", t) == kind]
        for i, model in enumerate(models):
            for j, task in enumerate(tasks):
                tried = j == i % len(tasks) or (i - j) % len(models) in (0, len(models) // 2)
                if (tried or grid()) and not refused(model, task):
                    by_model.setdefault(model, []).append(task)
    return by_model


@pytest.mark.parametrize("model", MODELS)
def test_every_model_takes_a_step_on_every_task_of_its_kind(model: str, store: Store) -> None:
    tasks = tasks_of_models().get(model, [])
    if not tasks:
        pytest.skip("its turn among the tasks falls on those that it refuses; --grid has more")
    run_all((task, functools.partial(takes_a_step_on, task, model, store)) for task in tasks)


def takes_a_step_on(task: str, model: str, store: Store) -> None:
    embedding = ["net.embedding=5"] if class_of("task", task).tokens else []
    of_kind, *base = base_of("model", model)
    config = config_of(of_kind, f"task={task}", "profile=smoke", *embedding)
    config["model"] = config_of(f"model={model}", *base)["model"]
    if model == "truncated":  # padded sequences need all of their steps
        config["model"]["last"] = 10_000
    takes_a_step(config, store)


OTHER_MODEL = r"^the model \w+ takes \w+s; the task \w+ gives \w+s\."
OTHER_NET = r"^the net \w+ takes .* Set net=(sequence|graph)\.$"
PRODUCTS, SAYS = "precision=bf16-products", r"precision=bf16-products is .*{}.*\. Set"


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ("model=gcn task=adding", OTHER_MODEL),
        ("model=lem task=texas", OTHER_MODEL),
        ("model=gcn task=adding net=graph", OTHER_NET),
        ("model=gcn task=texas net=sequence", OTHER_NET),
        ("model=gcn task=texas precision=bf16", "precision=bf16 is not there for networks on graphs"),
        (f"model=gcn task=texas {PRODUCTS}", SAYS.format("of recurrences; a network on graphs has none")),
        (
            f"model=lem task=adding {PRODUCTS} runtime.backend=torch",
            SAYS.format("got runtime.backend=torch and"),
        ),
        (
            f"model=lem task=adding {PRODUCTS} runtime.device=cuda",
            SAYS.format("got .* and runtime.device=cuda"),
        ),
    ],
)
def test_parts_that_do_not_fit_each_other_are_refused_before_training(overrides: str, says: str) -> None:
    refuses(ConfigError, says, run_checked, *overrides.split(), "profile=smoke")


PAPERS = sorted(path.name for path in (CONF / "study").iterdir() if path.is_dir())


@pytest.mark.parametrize("paper", PAPERS)
def test_every_experiment_is_sound_at_full_size_and_says_where_it_comes_from(paper: str) -> None:
    """That each takes its first steps, and to which losses, is in test_golden.py."""
    experiments = [name for name in names("experiment") if name.startswith(f"{paper}/")]
    assert experiments
    for name in experiments:
        config, _ = checked(config_of(f"experiment={name}"))
        checked(config_of(f"experiment={name}", "profile=smoke"))  # as `physml table ID --smoke` has it
        kind = config["provenance"]["kind"]
        assert kind in ("paper", "official-code", "searched-here", "own"), name
        assert config["provenance"]["source"], name
        # Settings of which one is a guess are no published ones: where they miss, nothing differs.
        assert "not verified" not in (config["provenance"].get("note") or "") or kind == "own", name
        assert config["experiment"] == name


@pytest.mark.parametrize(
    ("group", "name"),
    [(g, n) for g in ("net", "trainer", "optim", "runtime", "tracker", "profile") for n in names(g)],
)
def test_every_choice_of_the_other_groups_takes_a_step(group: str, name: str, store: Store) -> None:
    small = () if group == "net" and of_graphs(group, name) else ("task.length=10",)
    config = config_of(*base_of(group, name)[:2], f"{group}={name}", *small)
    takes_a_step({**config, "profile": "smoke"}, store)


@each("name", lambda: table_spec.table_ids(kind="runs"))
def test_every_table_names_experiments_that_are_there(name: str) -> None:
    spec = table_spec.load_table(CONF / "table" / f"{name}.yaml")
    cells = [(column, spec.cell(row, column).experiment) for row in spec.rows for column in spec.columns]
    for column, experiment in cells:
        if experiment is not None:
            better = resolve(config_of(f"experiment={experiment}")["task"]["_target_"]).better
            assert column.better == better[column.metric.partition("/")[2]]


@each("name", [path.stem for path in (CONF / "figure").glob("*.yaml")])
def test_every_figure_names_experiments_that_are_there(name: str) -> None:
    spec = figure_spec.load_figure(figure_spec.find_figure(name))
    assert {experiment for experiment, _, _ in spec.runs} <= set(names("experiment"))


def searches() -> list[str]:
    """The first of each study; all with --grid."""
    experiments = [*studies.searches().values()]
    return variants({name.rpartition("-")[0]: name for name in reversed(experiments)}.values(), experiments)


@each("name", searches)
def test_every_search_varies_keys_that_are_there(name: str) -> None:
    spec = search.load_search(name)
    point = {key: value["low"] if isinstance(value, dict) else value[0] for key, value in spec.space.items()}
    trial = search.run_of(spec, point)
    assert trial.config["runtime"]["score_test"] is False
    assert resolve(trial.config["task"]["_target_"]).better[spec.metric] == spec.better


# ---------------------------------------------------------------------------- what a file must say
def test_every_folder_of_conf_is_known_and_its_files_name_what_they_are_and_no_machine() -> None:
    kind = re.compile(r"# (?!.*@package)\w.{8,}\n(?!.*@package)")
    for file, text in FILES.items():
        if file.startswith("profile/"):
            assert text.startswith("# @package _global_\n"), file
        else:
            assert kind.match(text), file
    absolute = re.compile(r"(^|[\s:\[{,\"'=(])(~/|/\w+/|[A-Za-z]:\\)")
    assert [file for file, text in FILES.items() if absolute.search(text)] == []
    folders = {path.name for path in CONF.iterdir() if path.is_dir()}
    assert folders == {*GROUPS, "table", "figure", "study", "dataset", "engine"} - {"experiment"}


@each("group, name", lambda: [(group, name) for group in EXEMPT for name in names(group) if name != "own"])
def test_a_config_names_every_argument_of_its_class_and_its_source_the_version(group: str, name: str) -> None:
    """So that no number hides in a default of the code, where a change would not be seen.

    Identities read `version` from the source; a base in another file would hide it.
    """
    node, cls = build_node(group, name), class_of(group, name)
    assert set(node) - {"_target_"} - OURS[group] == set(build.arguments(cls)) - EXEMPT[group]
    if group in ("model", "task"):
        assert read_class(node["_target_"]).version == getattr(cls, "version", 1)


# ---------------------------------------------------------------------------- a misspelt key
def keys(node: Any, where: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every key of a config; the names in `lr_factors` are patterns, checked when the net is there."""
    for key, value in node.items():
        yield (*where, key)
        if isinstance(value, dict) and key != "lr_factors":
            yield from keys(value, (*where, key))


def misspelt(word: str) -> str:
    return word[:-2] + word[-1] + word[-2] if len(set(word[-2:])) == 2 else word + word[-1]


def with_misspelt(config: dict[str, Any], where: tuple[str, ...]) -> dict[str, Any]:
    config = copy.deepcopy(config)
    node = config
    for key in where[:-1]:
        node = node[key]
    node[misspelt(where[-1])] = node[where[-1]]
    return config


def rich_config() -> dict[str, Any]:
    """Nothing in it is null that may hold keys."""
    return config_of(
        "experiment=lem/fitzhugh_nagumo-lem-dt2",
        "+trainer.select.metric=rmse",
        "+trainer.stop={_target_:physml.training.selection.Patience,epochs:3,metric:null}",
        "+trainer.schedule={_target_:torch.optim.lr_scheduler.StepLR,step_size:3,gamma:0.1}",
        "+trainer.average={_target_:physml.training.averaging.Triggered,epochs:3,latest:9,metric:null}",
    )


@each("where", lambda: sorted(keys(rich_config())))
def test_a_misspelt_key_is_refused_wherever_it_stands(where: tuple[str, ...]) -> None:
    checked(rich_config())
    refuses(ConfigError, re.escape(misspelt(where[-1])), checked, with_misspelt(rich_config(), where))


@pytest.mark.parametrize("group", ["model", "task", "optim", "net", "tracker"])
def test_every_file_refuses_every_misspelt_key(group: str) -> None:
    files = {"model": MODELS, "task": TASKS}.get(group) or names(group)
    run_all((name, functools.partial(refuses_every_misspelt_key, group, name)) for name in files)


def refuses_every_misspelt_key(group: str, name: str) -> None:
    config = config_of(*[o for o in base_of(group, name) if not o.startswith(f"{group}=")], f"{group}={name}")
    for where in keys({group: config[group]}):
        if where != (group, "_target_") and len(where) > 1:
            refuses(ConfigError, re.escape(misspelt(where[-1])), checked, with_misspelt(config, where))


def run_checked(*overrides: str) -> None:
    checked(compose([*overrides]).config)


MISSPELT = [
    *(("modle", "model"), ("sede", "seed"), ("model.d_hiden", "d_hidden"), ("net.n_layer", "n_layers")),
    *(("task.lenght", "length"), ("trainer.epoch", "epochs"), ("trainer.select.metrc", "metric")),
    *(("trainer.selct._target_", "select"), ("optim.weigth_decay", "weight_decay")),
    *(("optim.lr_factor", "lr_factors"), ("runtime.thread", "threads"), ("tracker.projct", "project")),
    ("provenance.sorce", "source"),
]


@pytest.mark.parametrize(("key", "meant"), MISSPELT)
def test_a_misspelt_override_or_key_of_a_study_is_refused_with_a_near_name(key, meant, tmp_path) -> None:
    base = ["experiment=lem/fitzhugh_nagumo-lem"] if "provenance" in key else ["model=lem", "task=adding"]
    value = "physml.training.selection.Last" if key.endswith("_target_") else "1"
    for added in ("", "+"):
        with pytest.raises(ConfigError, match=re.escape(key.partition("._")[0])) as refusal:
            run_checked(*base, f"{added}{key}={value}")
        if added or key != "trainer.select.metrc":  # its default rule names no metric, so nothing is near
            assert f"Did you mean {meant}" in str(refusal.value)
    if not key.startswith(("sede", "tracker", "provenance")):  # rows of a study have none of these
        body = f"{key.replace('.', ': {')}: {value}{'}' * key.count('.')}"
        refuses(ConfigError, f"Did you mean {meant}", run_checked, study(tmp_path, body))


OWN = "provenance: {kind: own, source: x}"


def study(folder: Path, body: str = "trainer: {epochs: 3}", head: str = OWN) -> str:
    """The override that chooses its row."""
    inside = "".join(f"      {line}\n" for line in body.splitlines())
    text = f"task: adding\n{head}\nrows:\n  mine:\n    model: lem\n    set:\n{inside}"
    (folder / "mine.yaml").write_text(text)
    return f"experiment={folder / 'mine.yaml'}:mine"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"body": "model: {smoke: {d_hiden: 3}}"}, "model.smoke.d_hiden.*Did you mean d_hidden"),
        ({"body": "trainer: {epochs: 3}\ntrainer: {epochs: 4}"}, "trainer appears twice.*line 8"),
        ({"body": "model: 5"}, "model must hold keys and values; got 5"),
        ({"body": "trainer: {select: 5}"}, "trainer.select must hold keys and values; got 5"),
        ({"body": "trainer: {schedule: 5}"}, "trainer.schedule must hold keys and values; got 5"),
        ({"body": "optim: {lr: [}"}, "is not valid YAML.*line 7"),
        ({"body": "model: {dt: '${seeed}'}"}, "model.dt: .*seeed.* not found"),
        ({"body": "precision: fp16"}, "precision must be one of 'fp32', 'tf32', 'bf16', 'bf16-products'"),
        ({"head": f"{OWN}\nplugins: mine.py"}, "plugins must be a list"),
        ({"head": OWN.replace("own", "papr")}, "needs a provenance .*its kind one of paper.*papr"),
        ({"head": "provenance: {kind: own, source: x, sorce: 1}"}, "Did you mean source"),
    ],
)
def test_what_is_wrong_in_a_study_is_told(tmp_path: Path, content: dict[str, str], says: str) -> None:
    refuses(ConfigError, says, run_checked, study(tmp_path, **content))


# ---------------------------------------------------------------------------- values and precedence
@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("seed=x", "seed must be a whole number; got 'x'"),
        ("seed=1.5", "seed must be a whole number"),
        ("seed=-1", "seed must not be negative"),
        ("split=-1", "split must not be negative"),
        ("trainer.epochs=0", "trainer.epochs must be positive"),
        ("trainer.batch_size=true", "trainer.batch_size must be a whole number"),
        ("trainer.max_steps=none", "must be a whole number.*Write null for none"),
        ("trainer.epochs=null", "must be a whole number; got None. It must have a value"),
        ("optim.lr=fast", "optim.lr must be a number"),
        ("optim.lr=nan", "optim.lr must be"),
        ("optim.lr=-1", "negative|Invalid learning rate"),
        ("optim.betas=[0.9]", "optim.betas must have 2 entries"),
        ("model.multiscale=1", "model.multiscale must be true or false"),
        ("model.d_hidden='16'", "model.d_hidden must be a whole number"),
        ("runtime.threads=0", "runtime.threads must be positive"),
        ("profile=smok", "no profile named smok. Did you mean smoke"),
        ("tracker.mode=offlin", "tracker.mode must be one of.*Did you mean offline"),
        ("optim.lr_factors=0.1", "optim.lr_factors must hold keys and values"),
        ("optim.lr_factors={b:fast}", "optim.lr_factors.b must be a number"),
        ("optim.lr_factors={b:-1}", "optim.lr_factors.b must not be negative"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(override: str, says: str, store: Store) -> None:
    with pytest.raises(PhysmlError, match=says):
        takes_a_step(compose(["model=lem", "task=adding", "profile=smoke", override]).config, store)


def test_smoke_sizes_hold_but_for_what_was_typed_and_interpolations_are_resolved(tmp_path: Path) -> None:
    adding = "experiment=cornn/adding-500-cornn"
    config = config_of(adding, "profile=smoke")
    assert (config["trainer"]["epochs"], config["model"]["d_hidden"], config["task"]["length"]) == (2, 4, 10)
    config = config_of(adding, "profile=smoke", "model.d_hidden=7", "trainer.epochs=3")
    assert (config["trainer"]["epochs"], config["model"]["d_hidden"]) == (3, 7)
    full = config_of(adding)
    assert full["task"]["length"] == 500 and "smoke" not in full["model"]
    row = study(tmp_path, "model: {d_hidden: '${trainer.batch_size}'}\ntrainer: {batch_size: 17}")
    assert compose([row]).config["model"]["d_hidden"] == 17
