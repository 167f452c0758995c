"""Penn Treebank: which word, or which character, comes next. Axes: B streams, T steps, C ids, N tokens."""

import math
from collections.abc import Callable, Iterator
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from physml.base.check import each, has_shape, one_of, positive
from physml.data.readers.ptb import PARTS, PTB, vocabulary
from physml.data.store import Store
from physml.task.base import Better, Metrics, Part, Readout, Sums, Task
from physml.task.batch import Batch

EVAL_STEPS = 512  # predictions of one batch of an evaluation; how many moves rounding alone
TEMPERATURES = tuple(round(1.06 - 0.02 * k, 2) for k in range(14))  # 1.06, 1.04, .., 0.80
TEMPERATURE_TOKENS = 50_000
DISCOUNT = 0.75  # of the bigram reference


class PennTreebank(Task):
    r"""The base of both tasks: a stream of ids, of which each is predicted from all before it.

    Training: the text is a ring. B heads read it at equal distances from a place that is drawn for each
    epoch; a batch is the next `bptt` steps of all heads, input (B, T) ids and target (B, T) the ids after
    them. The state is carried from batch to batch, and gradients end at its border. An epoch is `epoch_steps`
    batches.

    Loss: cross entropy, by `loss` summed over the steps and averaged over the heads, as in lamb, on whose
    scale its learning rate, clipping and L2 penalty were tuned; or the mean over all.

    Evaluation: one pass over the whole text, state carried; before its first token an end of line is read, so
    every token is predicted once. With `eval_streams` S > 1 the text is cut into S streams read side by side,
    each but the first without what came before it: a little worse, S times faster.

    Metrics: a plain one, and a "tempered" one, for which logits are divided by the temperature, of 1.06,
    1.04, .., 0.80, that is best on the first 50,000 tokens of valid, of all streams together. It is found for
    the selected and the last weights before test is scored; evaluations during training use 1.

    Defined in: target: LEM paper, section 5, the next character or word of the "Penn Treebank (PTB) corpus",
    "preprocessed by Mikolov et al."; metric: test bpc, Table 6, and test perplexity, Table 7; split: not in
    the text: the three files of that preparation.

    Protocol "official": lamb's, in which the LEM paper's numbers were made. Its plain metric counts as
    "clean". Source: Rusch et al., LEM, ICLR 2022, https://arxiv.org/abs/2110.04744, Tables 6 and 7, and the
    settings in its repository; lamb: Melis, Dyer and Blunsom, https://arxiv.org/abs/1707.05589. Departures
    from lamb: a new place and a state of zero for each epoch, where lamb goes on and moves each head by up to
    100 sentences now and then; no unknown token beyond the one of the text (10,000 words, not 10,001); L2
    acts after clipping, as torch's Adam has it.

    Args: bptt: T of training; loss: "summed" or "mean"; epoch_steps: batches of an epoch, null for one pass;
    eval_streams: S.
    """

    datasets = (PTB,)
    readout: ClassVar[Readout] = "every"
    tokens: ClassVar[bool] = True
    unit: ClassVar[Literal["word", "char"]]
    n_ids: ClassVar[int]  # of the real text

    def __init__(
        self, *, bptt: int, loss: str, epoch_steps: int | None, eval_streams: int, protocol: str
    ) -> None:
        one_of("protocol", protocol, ("official",))
        one_of("loss", loss, ("summed", "mean"))
        each(positive, bptt=bptt, eval_streams=eval_streams)
        if epoch_steps is not None:
            positive("epoch_steps", epoch_steps)
        self.bptt, self.summed, self.epoch_steps = bptt, loss == "summed", epoch_steps
        self.eval_streams, self.protocol = eval_streams, protocol
        self.d_in = self.d_out = self.n_ids
        self.temperature = 1.0

    def load(self, store: Store, split: int) -> None:
        arrays = store.read(PTB)
        self.words = vocabulary(arrays, self.unit)
        self.d_in = self.d_out = len(self.words)
        self._ids: dict[str, Tensor] = {
            part: torch.from_numpy(arrays[f"{self.unit}_{part}"].astype(np.int64)) for part in PARTS
        }
        self.sizes = {part: len(ids) for part, ids in self._ids.items()}
        self._facts = {**self.data_facts(store), "n_ids": self.d_in}

    def to(self, device: str) -> None:
        self._ids = {part: ids.to(device) for part, ids in self._ids.items()}

    # ------------------------------------------------------------------ batches

    def steps_per_epoch(self, size: int) -> int:
        return self.epoch_steps or -(-self.sizes["train"] // (size * self.bptt))

    def batches(self, part: Part, size: int, rng: Generator | None = None) -> Iterator[Batch]:
        """`size` streams in train; in an evaluation `eval_streams`, whatever the size."""
        positive("size", size)
        yield from self._training(size, rng) if part == "train" else self._evaluation(part)

    def _training(self, size: int, rng: Generator | None) -> Iterator[Batch]:
        ids = self._ids["train"]
        n = len(ids)
        begin = 0 if rng is None else int(torch.randint(n, (), generator=rng))
        heads = begin + torch.arange(size, device=ids.device) * n // size
        for k in range(self.steps_per_epoch(size)):
            steps = k * self.bptt + torch.arange(self.bptt, device=ids.device)
            place = heads[:, None] + steps
            yield Batch(input=ids[(place - 1) % n], target=ids[place % n], carry=True)

    def _evaluation(self, part: Part) -> Iterator[Batch]:
        target = self._ids[part]
        input = target.roll(1)  # the last token of a text is an end of line, which now stands first
        n, n_streams = len(target), min(self.eval_streams, len(target))
        length = -(-n // n_streams)
        present = torch.arange(n_streams * length, device=target.device) < n
        pad = n_streams * length - n
        rows = [F.pad(ids, (0, pad)).view(n_streams, length) for ids in (input, target)]
        mask = present.view(n_streams, length)
        step = max(1, EVAL_STEPS // n_streams)
        for at in range(0, length, step):
            cut = slice(at, at + step)
            yield Batch(input=rows[0][:, cut], target=rows[1][:, cut], mask=mask[:, cut], carry=True)

    # ------------------------------------------------------------------ loss and scores

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        has_shape("output", output, (*batch.target.shape, self.d_out))
        nats = F.cross_entropy(output.flatten(0, 1), batch.target.flatten(), reduction="sum")
        return nats / (len(batch.target) if self.summed else batch.target.numel())

    def score(self, output: Tensor, batch: Batch) -> Sums:
        has_shape("output", output, (*batch.target.shape, self.d_out))
        plain = self._nats(output, batch, 1.0)
        tempered = plain if self.temperature == 1 else self._nats(output, batch, self.temperature)
        n = batch.target.numel() if batch.mask is None else int(batch.mask.sum())
        return {"nats_sum": plain, "tempered_sum": tempered, "n": float(n)}

    @staticmethod
    def _nats(output: Tensor, batch: Batch, temperature: float) -> float:
        """Cross entropy of the targets that count, summed."""
        logits = output.detach().flatten(0, 1) / temperature
        nats = F.cross_entropy(logits, batch.target.flatten(), reduction="none").double()
        return nats.sum().item() if batch.mask is None else nats[batch.mask.flatten()].sum().item()

    def finish(self, sums: Sums) -> Metrics:
        plain, tempered = sums["nats_sum"] / sums["n"], sums["tempered_sum"] / sums["n"]
        return {self.metric: self.of_nats(plain), f"{self.metric}_tempered": self.of_nats(tempered)}

    @staticmethod
    def of_nats(nats: float) -> float:
        """The metric of a mean cross entropy in nats."""
        raise NotImplementedError

    def calibrate(self, outputs: Callable[[Part], Iterator[tuple[Tensor, Batch]]]) -> dict[str, float]:
        """The temperature that is best on the first steps of all streams of valid, about 50,000 tokens."""
        total, n = dict.fromkeys(TEMPERATURES, 0.0), 0
        for output, batch in outputs("valid"):
            for temperature in TEMPERATURES:
                total[temperature] += self._nats(output, batch, temperature)
            n += batch.target.numel()
            if n >= TEMPERATURE_TOKENS:
                break
        self.temperature = min(TEMPERATURES, key=lambda t: total[t])
        return {"temperature": self.temperature}

    # ------------------------------------------------------------------ trivial references

    def references(self) -> dict[str, Metrics]:
        r"""All ids alike; their frequencies in train; and bigrams of train with absolute discounting.

        .. math:: p(w \mid v) = \frac{\max(c(v, w) - \delta, 0)}{c(v)} + \delta \frac{m(v)}{c(v)} p(w)

        for counts c, :math:`\delta` = 0.75, m(v) different ids after v, and p(w) the frequency of w.
        """
        train, test = self._ids["train"], self._ids["test"]
        unigram = torch.bincount(train, minlength=self.d_out).double() / len(train)
        probabilities = {
            "uniform": torch.full((len(test),), 1 / self.d_out, dtype=torch.float64),
            "unigram": unigram[test],
            "bigram": bigram(train, unigram, test.roll(1), test),
        }
        nats = {name: -p.log().sum().item() for name, p in probabilities.items()}
        n = float(len(test))
        return {name: self.finish({"nats_sum": s, "tempered_sum": s, "n": n}) for name, s in nats.items()}


class PTBWord(PennTreebank):
    """Words: 929,589 / 73,760 / 82,430 with an end of each line, of 10,000 kinds. Metric: perplexity."""

    unit: ClassVar[Literal["word", "char"]] = "word"
    n_ids: ClassVar[int] = 10_000
    metric: ClassVar[str] = "perplexity"
    better: ClassVar[Better] = {"perplexity": "lower", "perplexity_tempered": "lower"}
    scoring: ClassVar[dict[str, str]] = {"perplexity": "clean"}

    @staticmethod
    def of_nats(nats: float) -> float:
        return math.inf if nats > 700 else math.exp(nats)


class PTBChar(PennTreebank):
    """Characters: 5,017,482 / 393,042 / 442,423 with an end of each line, of 50 kinds, a blank written as _.

    Metric: bits per character, bpc.
    """

    unit: ClassVar[Literal["word", "char"]] = "char"
    n_ids: ClassVar[int] = 50
    metric: ClassVar[str] = "bpc"
    better: ClassVar[Better] = {"bpc": "lower", "bpc_tempered": "lower"}
    scoring: ClassVar[dict[str, str]] = {"bpc": "clean"}

    @staticmethod
    def of_nats(nats: float) -> float:
        return nats / math.log(2)


def bigram(ids: Tensor, unigram: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """p(w | v) of pairs, with the counts of a ring of ids; p(w) where v is not among them.

    Shapes: ids (N,), unigram (C,), v and w (M,).
    """
    n_ids, before = len(unigram), ids.roll(1)
    pairs, counts = torch.unique(before * n_ids + ids, return_counts=True)
    total = torch.bincount(before, minlength=n_ids)
    n_after = torch.bincount(pairs // n_ids, minlength=n_ids)
    place = torch.searchsorted(pairs, v * n_ids + w).clamp(max=len(pairs) - 1)
    seen = torch.where(pairs[place] == v * n_ids + w, counts[place].double() - DISCOUNT, 0.0)
    known = seen / total[v] + DISCOUNT * n_after[v] / total[v] * unigram[w]
    return known.where(total[v] > 0, unigram[w])
