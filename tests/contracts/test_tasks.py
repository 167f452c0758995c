"""What every task must keep, on the four fixtures and on the real tasks at the sizes of profile smoke."""

import functools
import importlib
import inspect
import json
import math
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from each import Laws, each, run_all
from loaded_tasks import with_data
from refusals import refuses
from torch import Generator, Tensor

from physml.base.errors import InputError
from physml.config.resolve import load_plugins
from physml.data.readers.eigenworms import EIGENWORMS
from physml.task.base import Task
from physml.task.batch import Batch
from physml.task.graphs import ManyGraphs
from physml.task.nodes import OneGraph
from physml.task.trivial import score_reference
from physml.training.evaluate import evaluate
from tasks.bidmc import SubjectRates
from tasks.har2 import HAR2
from tasks.pyg import PyGNodes

ROOT = Path(__file__).parents[2]


# As a user's plugin is loaded: one module under this name, here and in the tests of runs.
small = load_plugins([str(ROOT / "tests" / "harness" / "fixtures_tasks.py")])["fixtures_tasks"]


def class_and_arguments(name: str) -> tuple[type[Task], dict[str, Any]]:
    """The class of a task in conf/, and its arguments at the sizes of profile smoke."""
    node = yaml.safe_load((ROOT / "conf" / "task" / f"{name}.yaml").read_text())
    module, _, cls = node.pop("_target_").rpartition(".")
    for key in ("datasets", "defaults"):
        node.pop(key, None)
    return getattr(importlib.import_module(module), cls), node | node.pop("smoke", {})


def from_config(name: str, **changes) -> Task:
    cls, arguments = class_and_arguments(name)
    return cls(**arguments | changes)


NAMES = sorted(path.stem for path in (ROOT / "conf" / "task").glob("*.yaml") if path.stem != "own")
REPLACED: dict[str, dict[str, Any]] = {  # what of a config is tried in another form
    "ptb_char": {"epoch_steps": None, "eval_streams": 3},
    "ecg5000": {"perturb": None},
    "ecg5000_abnormal": {"perturb": None},
}
VARIANTS: dict[str, dict[str, Any]] = {  # beside the config itself
    "lorenz96-0.9": {"forcing": 0.9},
    "adding-official": {"protocol": "official"},
    "imdb-any_length": {"batching": "any_length"},
    "imdb-clean": {"protocol": "clean"},
    "ncifar-fresh": {"protocol": "paper", "noise": "fresh_uniform"},
    "har2-windows": {"held_out": "windows", "tested": "windows", "scaling": "once"},
    "eigenworms-random": {"entries": 7, "keep": "random"},
    "eigenworms-clean": {"split_of": "stratified", "protocol": "clean"},
    "google12-clean": {"protocol": "clean", "data_seed": 1},
    "zinc-paper": {"protocol": "paper"},
    "texas-undirected": {"edges": "undirected"},
    "citeseer-clean": {"protocol": "clean"},
}
FIXTURES: dict[str, Callable[[], Task]] = {
    name: lambda name=name: small.small_tasks()[name] for name in small.small_tasks()
}
REAL: dict[str, Callable[[], Task]] = {
    name: functools.partial(from_config, name.partition("-")[0], **changes)
    for name, changes in ({key: {} for key in NAMES} | REPLACED | VARIANTS).items()
}
ALL = FIXTURES | REAL
PARTS = ("train", "valid", "test")
CHECKS = check = Laws()  # made of every task, by `test_a_task_keeps_the_interface`


