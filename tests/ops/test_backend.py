"""The choice of a backend, tried on a recurrence made up for it: y_n = y_{n-1} + w u_n, z unchanged."""

import importlib
import importlib.util
import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from refusals import refuses

from physml.base.errors import InputError
from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.lem import LEM
from physml.ops import backend as backends
from physml.ops.backend import Op

MODULE = """
import torch


def refusal(u, y, z, w):
    return None if u.dtype == w.dtype == {dtype} else f"backend {name} knows {dtype} only; got {{u.dtype}}."


def pays(n_batch, n_steps, n_hidden, trained):
    assert (n_batch, n_hidden, trained) == (2, 3, False)
    return n_steps > 1


def wave(u, y, z, w, *, scale):
    y = y[:, None] + (scale * w * u).cumsum(1)
    return y, y[:, -1], z
"""


def plain(u, y, z, w, *, scale):
    y = y[:, None] + (scale * w * u).cumsum(1)
    return y, y[:, -1], z


pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Makes the recurrence with the given late modules, in a package of its own."""
    monkeypatch.syspath_prepend(tmp_path)

    def made(package="made_up", **late):
        (tmp_path / package / "wave").mkdir(parents=True)
        for folder in (package, f"{package}/wave"):
            (tmp_path / folder / "__init__.py").touch()
        for file, text in late.items():
            (tmp_path / package / "wave" / f"{file}.py").write_text(text)
        importlib.invalidate_caches()
        return Op(f"{package}.wave", reference=plain, torch=plain)

    yield made
    for name in [n for n in sys.modules if n.partition(".")[0].startswith("made_up")]:
        del sys.modules[name]


def native(dtype="u.dtype", name="native"):
    return MODULE.format(dtype=dtype, name=name)


def call(op, backend="auto", n_steps=4, dtype=torch.float32, why=None):
    u = torch.ones(2, n_steps, 3, dtype=dtype)
    y = torch.zeros(2, 3, dtype=dtype)
    return op(u, y, y, torch.ones(3, dtype=dtype), backend=backend, plain=why, scale=2)[0]


def warnings(caplog):
    return [r.getMessage() for r in caplog.records if r.name == "physml"]


def test_auto_takes_native_where_it_pays(make, caplog):
    op = make(native=native())
    assert torch.equal(call(op)[0, :, 0], torch.tensor([2.0, 4.0, 6.0, 8.0]))
    assert backends.ran() == ("native",)
    call(op, n_steps=1)
    assert backends.ran() == ("native", "reference")
    backends.reset()
    call(make("made_up_alone"))  # no module is no reason to speak
    assert backends.ran() == ("torch",) and warnings(caplog) == []


def test_auto_takes_triton_on_a_gpu_and_torch_elsewhere(make):
    op = make(native=native(), triton=native(name="triton"))
    u, y, w = torch.ones(2, 4, 3), torch.zeros(2, 3), torch.ones(3)
    on_gpu = SimpleNamespace(
        device=torch.device("cuda", 0), dtype=u.dtype, shape=u.shape, requires_grad=False
    )
    for x, fastest in ((u, "native"), (u.to("meta"), "torch"), (on_gpu, "triton")):
        assert op._fastest((x, y, y, w), None) == fastest


def test_a_fall_back_is_warned_of_once_per_reason_and_run(make, caplog):
    op = make(native=native("torch.float64"))
    for _ in range(3):
        call(op)
    line = "wave: backend native knows torch.float64 only; got torch.float32. Backend torch computes it."
    assert warnings(caplog) == [line]
    call(op, dtype=torch.float16)
    assert len(warnings(caplog)) == 2 and caplog.records[0].levelno == logging.WARNING
    with backends.running("auto"):
        call(op)
    assert len(warnings(caplog)) == 3


def test_what_only_the_reference_knows(make, caplog):
    op = make(native=native())
    call(op, why="only the reference learns it")
    assert backends.ran() == ("reference",) and warnings(caplog) == []
    with pytest.raises(InputError, match=r"wave with backend='native': only the reference learns it. Use "):
        call(op, "native", why="only the reference learns it")


def test_a_package_that_is_missing_or_broken_is_told(make, caplog):
    with pytest.raises(ModuleNotFoundError, match=r"physml\.nowhere"):  # our own is not hidden
        call(make("made_up_too", native="import physml.nowhere"))
    call(make(native="import made_up_package_that_nobody_has"))
    assert warnings(caplog) == [
        "wave: backend native can't be imported: No module named 'made_up_package_that_nobody_has'. "
        "Backend torch computes it."
    ]


@pytest.mark.parametrize("name", ["reference", "torch", "native"])
def test_a_required_backend_runs(make, name):
    call(make(native=native()), name, n_steps=1)  # native too, where it does not pay
    assert backends.ran() == (name,)


def test_where_a_preference_cannot_be_used_another_backend_runs_with_a_warning(make, caplog):
    op = make(native=native())
    with backends.running("triton"):
        call(op)
        call(op)
        assert backends.ran() == ("native",)
    assert warnings(caplog) == [
        "wave: runtime.backend=triton: there is no backend triton for wave. Backend native computes it."
    ]
    with backends.running("native"):
        call(make("made_up_too", native=native("torch.float64")))
        assert backends.ran() == ("torch",)
    assert len(warnings(caplog)) == 2


def test_what_cannot_be_done_and_a_misspelt_preference_are_refused(make):
    op = make(native=native("torch.float64"))
    refuses(InputError, r"float64 only; got torch.float32. Use backend='auto'", call, op, "native")
    refuses(InputError, "there is no backend triton for wave", call, op, "triton")
    refuses(InputError, "Did you mean native", call, op, "nativ")
    assert backends.ran() == ()
    with pytest.raises(InputError, match=r"runtime\.backend.*Did you mean triton"), backends.running("trton"):
        pass


def test_a_layers_own_word_goes_before_the_run_wide_one_and_what_ran_can_be_set_back(make):
    op = make(native=native())
    with backends.running("reference"):
        call(op)
        assert backends.ran() == ("reference",)
        call(op, "native")
        assert backends.ran() == ("native", "reference")
    assert backends.ran() == ()
    with backends.running("native"):
        call(op, n_steps=1)  # where it would not pay
        assert backends.ran() == ("native",)
    call(op)
    backends.reset()
    assert backends.ran() == ()
    backends.reset(["native"])
    call(op, "torch")
    assert backends.ran() == ("native", "torch")


def test_two_threads_may_be_the_first_at_once(make):
    op = make(native="import time\ntime.sleep(0.05)\n" + native())
    with ThreadPoolExecutor(4) as threads:
        assert len(list(threads.map(call, [op] * 4))) == 4
    assert backends.ran() == ("native",)


@pytest.mark.parametrize("layer", [LEM(2, 3, dt=0.5), CoRNN(2, 3, dt=0.1, gamma=1.0, epsilon=1.0)])
def test_layers_tell_what_computed_them(layer):
    u = torch.randn(2, 5, 2)
    plain_outputs = {}
    for name in ("reference", "torch"):
        with backends.running(name):
            plain_outputs[name] = layer(u)[0]
            assert backends.ran() == (name,)
    torch.testing.assert_close(plain_outputs["torch"], plain_outputs["reference"])


def test_a_trainable_cornn_takes_the_reference_whatever_is_preferred(caplog):
    layer = CoRNN(2, 3, dt=0.1, gamma=1.0, epsilon=1.0, trainable=True)
    layer(torch.randn(2, 5, 2))
    assert backends.ran() == ("reference",) and warnings(caplog) == []
    with backends.running("native"):
        layer(torch.randn(2, 5, 2))
        assert backends.ran() == ("reference",)
    assert warnings(caplog) == [
        "cornn: runtime.backend=native: only backend reference has gradients for dt, gamma and epsilon. "
        "Backend reference computes it."
    ]


def test_importing_the_layers_imports_no_late_backend():
    late = [
        f"physml.ops.{name}.{file}" for name in ("lem", "cornn", "unicornn") for file in ("native", "triton")
    ]
    text = (
        "import sys; from physml.models.sequence import cornn, lem, unicornn; "
        f"found = [n for n in ['triton', *{late}] if n in sys.modules]; assert not found, found"
    )
    subprocess.run([sys.executable, "-c", text], check=True, cwd=Path(__file__).parents[2])


def test_the_choice_looks_for_modules_once_and_holds_no_lock(make, monkeypatch):
    op, searched = make(native=native()), []
    call(op)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: searched.append(name) or find_spec(name))
    with backends._lock:  # another thread imports a module of another op
        call(op)
        call(op, "native")
        assert not op.has("triton")
    assert searched == []
