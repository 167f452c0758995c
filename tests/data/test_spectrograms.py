"""Log-mel features against their formulas in NumPy, float64, and against values that those gave once."""

import numpy as np
import pytest
import torch

from physml.base.errors import InputError
from physml.data import spectrograms
from physml.data.spectrograms import N_FRAMES, N_MELS, RATE, _spectrogram, log_mel

# Entries [frame, band] of the features of `spoken(16000)` and `spoken(9000)` by `features` below. librosa
# 0.11 with pad_mode="reflect", default of the 0.8 that the official code used, agrees with it to 1e-6.
PLACES = ((0, 0), (0, 79), (17, 5), (35, 40), (62, 20), (69, 79), (100, 60), (125, 0), (125, 79))
STORED = {
    16000: (-1.148019, -1.017039, -1.095472, 1.078222, 2.226919, -1.009087, 0.276639, -0.634770, -0.962768),
    9000: (-1.504420, -1.406188, -1.103714, -0.000709, -0.287117, -1.407019, 1.019826, 1.019826, 1.019826),
}


def spoken(n: int, seed: int = 0) -> np.ndarray:
    """Something like a word: gliding harmonics under a swell, over noise, in steps of 1/32768."""
    t = np.arange(n) / RATE
    rng = np.random.RandomState(seed)
    pitch = 2 * np.pi * (140 * t + 60 * t**2)
    voice = sum(np.sin(k * pitch + k) / k for k in range(1, 25))
    wave = 0.2 * voice * np.sin(np.pi * t * RATE / n) ** 2 + 0.003 * rng.normal(size=n)
    return np.round(wave * 32768) / 32768


def slaney_mel(f: float) -> float:
    """Linear below 1000 Hz, 15 mel there; above, 27 mel for each factor of 6.4."""
    return f * 3 / 200 if f < 1000 else 15 + 27 * np.log(f / 1000) / np.log(6.4)


def slaney_hertz(mel: float) -> float:
    return mel * 200 / 3 if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27)


CORNERS = [slaney_hertz(m) for m in np.linspace(slaney_mel(40.0), slaney_mel(8000.0), N_MELS + 2)]


def triangles() -> np.ndarray:
    """(513, 80): band m rises from corner m to m + 1 and falls to m + 2, with area 1 over Hz."""
    bands = np.zeros((513, N_MELS))
    for m in range(N_MELS):
        low, top, high = CORNERS[m : m + 3]
        for k in range(513):
            f = k * RATE / 1024
            height = min((f - low) / (top - low), (high - f) / (high - top))
            bands[k, m] = max(0.0, height) * 2 / (high - low)
    return bands


