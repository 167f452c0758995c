"""One case for many members: `@each` in place of `pytest.mark.parametrize` where there are hundreds.

Every member is tried whatever became of those before it, and one message has all failures. Members may be
given as a function: then they are listed when the case runs, not while tests are collected.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

Members = Iterable[Any] | Callable[[], Iterable[Any]]


def each(names: str, members: Members) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Calls a test with `names`, divided by commas, set to each member in turn; for several names, a tuple.

    Fixtures of a function are made once for all members.
    """
    keys = [name.strip() for name in names.split(",")]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def wrapper(**fixtures: Any) -> None:
            cases = members() if callable(members) else members
            calls = (dict(zip(keys, m if len(keys) > 1 else (m,), strict=True)) for m in cases)
            run_all((named(call), functools.partial(test, **call, **fixtures)) for call in calls)

        signature = inspect.signature(test)
        rest = [p for name, p in signature.parameters.items() if name not in keys]
        wrapper.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return wrapper

    return decorate


def run_all(calls: Iterable[tuple[str, Callable[[], None]]]) -> None:
    """Makes all calls, then fails with what failed. Where all of them skip, the case is skipped."""
    failures, skips, count = [], [], 0
    for name, call in calls:
        count += 1
        torch.manual_seed(0)
        try:
            call()
        except pytest.skip.Exception as reason:
            skips.append(str(reason))
        except (Exception, pytest.fail.Exception) as error:
            shown = pytest.ExceptionInfo.from_exception(error).getrepr(style="short")
            failures.append(f"{name}\n{shown}")
    if failures:
        pytest.fail("\n\n".join([f"{len(failures)} of {count} failed", *failures]), pytrace=False)
    if count == 0:
        pytest.fail("there is no member to test", pytrace=False)
    if len(skips) == count:
        pytest.skip(skips[0])


class Laws(list[Callable[..., None]]):
    """Checks that are made of every member; as a decorator it takes one more."""

    def __call__(self, rule: Callable[..., None]) -> Callable[..., None]:
        self.append(rule)
        return rule


def named(call: dict[str, Any]) -> str:
    return ", ".join(f"{key}={_short(value)}" for key, value in call.items())


def _short(value: Any) -> str:
    return str(getattr(value, "id", None) or getattr(value, "__name__", None) or value)[:200]
