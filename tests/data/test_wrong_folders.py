"""Wrong data folders: refused before anything is trained, by name, with what to do; nothing is cached.

Every folder starts as the fixture of a data set, which is in the upstream format, and is then spoilt.
Run with -s to see the messages.
"""

import functools
import gzip
import io
import pickle
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each import run_all
from refusals import refuses
from unpacked import unpack

from physml.base.errors import DataError
from physml.base.paths import own_folders
from physml.data.datasets import DataSet
from physml.data.readers import (
    bidmc,
    bidmc_tsr,
    cifar10,
    ecg5000,
    eigenworms,
    glove,
    har,
    imdb,
    large_graphs,
    mnist,
    musae,
    planetoid,
    ppi,
    ptb,
    shchur,
    superpixels,
    syn_cora,
    webkb,
    zinc,
)
from physml.data.readers import speech_commands as speech
from physml.data.readers.fixtures import write_tar, write_zip
from physml.data.store import Store

Change = Callable[[Path], object]
Members = dict[str, bytes]
Sound = Callable[[DataSet], Path]

WHAT_TO_DO = r"`physml data get \w+`|PHYSML_DATA|data\.verify="
PAGE = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>Please sign in.</body></html>\n"


# ---------------------------------------------------------------------------- ways to spoil a file


def spoiling(spoil: Callable[..., None]) -> Callable[..., Change]:
    """Bind all arguments but the folder that is to be spoilt."""
    return lambda *arguments, **options: lambda root: spoil(root, *arguments, **options)


@spoiling
def edited(root: Path, name: str, edit: Callable[[bytes], bytes]) -> None:
    before = (root / name).read_bytes()
    (root / name).write_bytes(edit(before))
    assert (root / name).read_bytes() != before, "the pattern stands nowhere"


def flip(name: str, at: float = 0.5) -> Change:
    def edit(content: bytes) -> bytes:
        k = int(at * len(content))
        return content[:k] + bytes([content[k] ^ 0xFF]) + content[k + 1 :]

    return edited(name, edit)


def cut(name: str, keep: float = 0.6) -> Change:
    return edited(name, lambda content: content[: int(keep * len(content))])


def put(name: str, content: bytes) -> Change:
    return edited(name, lambda _: content)


