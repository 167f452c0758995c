"""Google Speech Commands v0.02: spoken words in wav files, a folder per word. No torch here.

Axes: N clips, L = 16,000 samples, R recordings of noise.
"""

import io
import itertools
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import numpy as np

from physml.base.errors import needed_by, suggest
from physml.data.datasets import Arrays, DataSet, Files
from physml.data.files.archives import Tree
from physml.data.files.limits import WrongFile
from physml.data.readers.fixtures import write_tar

ARCHIVE = "speech_commands_v0.02.tar.gz"
NOISE = "_background_noise_"
COMMANDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
_OTHERS = (
    "backward bed bird cat dog eight five follow forward four happy house learn marvin nine one seven sheila "
    "six three tree two visual wow zero"
)
AUXILIARY = tuple(_OTHERS.split())
WORDS = tuple(sorted(COMMANDS + AUXILIARY))
LISTS = {"valid": "validation_list.txt", "test": "testing_list.txt"}
PARTS = ("train", "valid", "test")
RATE = LENGTH = 16_000  # samples per second, and the longest clip
SHORTEST = 1024  # samples; one frame of the features that are made of it

N_CLIPS = 105_829
PER_WORD = {"command": (3, 1, 1), "auxiliary": (1, 1, 1)}  # clips of a fixture, by part
N_FIXTURE = sum(sum(PER_WORD["command" if word in COMMANDS else "auxiliary"]) for word in WORDS)


def _read(files: Files) -> Arrays:
    """Clips in the order train, valid, test, in each by name; whatever is shorter has zeros behind its end.

    wave (N, 16000) int16, length (N,) int32, word (N,) uint8, the position in WORDS; sizes (3,), clips of
    each part; noise, int16, all samples of the R recordings, one after the other, and noise_length (R,).
    """
    tree = files.tree(ARCHIVE)
    names = _names(tree)
    order, sizes = _order(tree, [name for name in names if not name.startswith(NOISE)])
    if len(order) not in files.sizes(N_CLIPS, N_FIXTURE):
        raise WrongFile(f"{tree.path}: {len(order)} clips, expected {N_CLIPS}: partly unpacked.")
    n = len(order)
    wave, length = np.zeros((n, LENGTH), np.int16), np.zeros(n, np.int32)
    word = np.array([WORDS.index(PurePosixPath(name).parent.name) for name in order], np.uint8)
    noise: dict[str, np.ndarray] = {}
    for name, content in tree.items("*.wav"):
        samples = _samples(f"{tree.path}: {name}", content)
        if name.startswith(NOISE):
            noise[name] = samples
            continue
        if len(samples) > LENGTH:
            raise WrongFile(f"{tree.path}: {name} has {len(samples)} samples; clips have at most {LENGTH}.")
        i = order[name]
        wave[i, : len(samples)], length[i] = samples, len(samples)
    recordings = [noise[name] for name in sorted(noise)]
    return {
        "wave": wave,
        "length": length,
        "word": word,
        "sizes": np.array([sizes[part] for part in PARTS]),
        "noise": np.concatenate(recordings),
        "noise_length": np.array([len(recording) for recording in recordings]),
    }


def _names(tree: Tree) -> list[str]:
    """All wav files, after a look at their folders: each word there, and nothing foreign."""
    names = [name for name in tree.names() if name.endswith(".wav")]
    folders = {PurePosixPath(name).parent.as_posix() for name in names}
    known = {*WORDS, NOISE}
    for folder in sorted(folders - known):
        raise WrongFile(
            f"{tree.path}: folder {folder} is no word of Speech Commands. {suggest(folder, known)}"
        )
    for folder in sorted(known - folders):
        raise WrongFile(
            f"{tree.path}: there is no wav file in folder {folder}: partly unpacked or of another version. "
        )
    return names


def _order(tree: Tree, clips: list[str]) -> tuple[dict[str, int], dict[str, int]]:
    """The position of each clip, and the sizes of the parts: train is what is in neither list."""
    texts = dict(tree.items("*_list.txt"))
    known = set(clips)
    parts: dict[str, str] = {}
    for part, name in LISTS.items():
        if name not in texts:
            raise tree.missing(name)
        listed = texts[name].decode("utf-8", "replace").split()
        if not listed:
            raise WrongFile(f"{tree.path}: {name} is empty.")
        for i, clip in enumerate(listed, 1):
            if clip not in known:
                raise WrongFile(
                    f"{tree.path}: {name}, line {i}, names {clip[:80]}, which is not there: partly "
                    "unpacked or foreign."
                )
            if parts.setdefault(clip, part) != part:
                raise WrongFile(f"{tree.path}: {name}, line {i}: {clip} is in {LISTS['valid']} too.")
    ordered = [[c for c in sorted(clips) if parts.get(c, "train") == part] for part in PARTS]
    sizes = {part: len(part_clips) for part, part_clips in zip(PARTS, ordered, strict=True)}
    return {clip: i for i, clip in enumerate(itertools.chain(*ordered))}, sizes


