"""Differences in training between rows that stand side by side. No torch, no hydra."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

PARTS = ("trainer", "optim", "precision")  # of a config
FIRST = ("trainer.epochs", "trainer.steps", "optim.lr")
MOST = 8  # keys that are listed, and values of others


def differs_in(config: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    """The first differences in words; empty where there is none.

    Example:
        >>> differs_in({"trainer": {"epochs": 30}}, [{"trainer": {"epochs": 400}}])
        'trainer.epochs 30 / 400'
        >>> differs_in({"optim": {"_target_": "a.Adam"}}, [{"optim": {"_target_": "b.SGD"}}])
        'optim Adam / SGD'
    """
    texts = list(differences(config, others).values())
    more = f" and {len(texts) - MOST} more" if len(texts) > MOST else ""
    return ", ".join(texts[:MOST]) + more


def differences(config: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The keys of training whose value none of the other configs has, with both values in words."""
    own, theirs = dict(_values(config)), [dict(_values(other)) for other in others]
    keys = sorted({*own, *(key for values in theirs for key in values)}, key=_order)
    texts = {}
    for key in keys:
        values = [values.get(key) for values in theirs]
        if values and own.get(key) not in values:
            known = list(dict.fromkeys(map(_short, values)))
            more = " or ..." if len(known) > MOST else ""
            texts[key] = f"{key} {_short(own.get(key))} / {' or '.join(known[:MOST])}{more}"
    return texts


def _values(config: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves below the parts of training, by their dotted keys."""
    for key, value in config.items():
        if not where and key not in PARTS:
            continue
        at = f"{where}.{key}" if where else key
        if isinstance(value, Mapping):
            yield from _values(value, at)
        elif value is not None:  # a class by its name: records of before a move have another module
            yield (where, str(value).rpartition(".")[2]) if key == "_target_" else (at, value)


def _order(key: str) -> tuple[int, str]:
    return (FIRST.index(key) if key in FIRST else len(FIRST), key)


def _short(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)[:40]