def rng(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def output_shape(task: Task, batch: Batch) -> tuple[int, ...]:
    """What a network answers for a read-out."""
    if task.readout == "every":
        return (*batch.input.shape[:2], task.d_out)
    return (len(batch.target if task.readout == "graph" else batch.input), task.d_out)


def answer(task: Task, batch: Batch) -> Tensor:
    """Some output that depends on the items alone, not on how they are batched."""
    shape = output_shape(task, batch)
    start = torch.arange(math.prod(shape[1:])).reshape(1, *shape[1:]) * 0.1
    first = batch.input.double().reshape(len(batch.input), -1)[:, :1]
    if task.readout == "graph":
        first = first.new_zeros(shape[0], 1).index_add(0, batch.batch, first)
    return torch.sin(start + first.reshape(-1, *[1] * (len(shape) - 1))).float()


def measured(task: Task) -> set[str]:
    """The metrics that scores tell; some are told by a training step in passing."""
    batch = next(task.batches("train", 3, rng()))
    return set(task.better) - set(task.train_step_metrics(answer(task, batch), batch))


@check
def declares_what_it_is_and_references_of_its_metrics(task):
    assert task.readout in ("last", "every", "node", "graph")
    assert task.metric in task.better
    assert set(task.better.values()) <= {"lower", "higher"}
    assert set(task.scoring) <= set(task.better)
    assert task.protocol in ("clean", "paper", "official")
    assert task.d_in > 0 and task.d_out > 0 and task.n_splits > 0
    references = task.references()
    assert references
    for metrics in references.values():
        assert set(metrics) == measured(task)
        assert all(math.isfinite(value) for value in metrics.values())


@check
def batches_fit_the_declared_sizes(task):
    for part in PARTS:
        batch = next(task.batches(part, 3, rng()))
        if task.tokens:
            assert batch.input.dtype == torch.int64 and batch.input.dim() == 2
            assert batch.input.min() >= 0 and batch.input.max() < task.d_in
        else:
            assert batch.input.dtype == torch.float32 and batch.input.shape[-1] == task.d_in
        if task.readout in ("node", "graph"):
            assert batch.edge_index.dtype == torch.int64 and batch.edge_index.min() >= 0
            assert batch.edge_index.shape[0] == 2 and batch.edge_index.max() < len(batch.input)
        for tensor in (batch.input, batch.target):
            assert torch.isfinite(tensor).all()


@check
@each("size", [1, 3, 1000])
def an_epoch_has_the_declared_number_of_steps(task, size):
    assert sum(1 for _ in task.batches("train", size, rng())) == task.steps_per_epoch(size)


@check
def same_generator_same_batches_and_another_one_another_order_or_draw(task):
    for part in PARTS:
        once, again = (list(task.batches(part, 3, rng(5))) for _ in range(2))
        for a, b in zip(once, again, strict=True):
            assert torch.equal(a.input, b.input) and torch.equal(a.target, b.target)
    if isinstance(task, small.Echo | small.Communities | OneGraph):  # a stream and a graph have no order
        return
    a, b = ([x.input for x in task.batches("train", 3, rng(s))] for s in (1, 2))
    assert not all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@check
def batches_of_one_graph_are_those_of_many(task):
    if not isinstance(task, ManyGraphs):
        pytest.skip("no set of graphs")
    (many,), ones = list(task.batches("valid", 1000)), list(task.batches("valid", 1))
    assert len(ones) == task.facts()["sizes"]["valid"]
    shift = 0
    edges = []
    for single in ones:
        assert (single.batch == 0).all() and len(single.index) == 1
        assert len(single.target) == (1 if task.readout == "graph" else len(single.input))
        edges.append(single.edge_index + shift)
        shift += len(single.input)
    assert torch.equal(torch.cat(edges, 1), many.edge_index)
    for key in ("input", "target", "index"):
        assert torch.equal(torch.cat([getattr(single, key) for single in ones]), getattr(many, key))
    sizes = torch.tensor([len(single.input) for single in ones])
    assert torch.equal(many.batch, torch.arange(len(ones)).repeat_interleave(sizes))
    assert torch.equal(many.batch[many.edge_index[0]], many.batch[many.edge_index[1]])


@check
def a_graph_is_seen_whole_in_every_part(task):
    if not isinstance(task, OneGraph):
        pytest.skip("not one graph")
    (a,), (b,) = (list(task.batches(part, size)) for part, size in (("train", 1), ("test", 1000)))
    assert len(a.input) == task.facts()["n_nodes"] and len(a.target) == len(a.input)
    assert torch.equal(a.input, b.input) and torch.equal(a.edge_index, b.edge_index)


@check
def loading_again_gives_the_same_data(task, store):
    def inputs():
        return [batch.input for part in PARTS for batch in task.batches(part, 4, rng())]

    before = inputs()
    task.load(store, 0)
    assert all(map(torch.equal, before, inputs()))


@check
def a_part_holds_each_item_once(task):
    for part in PARTS:
        batches = list(task.batches(part, 3, rng()))
        if batches[0].index is None:
            continue
        index = torch.cat([batch.index for batch in batches])
        if isinstance(task, OneGraph):
            assert len(index.unique()) == len(index)
            assert 0 <= index.min() <= index.max() < len(batches[0].input)
        else:
            assert index.sort().values.tolist() == list(range(len(index)))
        assert len(index) == task.facts()["sizes"][part]


def unique(parts: Iterable[Tensor]) -> bool:
    numbers = torch.cat([*parts])
    return len(numbers.unique()) == len(numbers)


@check
def parts_are_disjoint(task):
    if isinstance(task, small.Communities):
        assert (sum(next(task.batches(part, 1)).mask.int() for part in PARTS) == 1).all()
        return
    if isinstance(task, OneGraph):
        assert unique(next(task.batches(part, 1)).index for part in PARTS)
        return
    if isinstance(task, ManyGraphs):
        assert unique(task._graphs[part] for part in PARTS)
        assert unique(task._nodes_of.rows(task._graphs[part]) for part in PARTS)
        return
    if isinstance(task, SubjectRates):  # subjects of the fixture with equal rates have equal signals
        assert unique(task._subject[part].unique() for part in PARTS)
        return
    if isinstance(task, small.Echo):
        # Windows of a few ids recur by chance; whole streams don't.
        streams = [task.streams[part] for part in ("valid", "test")]
        assert not torch.equal(*streams)
        assert not any(torch.equal(task.streams["train"][: len(s)], s) for s in streams)
        return
    seen: set[bytes] = set()
    for seed, part in enumerate(PARTS):
        rows = {row.numpy().tobytes() for batch in task.batches(part, 4, rng(seed)) for row in batch.input}
        assert not rows & seen
        seen |= rows


@check
def score_does_not_depend_on_the_batch_size(task):
    scores = [score_reference(task, lambda batch: answer(task, batch), size=size) for size in (1, 3, 1000)]
    assert set(scores[0]) == measured(task)
    for metrics in scores:
        metrics.pop("accuracy_batches", None)  # of an official code; it is a mean over batches
    for other in scores[1:]:
        assert other == pytest.approx(scores[0], rel=1e-9)


@check
def loss_is_a_scalar_with_a_gradient(task):
    batch = next(task.batches("train", 3, rng()))
    output = answer(task, batch).requires_grad_()
    loss = task.loss(output, batch)
    assert loss.shape == () and torch.isfinite(loss)
    loss.backward()
    assert output.grad.abs().sum() > 0


@check
def nan_in_the_output_shows_in_every_metric_but_shares_of_right_answers(task):
    """Accuracy counts a NaN as some class."""
    poisoned = score_reference(task, lambda batch: answer(task, batch) * float("nan"))
    assert all(math.isnan(poisoned[name]) for name in poisoned if task.better[name] == "lower")


@check
@each("method", ["loss", "score"])
def an_output_of_another_shape_or_number_of_nodes_or_graphs_is_refused(task, method):
    batch = next(task.batches("test", 3))
    shape = output_shape(task, batch)
    wrong = [(*shape[:-1], task.d_out + 1)]
    if task.readout in ("node", "graph"):
        n, d = shape
        wrong += [(n + 1, d), (n,), (1, d)]
    for sizes in wrong:
        refuses(InputError, "output must have shape", getattr(task, method), torch.zeros(sizes), batch)


@check
def the_majority_class_is_that_of_train_or_among_equals_of_valid(task):
    majority = task.references().get("majority class")
    if majority is None:
        pytest.skip("no classes, or another constant")
    train, valid, test = (
        torch.cat([*map(labels, task.batches(part, 1000))]) for part in ("train", "valid", "test")
    )
    values, counts = train.unique(return_counts=True)
    largest = values[counts == counts.max()]
    if hasattr(task, "n_nodes"):
        of_valid = torch.stack([(valid == value).sum() for value in largest])
        largest = largest[of_valid == of_valid.max()]
    shares = [(test == value).double().mean().item() for value in largest]
    assert any(majority["accuracy"] == pytest.approx(share) for share in shares)
    assert majority["accuracy"] <= 1 and math.isfinite(majority["cross_entropy"])


def labels(batch: Batch) -> Tensor:
    """Of the items that count."""
    one_graph = batch.edge_index is not None and batch.batch is None
    target = batch.target[batch.index] if one_graph else batch.target
    return target.reshape(len(target), -1)[:, 0]


@check
def facts_fit_a_record_and_name_the_files_that_were_read(task):
    facts, abouts = task.facts(), [data.upstream for data in task.datasets]
    assert {"version", "sizes", "sha256", "fingerprint"} <= set(facts)
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    if not task.datasets:  # its data are generated
        return
    assert facts["sizes"] == task.sizes and facts["kind"] == "fixture"
    assert facts["readers"] == {data.name: data.version for data in task.datasets}
    assert set(facts["sha256"]) <= {file.name for about in abouts for file in about.files}
    assert all(set(facts["sha256"]) & {file.name for file in about.files} for about in abouts)


@check
def splits_differ_and_their_parts_are_disjoint(task, store):
    if task.n_splits == 1 or (task.protocol == "official" and task.datasets == (EIGENWORMS,)):
        pytest.skip("one split")
    contents = set()
    for split in range(task.n_splits):
        task.load(store, split)
        parts_are_disjoint(task)
        contents.add(b"".join(content(batch) for part in PARTS[1:] for batch in task.batches(part, 100)))
    assert len(contents) == task.n_splits or isinstance(task, HAR2), "its fixture has subjects for two"
    assert len(contents) > 1
    if isinstance(task, OneGraph) and not isinstance(task, PyGNodes):
        with pytest.raises(InputError, match=rf"there are {task.n_splits} \w.*; got {task.n_splits}"):
            task.load(store, task.n_splits)
    task.load(store, 0)


def content(batch: Batch) -> bytes:
    """What tells a batch from those of another split."""
    tensors = (batch.input, batch.edge_index, batch.index, batch.mask)
    return b"".join(x.numpy().tobytes() for x in tensors if x is not None)


@check
def moving_keeps_the_data_and_the_kind_of_a_batch_and_one_of_no_items_is_refused(task):
    if not isinstance(task, small.SmallTask):
        refuses(InputError, "size must be positive", next, task.batches("train", 0, rng()))
    before = next(task.batches("test", 2, rng()))
    moved = before.to("cpu")
    assert type(moved) is type(before) and moved.carry == before.carry
    task.to("cpu")
    assert torch.equal(next(task.batches("test", 2, rng())).input, before.input)


@pytest.mark.parametrize("name", ALL)
def test_a_task_keeps_the_interface(name, store):
    task = with_data(ALL[name](), store)
    needs_store = {rule: "store" in inspect.signature(rule).parameters for rule in CHECKS}
    run_all(
        (rule.__name__, functools.partial(rule, task=task, **({"store": store} if needs_store[rule] else {})))
        for rule in CHECKS
    )


ANY_NUMBER = ("data_seed", "forcing")
OF_THE_DATA = {  # words of which only the data know whether they are there
    **dict.fromkeys(
        ("hf", "hf_series"), ("name", "config", "revision", "input", "target", "train", "valid", "test")
    ),
    **dict.fromkeys(("mnist", "smnist", "psmnist"), ("permutation", "valid")),
    "ncifar": ("valid",),
    "pyg": ("dataset", "options"),
    "uea": ("name",),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_argument_is_refused_by_name(name: str) -> None:
    """A word that is none of the choices; a number below all."""
    cls, arguments = class_and_arguments(name)
    tried = 0
    for key, parameter in inspect.signature(cls).parameters.items():
        plain = not isinstance(arguments.get(key), list | dict)
        if not plain or key in (*ANY_NUMBER, *OF_THE_DATA.get(name, ())):
            continue
        kinds = f"{parameter.annotation} {type(arguments.get(key)).__name__}"
        words = ["no_such_one"] if "str" in kinds or "Literal" in kinds else []
        for wrong in [*words, *([-1] if "int" in kinds or "float" in kinds else [])]:
            tried += 1
            refuses(InputError, rf"\b{key}\b", cls, **arguments | {key: wrong})
    assert tried


# ---------------------------------------------------------------------------- the fixtures are what they say
@pytest.mark.parametrize(("name", "best"), [("sign_of_sum", 1.0), ("leaky_mean", 0.0), ("communities", 1.0)])
def test_the_oracle_of_a_fixture_is_nearly_perfect(name, best, store):
    task = with_data(FIXTURES[name](), store)
    assert score_reference(task, task.oracle)[task.metric] == pytest.approx(best, abs=0.05)


class Memory(torch.nn.Module):
    """Predicts the echo from a carried buffer of ids: knows the task, learns nothing."""

    def __init__(self, task) -> None:
        super().__init__()
        self.n_ids, self.lag, self.noise = task.d_in, task.lag, task.noise

    def forward(self, ids, lengths=None, state=None):
        seen = ids.new_zeros(len(ids), self.lag) if state is None else state[0]
        seen = torch.cat([seen, ids], 1)
        echo = seen[:, -ids.shape[1] - self.lag + 1 :][:, : ids.shape[1]]  # the id `lag` before each next id
        p = torch.nn.functional.one_hot(echo, self.n_ids) * (1 - self.noise) + self.noise / self.n_ids
        return p.log(), (seen[:, -self.lag :],)


def test_windows_of_the_token_stream_follow_each_other_and_need_the_carried_state(store):
    task = with_data(FIXTURES["echo"](), store)
    for part in ("train", "test"):
        batches = list(task.batches(part, 5))
        assert all(batch.carry for batch in batches)
        for a, b in pairwise(batches):
            assert torch.equal(a.target[:, -1], b.input[:, 0])
            assert torch.equal(a.target[:, :-1], a.input[:, 1:])
    net = Memory(task)
    carried = evaluate(net, task, task.batches("test", 1), "cpu")["nats"]
    forgotten = score_reference(task, lambda batch: net(batch.input)[0])["nats"]
    assert carried == pytest.approx(task.oracle_nats(), abs=0.15)
    assert forgotten > task.references()["unigram"]["nats"]


def defining_line(cls: type) -> str:
    """The paragraph `Defined in:` of a task or of its base; empty where there is none."""
    for base in cls.__mro__:
        text = (base.__doc__ or "").partition("Defined in:")[2]
        if base.__module__.startswith("tasks.") and text:
            return text.partition("\n\n")[0]
    return ""


def test_every_task_says_where_its_target_its_metric_and_its_split_are_defined() -> None:
    files = [path for path in (ROOT / "tasks").glob("*.py") if path.stem != "__init__"]
    classes = [
        cls
        for module in [importlib.import_module(f"tasks.{path.stem}") for path in files]
        for name, cls in inspect.getmembers(module, inspect.isclass)
        if cls.__module__ == module.__name__ and issubclass(cls, Task) and not name.startswith("_")
    ]
    assert {cls.__module__ for cls in classes} == {f"tasks.{path.stem}" for path in files}
    lines = {cls.__name__: defining_line(cls) for cls in classes}
    assert [n for n, line in lines.items() if not all(w in line for w in ("target", "metric", "split"))] == []
