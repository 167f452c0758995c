"""A run in progress, as the small file that its worker writes tells: steps, loss, speed, time left."""

import datetime
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from physml.base import opened
from physml.base.check import is_number
from physml.base.text import digits

NAME = "progress.json"
LONGEST_S = 1e10  # some 300 years
# What a number of the file is below; what is more is no news.
MOST = dict.fromkeys(("step", "steps", "first", "began", "at"), LONGEST_S) | {"loss": math.inf}


@dataclass(frozen=True)
class Live:
    """Zeros and None where nothing is known.

    Args:
        step, steps: Made, of how many at most.
        first: The step at which this attempt began.
        began, at: Times of its first step and of the last news, in seconds since 1970.
        loss: Training loss of the last evaluation.
        doing: Work before the first step.
        host: Machine and process.
    """

    step: int = 0
    steps: int = 0
    first: int = 0
    began: float = 0.0
    at: float = 0.0
    loss: float | None = None
    doing: str | None = None
    host: str | None = None

    @classmethod
    def read(cls, folder: Path) -> "Live":
        """The run of a work folder; damaged values count as not known."""
        return cls.of(opened.read_mapping(folder / NAME))

    @classmethod
    def of(cls, news: dict[str, Any]) -> "Live":
        numbers: dict[str, Any] = {
            key: value
            for key, most in MOST.items()
            if is_number(value := news.get(key)) and abs(value) < most
        }
        words = {key: news[key] for key in ("doing", "host") if isinstance(news.get(key), str)}
        return cls(**numbers, **words)

    @property
    def ms_per_step(self) -> float | None:
        """Mean of this attempt, evaluations included."""
        steps_done = self.step - self.first
        return 1000 * (self.at - self.began) / steps_done if steps_done > 0 and self.at > self.began else None

    @property
    def seconds_left(self) -> float | None:
        """To the last step, at the speed so far; a rule may stop the run earlier."""
        ms = self.ms_per_step
        return None if ms is None else ms * max(self.steps - self.step, 0) / 1000

    @property
    def text(self) -> str:
        """One line.

        Example:
            >>> Live(50, 200, 0, 10.0, 11.0, loss=0.25).text
            'step 50 of 200, loss 0.25, 20 ms/step, eta 0:00:03'
        """
        if not self.steps:
            return self.doing or "starting"
        parts = [f"step {self.step} of {self.steps}"]
        parts += [f"loss {self.loss:.3g}"] if self.loss is not None else []
        parts += [_speed(self.ms_per_step)] if self.ms_per_step is not None else []
        parts += [f"eta {clock(self.seconds_left)}"] if self.seconds_left is not None else []
        return ", ".join(parts)


def _speed(ms: float) -> str:
    """Time of a step, in seconds from one on.

    Example:
        >>> _speed(20.04), _speed(5612.3)
        ('20 ms/step', '5.61 s/step')
    """
    return f"{digits(ms, 3)} ms/step" if ms < 1000 else f"{digits(ms / 1000, 3)} s/step"


def clock(seconds: float) -> str:
    """Hours, minutes and seconds, at most LONGEST_S.

    Example:
        >>> clock(3725.4)
        '1:02:05'
    """
    return str(datetime.timedelta(seconds=round(min(seconds, LONGEST_S))))


class Remaining:
    """Time left of a batch of runs, from the milliseconds per step of those that are running or have run."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.whole: dict[str, float] = {}  # seconds of each run so far known

    def seconds(self, running: dict[str, Live], done: int) -> float | None:
        """None until the speed of a run is known."""
        left = {label: live.seconds_left for label, live in running.items()}
        for label, live in running.items():
            if live.ms_per_step is not None:
                self.whole[label] = live.ms_per_step * live.steps / 1000
        if not self.whole:
            return None
        mean = sum(self.whole.values()) / len(self.whole)
        own = [mean if remaining is None else remaining for remaining in left.values()]
        waiting = max(self.total - done - len(running), 0)
        return max([(sum(own) + waiting * mean) / max(len(running), 1), *own])


def summary(running: dict[str, Live], done: int, remaining: Remaining) -> str:
    """The state of a batch in one line, with the first four of its runs.

    Example:
        >>> summary({"lem": Live(5, 20)}, 1, Remaining(6))
        '1 of 6 runs done, 1 running: lem step 5 of 20'
    """
    seconds = remaining.seconds(running, done)
    eta = f", eta {clock(seconds)}" if seconds is not None else ""
    texts = [f"{label} {live.text}" for label, live in running.items()]
    more = [f"{len(texts) - 4} more"] if len(texts) > 4 else []
    shown = f": {'; '.join(texts[:4] + more)}" if texts else ""
    return f"{done} of {remaining.total} runs done{eta}, {len(running)} running{shown}"