def decibels(wave: np.ndarray) -> np.ndarray:
    """(1 + n // 128, 80), loudest entry 0 and none below -80."""
    around = np.concatenate([wave[512:0:-1], wave, wave[-2:-514:-1]])
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(1024) / 1024)
    frames = [around[128 * k : 128 * k + 1024] * window for k in range(1 + len(wave) // 128)]
    amplitude = np.abs(np.fft.rfft(frames)) @ triangles()
    level = 10 * np.log10(np.maximum(amplitude, 1e-10))
    level -= 10 * np.log10(max(amplitude.max(), 1e-10))
    return np.maximum(level, level.max() - 80)


def features(wave: np.ndarray) -> np.ndarray:
    """(126, 80), cut or filled up with 0 dB, then of mean 0 and standard deviation 1 where it can be."""
    level = decibels(wave)[:N_FRAMES]
    level = np.vstack([level, np.zeros((N_FRAMES - len(level), N_MELS))])
    return (level - level.mean()) / level.std(ddof=1) if level.std() else level


def ours(*waves: np.ndarray, dtype: torch.dtype = torch.float64) -> np.ndarray:
    longest = max(map(len, waves))
    rows = [np.concatenate([wave, np.full(longest - len(wave), 7.0)]) for wave in waves]
    lengths = torch.tensor([len(wave) for wave in waves])
    return log_mel(torch.tensor(np.array(rows), dtype=dtype), lengths).numpy()


def test_the_filters_are_slaney_triangles_and_without_torchaudio_the_same(monkeypatch) -> None:
    transform = _spectrogram(torch.device("cpu"), torch.float64)  # torchaudio's, where that works
    fb = (transform.mel_scale.fb if hasattr(transform, "mel_scale") else spectrograms.mel_bands()).numpy()
    want = triangles()
    assert fb.shape == (513, N_MELS)
    assert np.abs(fb - want).max() < 1e-5 * want.max()
    widths = want.sum(0) * RATE / 1024
    assert widths[40:] == pytest.approx(1, abs=0.05)  # area 1, as far as the grid of frequencies resolves it
    # torchaudio ends at one release of torch, and breaks beside a later one.
    wave = spoken(16000)
    usual = ours(wave)
    monkeypatch.setattr(spectrograms, "working", lambda name: None)
    spectrograms._spectrogram.cache_clear()
    assert isinstance(_spectrogram(torch.device("cpu"), torch.float64), spectrograms.MelAmplitudes)
    assert ours(wave) == pytest.approx(usual, abs=5e-5)  # torchaudio rounds its bands to float32
    assert ours(wave)[0] == pytest.approx(features(wave), abs=1e-9)
    assert spectrograms.mel_bands().numpy() == pytest.approx(triangles(), abs=1e-12)
    spectrograms._spectrogram.cache_clear()


@pytest.mark.parametrize("n", [1024, 1025, 5000, 9000, 15999, 16000])
def test_features_are_the_formulas_and_the_stored_values(n):
    """Missing frames are as loud as the loudest entry."""
    got = ours(spoken(n))[0]
    assert got.shape == (N_FRAMES, N_MELS)
    assert np.abs(got - features(spoken(n))).max() < 5e-5
    if n in STORED:
        assert [got[place] for place in PLACES] == pytest.approx(STORED[n], abs=5e-5)
    n_present = 1 + n // 128
    assert (got[n_present:] == got.max()).all() and (got[:n_present] == got.max()).sum() == 1


def test_a_clip_in_a_batch_is_as_it_is_alone_and_single_precision_is_enough():
    """Alone, whatever stands behind its end, and however long the others are."""
    waves = [spoken(n, n) for n in (16000, 1024, 9001, 12800)]
    double, single = ours(*waves), ours(*waves, dtype=torch.float32)
    assert single.dtype == np.float32
    for k, wave in enumerate(waves):
        assert double[k] == pytest.approx(ours(wave)[0], abs=1e-10)
        assert np.abs(single[k] - features(wave)).max() < 1e-3


def test_loudness_has_no_part_and_a_long_recording_is_cut_after_its_loudest_entry() -> None:
    assert ours(0.05 * spoken(16000)) == pytest.approx(ours(spoken(16000)), abs=1e-9)
    assert not ours(np.zeros(16000), np.zeros(5000)).any()
    band = ours(np.sin(2 * np.pi * 1000 * np.arange(16000) / RATE))[0, 60].argmax()
    assert CORNERS[band] < 1000 < CORNERS[band + 2]
    # As in the official code: if it gets louder later, its first second is all far below 0 dB.
    wave = np.concatenate([0.01 * spoken(16000), spoken(16000)])
    got = ours(wave)[0]
    assert got == pytest.approx(features(wave), abs=5e-5)
    assert decibels(wave)[:120].max() < -15
    assert got.mean() == pytest.approx(0, abs=1e-12) and got.std(ddof=1) == pytest.approx(1)


@pytest.mark.parametrize(
    ("shape", "lengths", "says"),
    [
        ((16000,), [16000], r"wave must have shape \(B, L\)"),
        ((2, 16000), [16000], r"lengths must have shape \(2\)"),
        ((1, 16000), [1023], r"lengths must lie in \[1024, 16000\].*got 1023"),
        ((1, 16000), [16001], r"got 16001 to 16001"),
    ],
)
def test_what_is_no_batch_of_clips_is_refused(shape, lengths, says):
    with pytest.raises(InputError, match=says):
        log_mel(torch.zeros(shape), torch.tensor(lengths))
