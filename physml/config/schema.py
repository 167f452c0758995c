"""The keys of a run's config. Checked after composition, because Hydra merges unknown keys silently."""

import contextlib
from typing import Any, Literal, NotRequired, TypedDict, get_type_hints

from physml.base.errors import ConfigError
from physml.config.build import Parts, parts_of
from physml.config.load import coerce, refuse_unknown
from physml.config.resolve import looking, refuse_foreign
from physml.config.studies import ProvenanceKind


class TrainerKeys(TypedDict):
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
    sample: NotRequired[dict | None]


DEVICES = (
    "auto",
    "cpu",
    "cuda",
    "mps",
    "xpu",
)  # of torch; a run says whether they are there


class RuntimeKeys(TypedDict):
    device: str
    threads: int
    backend: Literal["auto", "reference", "torch", "native", "triton"]
    deterministic: bool
    checkpoint_every_s: float
    save_model: bool
    score_test: bool
    profile: NotRequired[bool]


class DataKeys(TypedDict):
    verify: Literal["bytes", "content", "off"]


class TrackerKeys(TypedDict):
    kind: Literal["wandb", "mlflow", "none"]
    project: str
    mode: Literal["auto", "online", "offline"]
    tags: list[str]


class ProvenanceKeys(TypedDict):
    kind: ProvenanceKind
    source: str
    note: NotRequired[str | None]
    search: NotRequired[str | None]
    drawn: NotRequired[int | None]
    trials: NotRequired[int | None]
    seeds: NotRequired[int | None]
    stages: NotRequired[list[str] | None]


class RunKeys(TypedDict):
    model: dict
    net: dict
    task: dict
    trainer: dict
    optim: dict
    runtime: dict
    tracker: dict
    data: dict
    profile: Literal["full", "smoke"]
    precision: Literal["fp32", "tf32", "bf16", "bf16-products"]
    seed: int
    split: int
    plugins: list[str]
    arrays: dict | None
    measures: NotRequired[list | None]
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


def checked(config: dict[str, Any], *, run: bool = False) -> tuple[dict[str, Any], Parts | None]:
    """The config with coerced values, and its parts; ConfigError for anything misspelt, missing or wrong.

    All that needs no data is checked: classes, their arguments, and that they can be built together.

    run: whether plugins may be run. Else they are read alone, and where there are any, the parts are None.
    """
    from physml.config.rehearse import rehearse  # imports torch

    refuse_foreign(config, config.get("plugins") or ())  # the whole tree, before anything is imported
    config = _section(config, RunKeys, "")
    for name, keys in SECTIONS.items():
        if config[name] is not None:
            config[name] = _section(config[name], keys, f"{name}.")
    if (device := config["runtime"]["device"]).partition(":")[0] not in DEVICES:
        raise ConfigError(f"runtime.device must be auto, cpu or cuda; got {device!r}.")
    for key in ("seed", "split"):
        if config[key] < 0:
            raise ConfigError(f"{key} must not be negative; got {config[key]}.")
    with contextlib.nullcontext() if run else looking():
        parts = parts_of(config)
        rehearse(parts)
    return config, parts if run or not config["plugins"] else None


def _section(values: dict[str, Any], keys: Any, where: str) -> dict[str, Any]:
    hints = get_type_hints(keys)
    refuse_unknown(values, hints, f"there is no config key {where}")
    for key in hints:
        if key not in values and key in keys.__required_keys__:
            raise ConfigError(f"config key {where}{key} is missing.")
    out = {k: coerce(v, hints[k], f"{where}{k}") for k, v in values.items()}
    for key, value in out.items():
        is_size = key == "threads" or (keys is TrainerKeys and isinstance(value, int | float))
        if is_size and value <= 0:
            raise ConfigError(f"{where}{key} must be positive; got {value}.")
    return out