def first_place(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda content: re.sub(old, new, content, count=1, flags=re.M)


def text(name: str, old: str, new: str) -> Change:
    """Other words in a text file: the first place where a pattern stands."""
    return edited(name, first_place(old.encode(), new.encode()))


@spoiling
def drop(root: Path, name: str) -> None:
    (root / name).unlink()


@spoiling
def part(root: Path, name: str) -> None:
    """Half a download, as the downloader leaves it."""
    cut(name)(root)
    (root / name).rename(root / f"{name}.part")


@spoiling
def idx(root: Path, kind: str, edit: Callable[[np.ndarray], np.ndarray]) -> None:
    """Other images or labels in the training files of MNIST."""
    path = root / mnist.name("train", kind)
    mnist.write_idx(path, edit(mnist.read_idx(path, dimensions=3 if kind == "images" else 1).copy()))


@spoiling
def tar(root: Path, edit: Callable[[Members], Members | None], name: str = speech.ARCHIVE) -> None:
    with tarfile.open(root / name) as archive:
        members = {m.name.removeprefix("./"): archive.extractfile(m).read() for m in archive.getmembers()}
    write_tar(root / name, edit(members) or members)


@spoiling
def packed(root: Path, edit: Callable[[Members], Members | None], name: str = har.ARCHIVE) -> None:
    with zipfile.ZipFile(root / name) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    write_zip(root / name, edit(members) or members)


@spoiling
def unpacked(root: Path, name: str, folder: str, edit: Callable[[Path], None], below: str = ".") -> None:
    """The folder that an archive is unpacked to, in its place, and then spoilt."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    unpack(root / name, root / below)
    (root / name).unlink()
    edit(root / folder)


def member(name: str, edit: Callable[[bytes], bytes]) -> Callable[[Members], None]:
    """One member, there already, with another content."""

    def change(members: Members) -> None:
        before = members[name]
        members[name] = edit(before)
        assert members[name] != before

    return change


def one(name: str, content: bytes) -> Callable[[Members], None]:
    return member(name, lambda _: content)


def renamed(old: str, new: str) -> Callable[[Members], Members]:
    return lambda members: {name.replace(old, new): content for name, content in members.items()}


def without(pattern: str) -> Callable[[Members], Members]:
    def edit(members: Members) -> Members:
        left = {name: content for name, content in members.items() if not re.search(pattern, name)}
        assert len(left) < len(members)
        return left

    return edit


def substituted(name: str, old: bytes, new: bytes) -> Callable[[Members], None]:
    """The first place in a member where a pattern stands."""
    return member(name, first_place(old, new))


def half(name: str) -> Callable[[Members], None]:
    """A member that ends in the middle of a line."""
    return member(name, lambda content: content[: len(content) // 2])


def clip(content: bytes) -> Change:
    return tar(one(CLIP, content))


def wav(samples: np.ndarray, **keys: Any) -> Change:
    return clip(speech.wav(samples, **keys))


def of_har(name: str, old: bytes, new: bytes) -> Change:
    return packed(substituted(f"{har.TOP}/{name}.txt", old, new))


def last_number(new: bytes) -> Change:
    """Of the first line of a signal."""
    return of_har(HAR_TRAIN, rb"\S+$", new)


of_bidmc, of_ppi, of_zinc, of_superpixels = (
    functools.partial(packed, name=name)
    for name in (bidmc.ARCHIVE, ppi.ARCHIVE, zinc.ARCHIVE, superpixels.ARCHIVE)
)
of_imdb, of_cifar = (functools.partial(tar, name=name) for name in (imdb.ARCHIVE, cifar10.ARCHIVE))


def batch(name: str, change: Callable[[bytes], bytes]) -> Change:
    return of_cifar(member(f"{cifar10.TOP}/{name}", change))


def with_values(name: str, **values: object) -> Change:
    """A batch of CIFAR-10 with other entries."""
    return batch(name, lambda content: pickle.dumps(pickle.loads(content) | values, protocol=2))


def link(root: Path) -> None:
    """A tar with a link out of it."""
    with tarfile.open(root / speech.ARCHIVE, "w:gz") as archive:
        info = tarfile.TarInfo("./yes/clip.wav")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)


class Command:
    """A pickle that would run a command when it is opened."""

    def __reduce__(self):
        return Path.touch, (Path("opened"),)


NESTED = functools.reduce(lambda inner, _: [inner, inner], range(60), [])  # to print it takes 2^60 steps
COMMAND, PACKED_PAGE = pickle.dumps(Command()), gzip.compress(PAGE)
IMAGES, LABELS = mnist.name("train", "images"), mnist.name("train", "labels")
HAR_TRAIN, SUBJECTS = "train/Inertial Signals/body_acc_x_train", "test/subject_test.txt"
CLIP = "yes/a0000021_nohash_0.wav"
ECG = ecg5000.name("train")
WORMS = eigenworms.name("test")
WORDS_TRAIN, WORDS_TEST = (ptb.file_name("word", part) for part in ("train", "test"))
CHARS_TEST = ptb.file_name("char", "test")
REVIEW, REVIEWS = "aclImdb/train/pos/3_3.txt", r"reviews in aclImdb/{}/\w+, expected 12500"
HEART_BEATS, RATES_13 = (f"{bidmc.TOP}/bidmc_csv/bidmc_13_{kind}.csv" for kind in ("Signals", "Numerics"))
RATES = "BIDMC32HR_TRAIN.ts"
TONE = speech.tone(8000, period=20, level=4000)
NAN = np.full(8000, np.nan)
LIST, VALID_LIST = "testing_list.txt", "validation_list.txt"
SPEECH_FOLDER = "SpeechCommands/speech_commands_v0.02"

CASES: dict[DataSet, dict[str, tuple[Change, str]]] = {}
CASES[mnist.MNIST] = {
    "damaged byte": (flip(IMAGES), r"train-images.*not a valid gzip file"),
    "half a file": (cut(IMAGES), r"train-images.*not a valid gzip file.*ended"),
    "web page": (put(IMAGES, PAGE), r"train-images.*not a valid gzip file"),
    "web page, packed": (put(IMAGES, PACKED_PAGE), r"train-images.*no idx file"),
    "empty file": (put(LABELS, b""), r"train-labels.*empty"),
    "labels for images": (lambda root: shutil.copy(root / LABELS, root / IMAGES), r"train-images.*no idx"),
    "label out of range": (idx("labels", lambda y: y + 3), r"train-labels.*label 12 .*no digit"),
    "too few labels": (idx("labels", lambda y: y[:-1]), r"train-labels.*59 labels for 60 images"),
    "images of another size": (idx("images", lambda x: x[:, :27]), r"train-images.*28 x 28"),
    "a file is missing": (drop(LABELS), r"train-labels.* is missing"),
    "cut off": (edited(IMAGES, lambda c: gzip.compress(gzip.decompress(c)[:-1])), r"train-images.*must hold"),
    "half a download": (part(IMAGES), r"Part of a download is at .*train-images.*\.part"),
}

ARCHIVE = r"speech_commands_v0\.02\.tar\.gz"
CASES[speech.SPEECH_COMMANDS] = {
    "half an archive": (cut(speech.ARCHIVE), rf"{ARCHIVE} is not a valid tar"),
    "damaged byte in an archive": (flip(speech.ARCHIVE), rf"{ARCHIVE} is not a valid tar"),
    "web page for an archive": (put(speech.ARCHIVE, PAGE), rf"{ARCHIVE}.*web page"),
    "link in an archive": (link, rf"{ARCHIVE}.*yes/clip\.wav is a link"),
    "member above the archive": (tar(renamed("yes/", "../yes/")), rf"{ARCHIVE}.*\.\./yes/.*points out of"),
    "renamed class folder": (tar(renamed("yes/", "yess/")), r"folder yess is no word.*Did you mean.*yes"),
    "a class folder is missing": (tar(without("^zero/")), r"no wav file in folder zero"),
    "wav of another rate": (wav(TONE, rate=44_100), rf"{CLIP} must be .*16000 Hz.*got .*44100 Hz"),
    "wav with two channels": (wav(np.stack([TONE, TONE], 1)), rf"{CLIP} must be .*got .*2 channel"),
    "wav with NaN": (wav(NAN, subtype="FLOAT"), rf"{CLIP} must be WAV PCM_16.*got WAV FLOAT"),
    "wav of less than a frame": (wav(TONE[:1000]), rf"{CLIP} has 1000 samples.*at least 1024"),
    "wav of over a second": (wav(np.tile(TONE, 3)), rf"{CLIP} has 24000 samples.*at most 16000"),
    "empty wav": (clip(b""), rf"{CLIP} is empty"),
    "wav that is cut off": (clip(speech.wav(TONE)[:9000]), rf"{CLIP} is cut off: \d+ of 8000"),
    "web page for a wav": (clip(PAGE), rf"{CLIP} is not a valid wav"),
    "empty list": (tar(one(LIST, b"\n")), rf"{LIST} is empty"),
    "list is missing": (tar(without("^validation_list")), r"no member validation_list\.txt"),
    "other clips": (tar(one(LIST, b"yes/other.wav\n")), rf"{LIST}, line 1, names yes/other\.wav, which is"),
    "a clip twice": (tar(lambda m: m.update({LIST: m[VALID_LIST]})), rf"{LIST}, line 1: .* {VALID_LIST} too"),
    "partly unpacked": (
        unpacked(speech.ARCHIVE, SPEECH_FOLDER, lambda folder: drop(CLIP)(folder), SPEECH_FOLDER),
        r"speech_commands_v0\.02: (124 clips, expected 105829|.*names yes/.*not there)",
    ),
}

CASES[har.UCI_HAR] = {
    "half a zip": (cut(har.ARCHIVE), r"UCI HAR Dataset\.zip is not a valid zip"),
    "damaged byte in a zip": (flip(har.ARCHIVE, 0.3), r"UCI HAR Dataset\.zip.*not a valid zip"),
    "web page for a zip": (put(har.ARCHIVE, PAGE), r"UCI HAR Dataset\.zip.*web page"),
    "empty text file": (of_har(HAR_TRAIN, rb"(?s)\A.*", b""), r"body_acc_x_train\.txt is empty"),
    "NaN": (last_number(b"NaN"), r"body_acc_x_train\.txt, line 1: .*not finite"),
    "too large": (last_number(b"1e39"), r"body_acc_x_train\.txt, line 1: .*not finite"),
    "a word for a number": (last_number(b"abc"), r"body_acc_x_train\.txt, line 1: .*abc"),
    "a short line": (last_number(b""), r"body_acc_x_train\.txt, line 1: .*128 numbers; got 127"),
    "no activity": (of_har("test/y_test", rb"^\d$", b"7"), r"y_test\.txt, line 1: .* one of 1\.\.6; got '7'"),
    "fewer subjects": (of_har("train/subject_train", rb"\d+\n\d+\n\Z", b""), r"24 labels but 22 subjects"),
    "subject twice": (of_har("test/subject_test", b"5\n", b"4\n"), r"\[4\] stand in train and in test"),
    "fewer windows": (
        packed(lambda members: {k: b"".join(v.splitlines(True)[:12]) for k, v in members.items()}),
        r"part train: 12 windows, expected 7352",
    ),
    "a renamed channel": (
        packed(renamed("total_acc_z_train", "total_acc_Z_train")),
        r"no member .*total_acc_z_train\.txt\. Did you mean .*total_acc_Z_train\.txt",
    ),
    "partly unpacked": (unpacked(har.ARCHIVE, har.TOP, drop(SUBJECTS)), r"no member .*subject_test\.txt"),
}

CASES[ecg5000.ECG5000] = {  # more of the format is in test_timeseries.py
    "class out of range": (text(ECG, r":\d$", ":6"), r"_TRAIN\.ts, line \d+: '6' is none of the classes"),
    "half a file": (cut(ECG), r"ECG5000_TRAIN\.ts"),
}

CASES[eigenworms.EIGENWORMS] = {
    "another problem": (text(WORMS, "EigenWorms", "Another"), r"_TEST\.ts is the problem Another; exp"),
    "fewer cases": (text(WORMS, r"\n[^\n]+\n\Z", "\n"), r"EigenWorms_TEST\.ts: 130 cases, expected 131"),
    "a dimension is missing": (text(WORMS, r"^-?[\d.][^:]*:", ""), r"_TEST\.ts, line \d+: 5 dimension"),
}

CASES[cifar10.CIFAR10] = {
    "half an archive": (cut(cifar10.ARCHIVE), r"cifar-10-python\.tar\.gz is not a valid tar"),
    "a batch is missing": (of_cifar(without("data_batch_3")), r"no member .*data_batch_3"),
    "a command": (batch("data_batch_3", lambda _: COMMAND), r"data_batch_3 cannot be read: it names pathlib"),
    "half a pickle": (batch("data_batch_3", lambda c: c[: len(c) // 2]), r"data_batch_3 cannot be read"),
    "an empty batch": (batch("data_batch_3", lambda _: b""), r"data_batch_3 cannot be read"),
    "a list": (batch("data_batch_3", lambda _: pickle.dumps([1])), "expected a dictionary; got list"),
    "class out of range": (with_values("test_batch", labels=[10] * 20), r"0\.\.9; that of image 0 is 10"),
    "lists that hold each other": (with_values("test_batch", labels=[NESTED] * 20), r"image 0 is a list"),
    "too few labels": (with_values("test_batch", labels=[1] * 19), "expected a list of 20 labels"),
    "smaller images": (with_values("test_batch", data=np.zeros((20, 3071), np.uint8)), "images of 3072 byt"),
    "dates": (batch("test_batch", lambda _: pickle.dumps(np.dtype("M8[s]"))), r"test_batch cannot .*dtype"),
    "too few images": (with_values("test_batch", data=np.zeros((19, 3072), np.uint8)), "expected 10000 im"),
    "images of floats": (with_values("test_batch", data=np.zeros((20, 3072))), "there are no images"),
    "CIFAR-100": (with_values("batches.meta", label_names=["apple"]), "classes are not those"),
}

CASES[ptb.PTB] = {
    "empty text file": (put(WORDS_TRAIN, b""), r"ptb\.train\.txt.* is empty"),
    "half a file": (cut(WORDS_TRAIN), r"ptb\.train\.txt: expected 42068 lines and 887521 tokens; got"),
    "an image for a text": (put(WORDS_TRAIN, b"\x89PNG\r\n\x1a\n"), r"ptb\.train\.txt is no text in UTF-8"),
    "web page": (put(WORDS_TEST, PAGE), r"ptb\.test\.txt: expected 3761 lines"),
    "a new word": (text(WORDS_TEST, r"^ \w+", " unheard"), r"ptb\.test\.txt: 'unheard' does not stand in"),
    "an empty line": (text(WORDS_TEST, r"^.*\n", "\n"), r"ptb\.test\.txt, line 1: expected words"),
    "the sign for the end": (text(WORDS_TEST, r"^ \w+", f" {ptb.EOS}"), r"test\.txt, line 2: expected words"),
    "words for characters": (text(CHARS_TEST, r"^ \w", " ab"), r"ptb\.char\.test\.txt, line \d: .*single ch"),
    "a file is missing": (drop(CHARS_TEST), r"(ptb\.char\.test\.txt|simple-examples\.tgz) is missing"),
}

CASES[imdb.IMDB] = {
    "half an archive": (cut(imdb.ARCHIVE), r"aclImdb_v1\.tar\.gz is not a valid tar"),
    "damaged byte": (flip(imdb.ARCHIVE), r"aclImdb_v1\.tar\.gz is not a valid tar"),
    "web page, packed": (put(imdb.ARCHIVE, PACKED_PAGE), r"aclImdb_v1\.tar\.gz is not a valid zip or tar"),
    "an empty review": (of_imdb(one(REVIEW, b" \n")), rf"{REVIEW} is empty"),
    "a review in Latin-1": (of_imdb(one(REVIEW, b"tr\xe8s bon")), rf"{REVIEW} is no text in UTF-8"),
    "a review is missing": (of_imdb(without(REVIEW)), r"(19|20) reviews in aclImdb/train/\w+, exp"),
    "renamed folder": (of_imdb(renamed("train/pos", "train/no")), rf"aclImdb_v1.*{REVIEWS.format('train')}"),
    "partly unpacked": (
        unpacked(imdb.ARCHIVE, "aclImdb", drop("test/neg/3_3.txt")),
        rf"aclImdb: (19|20) {REVIEWS.format('test')}",
    ),
}

CASES[glove.GLOVE] = {
    "half a file": (cut(glove.FILE), r"glove\.6B\.100d\.txt, line \d+: expected a word and 100 numbers"),
    "NaN": (text(glove.FILE, r"-?[\d.]+$", "nan"), r"100d\.txt, line 1: expected a word and 100 n"),
    "a word for a number": (text(glove.FILE, r"-?[\d.]+$", "abc"), r"glove\.6B\.100d\.txt, line 1: .*abc"),
    "a word twice": (text(glove.FILE, "^film", "the"), r"100d\.txt: 11 words, 10 of them different"),
    "fewer words": (text(glove.FILE, r"\n[^\n]+\n\Z", "\n"), r"100d\.txt: 10 words, 10 of them different"),
    "web page": (put(glove.FILE, PAGE), r"glove\.6B\.100d\.txt, line 1: expected a word and 100 numbers"),
}

CASES[bidmc.BIDMC] = {
    "half a zip": (cut(bidmc.ARCHIVE), r"bidmc-ppg.*1\.0\.0\.zip is not a valid zip"),
    "a subject is missing": (of_bidmc(without("13_Sig")), r"no member .*bidmc_13_Signals\.csv"),
    "other columns": (of_bidmc(substituted(HEART_BEATS, b"PLETH", b"P")), r"has no column PLETH; it has"),
    "NaN": (of_bidmc(substituted(HEART_BEATS, rb"[\d.]+$", b"NaN")), r"subject 13 .*not finite"),
    "a word": (of_bidmc(substituted(HEART_BEATS, rb"[\d.]+$", b"abc")), r"13_Signals\.csv, line 2: .*abc"),
    "half a table": (of_bidmc(half(HEART_BEATS)), r"13_Signals\.csv(, line \d+| has \d+ rows)"),
    "no second 3": (of_bidmc(substituted(RATES_13, b"\n3,", b"\n4,")), r"numerics must be one second apart"),
    "empty table": (of_bidmc(one(HEART_BEATS, b"")), r"bidmc_13_Signals\.csv has no column"),
    # what the csv module of Python does not split
    "a single return": (of_bidmc(member(RATES_13, lambda c: c + b"60,90\r60,90\n")), r"Numerics\.csv"),
    "a long number": (of_bidmc(member(RATES_13, lambda c: c + b"9" * 200_000)), r"Numerics\.csv"),
}

CASES[bidmc_tsr.HEART] = {
    "the other rate": (text(RATES, "BIDMC32HR", "BIDMC32RR"), r"_TRAIN\.ts is the problem BIDMC32RR"),
    "rate out of range": (text(RATES, r":[\d.]+$", ":999"), r"BIDMC32HR_.*rates must lie between 0 and 300"),
    "rate that is none": (text(RATES, r":[\d.]+$", ":NaN"), r"_TRAIN\.ts, line \d+: expected a number"),
    "fewer windows": (text(RATES, r"\n[^\n]+\n\Z", "\n"), r"_TRAIN\.ts.* 27 and 12 windows, together 40 "),
    "half a file": (cut(RATES), r"BIDMC32HR_TRAIN\.ts"),
}


@spoiling
def arrays(root: Path, name: str, **edits: Callable[[np.ndarray], np.ndarray]) -> None:
    """Other arrays in an .npz; one that is edited to None is left out."""
    with np.load(root / name) as archive:
        content = {key: archive[key] for key in archive.files}
    edited = content | {key: edit(content[key]) for key, edit in edits.items()}
    np.savez(root / name, **{key: value for key, value in edited.items() if value is not None})


def first(value: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: np.r_[value, array.flat[1:]].reshape(array.shape).astype(array.dtype)


CORA = {part: planetoid.file_name("cora", part) for part in ("x", "ally", "graph", "test.index")}
FAR_NEIGHBOURS = pickle.dumps({node: [500] for node in range(120)})
CASES[planetoid.CORA] = {
    "half a pickle": (cut(CORA["x"]), r"ind\.cora\.x cannot be read"),
    "a pickle that runs a command": (put(CORA["x"], COMMAND), r"ind\.cora\.x cannot be read: it names pathl"),
    "another kind of pickle": (put(CORA["ally"], pickle.dumps([1])), r"ally: expected an array .* got list"),
    "no such node": (put(CORA["graph"], FAR_NEIGHBOURS), r"from node 0 to 500, but nodes are 0\.\.119"),
    "lists of fewer nodes": (put(CORA["graph"], pickle.dumps({0: [0]})), r"nodes 0\.\.119; got 1 of them"),
    "a node twice": (text(CORA["test.index"], r"^(\d+)\n\d+", r"\1\n\1"), r"test\.index names a node twice"),
    "a word for a number": (text(CORA["test.index"], r"^\d+", "ten"), r"expected the number of a node"),
    "web page": (put(CORA["ally"], PAGE), r"ind\.cora\.ally cannot be read"),
    "a file is missing": (drop(CORA["graph"]), r"ind\.cora\.graph is missing"),
}

PAGES, LINKS, SPLIT = webkb.nodes_name("texas"), webkb.edges_name("texas"), webkb.split_name("texas", 3)
CASES[webkb.TEXAS] = {
    "half a table": (cut(PAGES), r"out1_node_feature_label\.txt"),
    "a label out of range": (text(PAGES, r"\t4$", "\t5"), r"node 4 has the label 5, expected 0\.\.4"),
    "a feature of 2": (text(PAGES, r"\t[01],", "\t2,"), r"line 2: expected 1703 features of 0 or 1"),
    "a node twice": (text(PAGES, r"^1\t", "0\t"), r"expected the nodes 0\.\.59, once each"),
    "a node that is none": (text(LINKS, r"^0\t", "60\t"), r"edge 1 goes from node 60"),
    "commas for tabs": (text(LINKS, r"^0\t", "0,"), r"out1_graph_edges\.txt, line 2: expected two numbers"),
    "half a split": (cut(SPLIT), r"split_0\.6_0\.2_3\.npz is not a valid zip"),
    "a mask is missing": (arrays(SPLIT, val_mask=lambda _: None), r"_3\.npz has no array val_mask"),
    "two parts": (arrays(SPLIT, train_mask=np.ones_like), r"_3\.npz: a node of valid stands in two parts"),
    "an empty part": (arrays(SPLIT, test_mask=np.zeros_like), r"the part test is empty"),
    "web page": (put(LINKS, PAGE), r"out1_graph_edges\.txt: the head must be"),
}

SHCHUR = shchur.file_name("photo")
CASES[shchur.PHOTO] = {
    "half a file": (cut(SHCHUR), r"photo\.npz is not a valid zip"),
    "a column that is none": (arrays(SHCHUR, adj_indices=first(500)), r"names column 500 of 120"),
    "odd rows": (arrays(SHCHUR, attr_indptr=first(1)), r"photo\.npz.*(do not fit|no sparse matrix)"),
    "NaN": (arrays(SHCHUR, attr_data=first(np.nan)), r"not finite"),
    "a label out of range": (arrays(SHCHUR, labels=first(8)), r"node 0 has the label 8"),
    "fewer labels": (arrays(SHCHUR, labels=lambda y: y[:-1]), r"photo\.npz"),
}

TRAFFIC, NOUNS = musae.file_name("chameleon", "target"), musae.file_name("chameleon", "features")
CASES[musae.CHAMELEON] = {
    "half a JSON": (cut(NOUNS), r"chameleon_features\.json is not valid JSON"),
    "a page is missing": (text(NOUNS, r'"59"', '"60"'), r"nouns for each of the pages 0\.\.59"),
    "a noun that is none": (text(NOUNS, r"\[\d+", "[30"), r"nouns of page 0 must be numbers 0\.\.29"),
    "pages in another order": (text(TRAFFIC, r"^1,", "2,"), r"chameleon_target\.csv: expected the pages 0"),
    "negative traffic": (text(TRAFFIC, r"^1,", "1,-"), r"traffic must not be negative"),
}

ONE_LEVEL = syn_cora.file_name(0.3, 2)
CASES[syn_cora.SYN_CORA] = {
    "half an edge": (arrays(ONE_LEVEL, adj_data=first(0)), r"h0\.30-r2\.npz: an edge .* one direc"),
    "a graph is missing": (drop(ONE_LEVEL), r"h0\.30-r2\.npz is missing"),
    "a label out of range": (arrays(ONE_LEVEL, labels=first(-1)), r"node 0 has the label -1"),
}

MOLECULES, VALID = "molecules/train.pickle", zinc.index_name("valid")
NO_BONDS = pickle.dumps([{"atom_type": [1]}] * 24)
CASES[zinc.ZINC] = {
    "a command": (of_zinc(one(MOLECULES, COMMAND)), r"train\.pickle cannot be read: it names p"),
    "no bonds": (
        of_zinc(one(MOLECULES, NO_BONDS)),
        r"train\.pickle: molecule 0 lacks atoms, bonds or target",
    ),
    "half an archive": (cut(zinc.ARCHIVE), r"molecules\.zip is not a valid zip"),
    "fewer molecules": (text(VALID, ",7", ""), r"val\.index: expected 1000 different numbers; got 7"),
    "a molecule that is none": (text(VALID, ",7", ",8"), r"there are 8 molecules, 0\.\.7; it names 8"),
}

SUBSTITUTE = zinc.substitute_name("train")
CASES[zinc.ZINC_SUBSTITUTE] = {
    "a bond to nowhere": (arrays(SUBSTITUTE, edge_index=first(99)), r"bond 0 names an atom that its molec"),
    "no such atom": (arrays(SUBSTITUTE, atom_type=first(28)), r"kinds of atoms are 0\.\.27; got 0 to 28"),
    "NaN": (arrays(SUBSTITUTE, y=first(np.nan)), r"targets hold values that are not finite"),
    "other numbers": (arrays(SUBSTITUTE, atom_vocab=lambda v: v[::-1]), r"numbers the atoms otherwise"),
    "offsets that do not cut": (arrays(SUBSTITUTE, node_ptr=first(1)), r"node_offsets do not cut"),
}


def large_feature(content: bytes) -> bytes:
    """The first number is finite as float64 alone."""
    array = np.load(io.BytesIO(content))
    array.flat[0] = 1e39
    np.save(file := io.BytesIO(), array)
    return file.getvalue()


def linked_to(protein: int) -> Change:
    return of_ppi(substituted("train_graph.json", b'"target": 1}', b'"target": %d}' % protein))


CASES[ppi.PPI] = {
    "a file is missing": (of_ppi(without("valid_graph_id")), r"no member .*valid_graph_id\.npy"),
    "a link between graphs": (linked_to(89), r"a link joins the proteins 0 and 89 of two graphs"),
    "a protein that is none": (linked_to(90), r"edge 1 goes from node 0 to 90"),
    "too large": (of_ppi(member("train_feats.npy", large_feature)), r"features hold .* not finite"),
    "half a JSON": (of_ppi(half("train_graph.json")), r"train_graph\.json is not valid JSON"),
}

CASES[superpixels.SUPERPIXELS] = {
    "half": (of_superpixels(half(superpixels.MEMBER)), r"MNISTSuperpixels\.pt cannot be"),
    "a command": (of_superpixels(one(superpixels.MEMBER, COMMAND)), r"els\.pt cannot be read"),
}

GENIUS_SPLITS = large_graphs.SPLITS["genius"]
CASES[large_graphs.GENIUS_GRAPH] = {
    "half a file": (cut(large_graphs.GENIUS), r"genius\.mat"),
    "web page": (put(large_graphs.GENIUS, PAGE), r"genius\.mat is not a valid MATLAB file"),
    "splits of a web page": (put(GENIUS_SPLITS, PAGE), r"genius-splits\.npy is no \.npy file"),
    "splits that run a command": (
        lambda root: np.save(root / GENIUS_SPLITS, np.array([Command()], object), allow_pickle=True),
        r"genius-splits\.npy cannot be read: it names pathlib",
    ),
}

# ---------------------------------------------------------------------------- what must come of it


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    """The fixture of a data set, written once."""
    root = tmp_path_factory.mktemp("sound")

    def folder(data: DataSet) -> Path:
        if not (root / data.name).exists():
            data.fixture(root / data.name)
        return root / data.name

    return folder


def refused(data: DataSet, store: Store) -> str:
    """The message; and that the cache holds no arrays afterwards, nor a pin to a file that is wrong."""
    message = refuses(DataError, WHAT_TO_DO, store.read, data)
    kept = [path for path in store.cache.rglob("*") if path.is_file()]
    assert not [path for path in kept if path.suffix == ".npz" or "pins" in path.parts]
    assert not store.used
    print(f"\n{message}")
    assert "\n" not in message and len(message) < 1000
    return message


@pytest.mark.parametrize("data", CASES, ids=lambda data: data.name)
def test_a_wrong_folder_is_refused_by_name(data: DataSet, sound: Sound, tmp_path: Path, monkeypatch) -> None:
    """Nothing is compared with published bytes here, so the reader itself must see what is wrong.

    The same folder unspoilt is read, so it is the change that is refused.
    """
    assert Store(sound(data), tmp_path / "cache", verify="off").read(data)

    def is_refused(name: str, change: Change, says: str) -> None:
        root = tmp_path / name.replace("/", " ") / "data"
        shutil.copytree(sound(data), root)
        monkeypatch.chdir(root.parent)
        change(root)
        assert re.search(says, refused(data, Store(root, root.parent / "cache", verify="off")))
        assert not Path("opened").exists(), "a file ran a command"

    run_all((name, functools.partial(is_refused, name, *case)) for name, case in CASES[data].items())


NEEDED = [data for data in CASES if not all(file.optional for file in data.upstream.files)]


@pytest.mark.parametrize("data", NEEDED, ids=lambda data: data.name)
def test_without_its_files_a_data_set_says_where_to_get_them(data: DataSet, tmp_path: Path) -> None:
    message = refused(data, Store(tmp_path, tmp_path / "cache"))
    assert any(f"{file.name} is missing" in message for file in data.upstream.files)
    assert str(tmp_path) in message and f"`physml data get {data.name}`" in message


@pytest.mark.parametrize(
    ("set_to", "says"),
    [
        ("data/MNIST", r"points too deep: set PHYSML_DATA=.*/data\.$"),
        ("data/MNIST/raw", r"points too deep: set PHYSML_DATA=.*/data\.$"),
        (".", r"points too high: set PHYSML_DATA=.*/data\.$"),
        ("nowhere", r"PHYSML_DATA=.*/nowhere is not there"),
        ("data/MNIST/raw/train-images-idx3-ubyte.gz", r"is not a folder"),
    ],
)
def test_a_wrong_data_root_is_told_with_the_right_one(set_to: str, says: str, sound: Sound, tmp_path: Path):
    shutil.copytree(sound(mnist.MNIST), tmp_path / "data")
    message = refused(mnist.MNIST, Store(tmp_path / set_to, tmp_path / "cache", verify="off"))
    assert "train-images-idx3-ubyte.gz is missing" in message and re.search(says, message)


def test_a_data_root_whose_name_is_too_long_is_not_there(tmp_path: Path) -> None:
    store = Store(tmp_path / ("a" * 300), tmp_path / "cache")
    refuses(DataError, "File name too long.*is not there", store.read, mnist.MNIST)


def test_a_run_ends_before_it_starts(sound: Sound, tmp_path: Path, monkeypatch, prints) -> None:
    """One line, exit code 2; no record, no cache."""
    root = tmp_path / "data"
    shutil.copytree(sound(har.UCI_HAR), root)
    last_number(b"NaN")(root)
    for key, value in (own_folders(tmp_path) | {"PHYSML_DATA": str(root)}).items():
        monkeypatch.setenv(key, value)
    unrecorded = ("seed=99", "tracker=none")
    message = prints(2, "run", "experiment=cornn/har2-cornn", "data.verify=off", *unrecorded).err
    assert re.search(r"body_acc_x_train\.txt, line 1: .*not finite.*physml data get uci_har", message)
    assert "Traceback" not in message
    left = [p for p in tmp_path.rglob("*") if p.is_file() and p.suffix in (".npz", ".json", ".pt")]
    kept = [p.name for p in left if root not in p.parents and not {"stamps", "composed"} & set(p.parts)]
    assert kept == ["attempts.json"], "says why it failed"
