"""What layers add to the loss in training."""

import pytest
import run_harness as h
import torch
from torch import nn

from physml.models.sequence.soft_orthogonal import SoftOrthogonalRNN
from physml.training.trainer import Trainer, penalties


def trained(weight: float) -> Trainer:
    """One epoch of the soft orthogonal network, from twice an orthogonal matrix."""
    spec = h.spec_of(
        h.odd("trainer.epochs=1", "optim.lr=0", "model=soft_orthogonal", f"model.orthogonality={weight}")
    )
    rows: list = []
    trainer = h.odd_trainer(spec, rows=rows)
    trainer.net.layers[0].W.data.mul_(2.0)
    trainer.fit()
    trainer.loss = rows[-1]["train/loss"]
    return trainer


def test_the_penalties_of_all_layers_are_part_of_the_loss_that_is_trained():
    plain, penalised = trained(0.0), trained(0.5)
    H = plain.net.layers[0].d_out
    assert penalised.loss - plain.loss == pytest.approx(0.5 * 9 * H, rel=1e-4)  # W^T W - I = 3 I
    net = nn.Sequential(nn.Linear(2, 2), SoftOrthogonalRNN(2, 3, orthogonality=1.0), SoftOrthogonalRNN(3, 3))
    terms = [penalty() for penalty in penalties(net)]
    assert len(terms) == 2 and terms[1] is None and isinstance(terms[0], torch.Tensor)
