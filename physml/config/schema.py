"""What a run's config may hold. Checked after composition, because Hydra merges unknown keys silently."""

from dataclasses import dataclass, fields
from typing import Any, Literal, get_type_hints

from physml.config.build import LAYER, NET_GIVEN, SCHEDULE, TASK, check, check_optimizer
from physml.config.load import coerce
from physml.config.resolve import refuse_foreign
from physml.errors import ConfigError, suggest


@dataclass(frozen=True)
class TrainerKeys:
    epochs: int
    max_steps: int | None
    batch_size: int
    eval_batch_size: int
    eval_every: int
    test_every: int | None
    select: dict
    stop: dict | None
    schedule: dict | None
    clip_norm: float | None
    average: dict | None


@dataclass(frozen=True)
class RuntimeKeys:
    device: str
    threads: int
    backend: Literal["auto", "reference", "torch", "native", "triton"]
    deterministic: bool
    checkpoint_every_s: float
    save_model: bool
    score_test: bool


@dataclass(frozen=True)
class DataKeys:
    verify: Literal["bytes", "content", "off"]


@dataclass(frozen=True)
class TrackerKeys:
    kind: Literal["wandb", "none"]
    project: str
    mode: Literal["auto", "online", "offline"]
    tags: list[str]


@dataclass(frozen=True)
class ProvenanceKeys:
    kind: Literal["paper", "official-code", "searched-here", "own"]
    source: str
    note: str | None
    search: str | None


@dataclass(frozen=True)
class RunKeys:
    model: dict
    net: dict
    task: dict
    trainer: dict
    optim: dict
    runtime: dict
    tracker: dict
    data: dict
    profile: Literal["full", "smoke"]
    precision: Literal["fp32", "tf32", "bf16"]
    seed: int
    split: int
    plugins: list[str]
    arrays: dict | None
    provenance: dict | None
    n_parameters_printed: str | None
    short: str | None
    experiment: str | None


SECTIONS = {
    "trainer": TrainerKeys,
    "runtime": RuntimeKeys,
    "data": DataKeys,
    "tracker": TrackerKeys,
    "provenance": ProvenanceKeys,
}
POSITIVE = (
    "epochs",
    "max_steps",
    "batch_size",
    "eval_batch_size",
    "eval_every",
    "test_every",
    "clip_norm",
    "threads",
)


def checked(config: dict[str, Any]) -> dict[str, Any]:
    """The config with coerced values; ConfigError for anything misspelt, missing or of the wrong kind.

    Classes are resolved and their arguments checked; nothing is built.
    """
    refuse_foreign(config, config.get("plugins") or ())  # the whole tree, before anything is imported
    config = _section(config, RunKeys, "")
    for name, keys in SECTIONS.items():
        if config[name] is not None:
            config[name] = _section(config[name], keys, f"{name}.", optional=("note", "search"))
    trainer, plugins = config["trainer"], config["plugins"]
    for key in ("seed", "split"):
        if config[key] < 0:
            raise ConfigError(f"{key} must not be negative; got {config[key]}.")
    check(config["model"], "model", plugins, ("d_in",), LAYER)
    check(config["net"], "net", plugins, NET_GIVEN, LAYER)
    check(config["task"], "task", plugins, needs=TASK)
    check_optimizer(config)
    check(trainer["select"], "trainer.select", plugins, needs=("bind", "selected"))
    if trainer["stop"] is not None:
        check(trainer["stop"], "trainer.stop", plugins, needs=("bind", "stops"))
    if trainer["schedule"] is not None:
        check(trainer["schedule"], "trainer.schedule", plugins, ("optimizer",), SCHEDULE)
    if trainer["average"] is not None:
        check(
            trainer["average"], "trainer.average", plugins, needs=("bind", "after_step", "after_row", "put")
        )
    if config["arrays"] is not None:
        check(config["arrays"], "arrays", plugins, needs=("collect",))
    return config


def _section(
    values: dict[str, Any], keys: type, where: str, optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    hints = get_type_hints(keys)
    known = [f.name for f in fields(keys)]
    for key in values:
        if key not in known:
            raise ConfigError(f"there is no config key {where}{key}. {suggest(key, known)}")
    missing = [k for k in known if k not in values and k not in optional]
    if missing:
        raise ConfigError(f"config key {where}{missing[0]} is missing.")
    out = {k: coerce(v, hints[k], f"{where}{k}") for k, v in values.items()}
    for key in POSITIVE:
        if key in out and out[key] is not None and not out[key] > 0:
            raise ConfigError(f"{where}{key} must be positive; got {out[key]}.")
    return out