def _samples(where: str, content: bytes) -> np.ndarray:
    """The samples of a wav file, int16; DataError for any other than 16 kHz, one channel, 16 bits."""
    with needed_by("Speech Commands"):
        import soundfile

    if not content:
        raise WrongFile(f"{where} is empty.")
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            encoding = f"{file.format} {file.subtype}, {file.samplerate} Hz, {file.channels} channel(s)"
            right = (file.subtype, file.samplerate, file.channels) == ("PCM_16", RATE, 1)
            right &= file.format in ("WAV", "WAVEX")  # two ways to write the same header
            samples = file.read(dtype="int16") if right else None
    except soundfile.SoundFileError as error:
        said = getattr(error, "error_string", error)  # without the name of our buffer
        raise WrongFile(f"{where} is not a valid wav file: {said}") from error
    if samples is None:
        raise WrongFile(f"{where} must be WAV PCM_16, {RATE} Hz, 1 channel; got {encoding}.")
    promised = _promised(content)
    if len(samples) < promised:
        raise WrongFile(f"{where} is cut off: {len(samples)} of {promised} samples are there.")
    if len(samples) < SHORTEST:
        raise WrongFile(
            f"{where} has {len(samples)} samples; the features need at least {SHORTEST}, one frame."
        )
    return samples


def _promised(content: bytes) -> int:
    """Samples of 16 bits that the header of a wav file counts; 0 where it was written as a stream."""
    at = 12
    while at + 8 <= len(content):
        size = int.from_bytes(content[at + 4 : at + 8], "little")
        if content[at : at + 4] == b"data":
            return 0 if size == 0xFFFFFFFF else size // 2
        at += 8 + size + size % 2
    return 0


def _items(arrays: Arrays) -> Iterable[bytes]:
    """Each clip with its part and word, and each recording of noise."""
    part = np.repeat(PARTS, arrays["sizes"])
    for i, n in enumerate(arrays["length"]):
        head = f"{part[i]} {WORDS[arrays['word'][i]]} "
        yield head.encode() + arrays["wave"][i, :n].astype("<i2").tobytes()
    for recording in np.split(arrays["noise"], np.cumsum(arrays["noise_length"])[:-1]):
        yield b"noise " + recording.astype("<i2").tobytes()


def _fixture(root: Path) -> None:
    """A tar.gz as upstream's, without a folder around it; each word has its own pitch."""
    members = {"README.md": b"A tiny set in the form of Speech Commands v0.02.\n"}
    listed: dict[str, list[str]] = {name: [] for name in LISTS.values()}
    for w, word in enumerate(WORDS):
        speaker = 0
        for part, n in zip(PARTS, PER_WORD["command" if word in COMMANDS else "auxiliary"], strict=True):
            for _ in range(n):
                name = f"{word}/{0xA0000000 + 977 * speaker + w:08x}_nohash_0.wav"
                length = LENGTH if (w + speaker) % 8 == 0 else 2000 + 100 * w
                members[name] = wav(tone(length, period=8 + 2 * w, level=4000 + 1000 * speaker))
                speaker += 1
                if part != "train":
                    listed[LISTS[part]].append(name)
    for i, noise in enumerate(("pink_noise", "white_noise")):
        members[f"{NOISE}/{noise}.wav"] = wav(tone(170_000, period=97 + 13 * i, level=800))
    members |= {name: "".join(f"{clip}\n" for clip in clips).encode() for name, clips in listed.items()}
    write_tar(root / ARCHIVE, {f"./{name}": members[name] for name in sorted(members)})


def tone(n: int, period: int, level: int) -> np.ndarray:
    """A sawtooth that swells and fades, int16."""
    i = np.arange(n)
    saw = (i % period) / period - 0.5
    return (level * saw * np.minimum(1, 8 * (1 - np.abs(2 * i / n - 1)))).astype(np.int16)


def wav(samples: np.ndarray, rate: int = RATE, subtype: str = "PCM_16") -> bytes:
    """The bytes of a wav file. Shapes: samples (L,) or (L, channels)."""
    with needed_by("Speech Commands"):
        import soundfile

    file = io.BytesIO()
    soundfile.write(file, samples, rate, subtype=subtype, format="WAV")
    return file.getvalue()


SPEECH_COMMANDS = DataSet("speech_commands", 1, _read, _fixture, _items)
