"""Arrays beside a record: which steps a trained LEM uses."""

from pathlib import Path

import numpy as np
import pytest
import torch

from physml.data.store import Store
from physml.errors import ConfigError
from physml.models.gated import TanhRNN
from physml.models.lem import LEM
from physml.training.collectors import TimeScales
from tasks.adding import Adding


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Adding:
    task = Adding(length=12, n_eval=50, epoch_steps=2, protocol="clean")
    task.load(Store(None, Path(tmp_path_factory.mktemp("cache"))), 0)
    return task


def net() -> LEM:
    torch.manual_seed(0)
    return LEM(2, 4, dt=1.0)


def test_the_sample_is_one_of_all_entries_whatever_the_batches(task: Adding) -> None:
    n = 50 * 12 * 4
    layer = net()
    (batch,) = task.batches("test", 50)
    with torch.no_grad():
        every = [scale.flatten().numpy() for scale in layer.time_scales(batch.input)]
    some = TimeScales(n=100).collect(layer, task, 50, "cpu")
    whole = TimeScales(n=10 * n).collect(layer, task, 50, "cpu")
    for i, name in enumerate(("dt_n", "dtbar_n")):
        assert some[name].shape == (100,) and some[name].dtype == np.float32
        assert np.isin(some[name], every[i]).all()
        assert np.sort(whole[name]) == pytest.approx(np.sort(every[i]))
        assert TimeScales(n=100).collect(layer, task, 7, "cpu")[name] == pytest.approx(some[name], abs=1e-6)


def test_a_net_without_learned_scales_is_refused(task: Adding) -> None:
    with pytest.raises(ConfigError, match="needs a layer with learned time scales, such as LEM"):
        TimeScales(n=3).collect(TanhRNN(2, 4), task, 8, "cpu")
