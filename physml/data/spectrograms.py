"""Log-mel features of one-second clips. Axes: B clips, L samples, K frames, M mel bands."""

import functools
import math

import torch
from torch import Tensor, nn

from physml.base.check import has_shape
from physml.base.errors import InputError, working

RATE = 16_000  # samples per second
N_FFT, HOP = 1024, 128  # samples of a frame, and from one frame to the next
N_MELS = 80
F_MIN, F_MAX = 40.0, 8000.0  # Hz
N_FRAMES = 126  # of one second: 1 + 16000 // 128
AMIN, TOP_DB = 1e-10, 80.0  # the least amplitude that counts, and dB below the loudest entry


def log_mel(wave: Tensor, lengths: Tensor) -> Tensor:
    r"""The input of the official LEM code for Google12: amplitudes in mel bands, in decibels, normalised.

    With the periodic Hann window w, the clip x reflected at both of its ends, and the triangles
    :math:`\Lambda_m` of the Slaney scale, each of area 1 over frequency in Hz:

    .. math::
        A_{mk} &= \sum_f \Lambda_m(f)\,
            \Big|\sum_{j<1024} w_j\, x_{128 k + j - 512}\, e^{-2\pi i f j/1024}\Big| \\
        S_{mk} &= \max(P_{mk}, \max P - 80), \qquad
        P_{mk} = 10 \log_{10} \frac{\max(A_{mk}, 10^{-10})}{\max(\max A, 10^{-10})}

    A clip of n samples has 1 + n // 128 frames; its maxima are over these alone. Frames after 126 are cut;
    missing ones become 0 dB, which is the loudest entry and not silence. Last, the mean of all 126 x 80
    entries is taken off and their standard deviation (with n - 1) divided out; a clip of equal entries stays
    as it is.

    Source: LEM code (https://github.com/tk-rusch/LEM, Google12), which calls librosa 0.8: `melspectrogram`
    with power 1 (amplitudes, not energies), then `power_to_db`, meant for energies, with ref = max.

    Args: wave: clips, each from its first sample on, filled up behind its end with anything; its scale does
    not matter above amin. lengths: samples of each clip, at least 1024.
    Shapes: wave (B, L) floating, lengths (B,) -> (B, 126, 80), frames first.

    Example:
        >>> log_mel(torch.randn(2, 16000), torch.tensor([16000, 9000])).shape
        torch.Size([2, 126, 80])
    """
    has_shape("wave", wave, ("B", "L"), hint="Clips, then samples.")
    has_shape("lengths", lengths, (wave.shape[0],), hint="Samples of each clip.")
    if not N_FFT <= int(lengths.min()) <= int(lengths.max()) <= wave.shape[1]:
        raise InputError(
            f"lengths must lie in [{N_FFT}, {wave.shape[1]}], from one frame to all samples of wave; "
            f"got {int(lengths.min())} to {int(lengths.max())}."
        )
    lengths = lengths.to(wave.device, torch.int64)
    A = _spectrogram(wave.device, wave.dtype)(_reflected(wave, lengths)).transpose(1, 2)  # (B, K, M)
    present = torch.arange(A.shape[1], device=A.device) < (1 + lengths // HOP)[:, None]  # (B, K)
    S = _decibels(A, present)[:, :N_FRAMES]
    S = nn.functional.pad(S, (0, 0, 0, N_FRAMES - S.shape[1]))
    mean, std = S.mean((1, 2), keepdim=True), S.std((1, 2), keepdim=True)
    return torch.where(std > 0, (S - mean) / std, S)


def _reflected(wave: Tensor, lengths: Tensor) -> Tensor:
    """Half a frame more at both ends, mirrored at each clip's own end. (B, L) -> (B, L + 1024)."""
    last = (lengths - 1)[:, None]
    j = torch.arange(-N_FFT // 2, wave.shape[1] + N_FFT // 2, device=wave.device).abs()
    j = torch.where(j > last, 2 * last - j, j).clamp_min(0)  # below 0: only in frames that are not there
    return wave.gather(1, j)


def _decibels(A: Tensor, present: Tensor) -> Tensor:
    """S (B, K, M), with 0 dB in the frames that are not there."""
    A = torch.where(present[:, :, None], A, 0.0).clamp_min(AMIN)
    P = 10.0 * (A.log10() - A.amax((1, 2), keepdim=True).log10())
    return torch.where(present[:, :, None], P.clamp_min(-TOP_DB), 0.0)


@functools.lru_cache(maxsize=4)
def _spectrogram(device: torch.device, dtype: torch.dtype) -> nn.Module:
    """A from the reflected clip, by torchaudio where it works; its own defaults are other ones."""
    if (audio := working("torchaudio")) is None:
        return MelAmplitudes().to(device, dtype)
    transform: nn.Module = audio.transforms.MelSpectrogram(
        sample_rate=RATE,
        n_fft=N_FFT,
        hop_length=HOP,
        f_min=F_MIN,
        f_max=F_MAX,
        n_mels=N_MELS,
        power=1.0,
        center=False,
        norm="slaney",
        mel_scale="slaney",
    )
    return transform.to(device, dtype)


class MelAmplitudes(nn.Module):
    """A from the reflected clip, in torch alone. Shapes: (B, L) -> (B, M, K)."""

    window: Tensor
    bands: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(N_FFT, dtype=torch.float64))
        self.register_buffer("bands", mel_bands())

    def forward(self, wave: Tensor) -> Tensor:
        spectrum = torch.stft(wave, N_FFT, HOP, window=self.window, center=False, return_complex=True)
        return self.bands.T @ spectrum.abs()


def mel_bands() -> Tensor:
    r"""The triangles :math:`\Lambda_m` of the Slaney scale: (513, 80), float64.

    The scale is linear below 1000 Hz, 3 mel for 200 Hz; above it 27 mel lie between f and 6.4 f. Band m rises
    from corner m to m + 1 and falls to m + 2, corners lie evenly in mel, and each area is 1 over Hz.
    """
    low = F_MIN * 3 / 200
    high = 15 + 27 * math.log(F_MAX / 1000) / math.log(6.4)
    mel = torch.linspace(low, high, N_MELS + 2, dtype=torch.float64)
    corners = torch.where(mel < 15, mel * 200 / 3, 1000 * 6.4 ** ((mel - 15) / 27))
    f = torch.linspace(0, RATE / 2, N_FFT // 2 + 1, dtype=torch.float64)[:, None]
    left, top, right = corners[:-2], corners[1:-1], corners[2:]
    rise, fall = (f - left) / (top - left), (right - f) / (right - top)
    return torch.minimum(rise, fall).clamp_min(0) * 2 / (right - left)
