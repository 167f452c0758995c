"""The .ts and .arff files of the archives: what is read, and what is refused, with file and line."""

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from refusals import refuses

from physml.base.errors import DataError
from physml.data.readers import ecg5000, eigenworms
from physml.data.readers.timeseries import Cases, read_ts, write_ts
from physml.data.store import Store

ARCHIVE = Path(os.environ.get("PHYSML_DATA", "")) / "ucr_uea"

TOY = """#A comment of the archive
@problemName Toy
@timeStamps false
@missing false
@univariate false
@dimensions 2
@equalLength true
@seriesLength 3
@classLabel true Up Down
@data
1,2,3:0.1,0.2,0.3:Up
-1,-2,-3E-4:0.4,0.5,0.6:Down

4,5,6:0.7,0.8,0.9:Up
"""


def written(folder: Path, text: str, name: str = "Toy_TRAIN.ts") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_ts_file_is_read_and_what_is_written_read_back(tmp_path: Path) -> None:
    cases = read_ts(written(tmp_path, TOY)).expect("Toy", [3], ["Up", "Down"])
    assert cases.labels == ("Up", "Down") and cases.lines == (11, 12, 14)
    np.testing.assert_array_equal(cases.y, [0, 1, 0])
    np.testing.assert_array_equal(cases.x[1], [[-1, 0.4], [-2, 0.5], [-3e-4, 0.6]])
    assert toy(tmp_path).expect("toy", [3], ["Down", "Up"]).y.tolist() == [1, 0, 1], "in the order asked for"
    stacked = cases.stacked([3], 2)
    assert stacked.shape == (3, 3, 2) and stacked.dtype == np.float32
    text = TOY.replace("@classLabel true Up Down", "@targetlabel true").replace("Up", "71.5")
    numbers = read_ts(written(tmp_path, text.replace("Down", "-2"))).expect("Toy", [3], None)
    assert numbers.y.tolist() == [71.5, -2, 71.5] and numbers.labels == ()
    x = np.random.RandomState(0).randn(4, 5, 3)
    write_ts(tmp_path / "a" / "Toy.ts", "Toy", x, [1, 2, 1, 2], ["1", "2"])
    cases = read_ts(tmp_path / "a" / "Toy.ts").expect("Toy", [4], ["1", "2"])
    np.testing.assert_allclose(np.stack(cases.x), x, rtol=1e-6)
    write_ts(tmp_path / "b.ts", "Toy", x[..., :1], [0.5, 1.5, 2.5, 3.5], [])
    np.testing.assert_array_equal(read_ts(tmp_path / "b.ts").y, [0.5, 1.5, 2.5, 3.5])


def test_cases_of_unequal_length_are_read_and_not_stacked(tmp_path: Path) -> None:
    text = TOY.replace("@equalLength true\n@seriesLength 3", "@equalLength false")
    text = text.replace("4,5,6:0.7,0.8,0.9", "4,5,6,7:0.7,0.8,0.9,1")
    cases = read_ts(written(tmp_path, text))
    assert [len(x) for x in cases.x] == [3, 3, 4]
    with pytest.raises(DataError, match=r"Toy_TRAIN.ts, line 13: this case has 4 steps, the first one 3"):
        cases.stacked([3], 2)


BAD_TS = [
    ("4,5,6", "4,?,6", "line 14, dimension 1: the value at step 2 of 3 is missing"),
    ("0.7,0.8", "0.7,NaN", "line 14, dimension 2: the value at step 2 of 3 is missing"),
    ("4,5,6", "4,,6", "line 14, dimension 1: the value at step 2 of 3 is missing"),
    ("4,5,6", "4,inf,6", "line 14, dimension 1: the value at step 2 is not finite"),
    ("4,5,6", "4,1e39,6", "line 14, dimension 1: the value at step 2 is not finite"),
    ("4,5,6", "4,5_0,6", "line 14, dimension 1: the value at step 2, '5_0', is no number"),
    ("4,5,6", "4,5x,6", "line 14, dimension 1: the value at step 2, '5x', is no number"),
    ("4,5,6:0.7,0.8,0.9", "4,5:0.7,0.8", "line 14: 2 steps, but the header says 3"),
    ("4,5,6:0.7,0.8,0.9", "4,5,6:0.7,0.8", "line 14: the dimensions of a case must be equally long"),
    (",0.8,0.9:Up", ",0", r"line 14: 1 dimension\(s\) before the label, expected 2.*cut off"),
    (":0.7,0.8,0.9:Up", ":Up", r"line 14: 1 dimension\(s\) before the label, expected 2"),
    ("0.6:Down", "0.6:Left", "line 12: 'Left' is none of the classes Up"),
    ("@seriesLength 3", "@seriesLength three", "line 8: @seriesLength needs a positive whole number"),
    ("@timeStamps false", "@timeStamps true", "line 3: series with time stamps are not read here"),
    ("@timeStamps false\n", "", "its header has no @timestamps"),
    ("@classLabel true Up Down\n", "", "'Up' is none of the classes|must have @classLabel true"),
    ("@data\n", "", "line 10: expected a line of the header"),
    (TOY[TOY.index("1,2,3") :], "", "no case stands behind @data"),
    (TOY, "", "is not a valid .ts file: it is empty"),
    (TOY, "<html>moved</html>", "is not a valid .ts file: it is a web page"),
    (TOY, "1,2,3\n4,5,6\n", "is not a valid .ts file: it starts with"),
]


@pytest.mark.parametrize(("old", "new", "says"), BAD_TS, ids=[says[:40] for _, _, says in BAD_TS])
def test_a_ts_file_that_cannot_be_right_is_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in TOY
    path = written(tmp_path, TOY.replace(old, new))
    assert str(path) in refuses(DataError, says, read_ts, path)
    path.write_bytes(b"PK\x03\x04\xff\xfe\x00")
    refuses(DataError, "is no text file", read_ts, path)


def toy(folder: Path) -> Cases:
    return read_ts(written(folder, TOY))


@pytest.mark.parametrize(
    ("name", "n", "labels", "says"),
    [
        ("Other", [3], ["Up", "Down"], "is the problem Toy; expected Other"),
        ("Toy", [4, 259], ["Up", "Down"], "3 cases, expected 4 or 259: half a file"),
        ("Toy", [3], ["1", "2"], "expected the classes 1, 2; got the classes Up, Down"),
        ("Toy", [3], ["Up", "Down", "Left"], "expected the classes Up, Down, Left; got"),
        ("Toy", [3], None, "expected numbers to predict; got the classes Up, Down"),
    ],
)
def test_another_problem_or_shape_is_refused(tmp_path: Path, name: str, n: list[int], labels, says) -> None:
    refuses(DataError, says, toy(tmp_path).expect, name, n, labels)
    for steps, dimensions in ((17_984, 2), (3, 6)):
        with pytest.raises(DataError, match=f"must have {steps} steps of {dimensions} dim.*; got 3 of 2"):
            toy(tmp_path).stacked([steps], dimensions)


# ---------------------------------------------------------------------------- the sets that tasks read


def test_files_are_found_in_a_folder_with_the_name_of_the_problem(tmp_path: Path) -> None:
    ecg5000.ECG5000.fixture(tmp_path / "data/ECG5000")
    store = Store(tmp_path / "data", tmp_path / "cache", verify="off")
    arrays = store.read(ecg5000.ECG5000)
    assert len(arrays["x_train"]) + len(arrays["x_test"]) == 5000
    assert {entry["verified"] for entry in store.used.values()} == {"off"}


@pytest.mark.usefixtures("small_data")
@pytest.mark.parametrize("place", ["EigenWorms.zip", "EigenWorms/EigenWorms.zip"])
def test_the_archive_as_it_comes_is_enough(place: str, tmp_path: Path) -> None:
    eigenworms.EIGENWORMS.fixture(tmp_path / "unpacked")
    path = tmp_path / "data" / place
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted((tmp_path / "unpacked").iterdir()):
            archive.write(file, file.name)
        archive.writestr("EigenWorms.txt", "what it is")
    arrays = Store(tmp_path / "data", tmp_path / "cache").read(eigenworms.EIGENWORMS)
    assert len(arrays["y_train"]) == 128 and len(arrays["y_test"]) == 131


# ---------------------------------------------------------------------------- the real files, where they are

REAL = {  # name -> cases of TRAIN and TEST, steps (least, most), dimensions, classes
    "ACSF1": (100, 100, (1460, 1460), 1, 10),
    "ArrowHead": (36, 175, (251, 251), 1, 3),
    "BasicMotions": (40, 40, (100, 100), 6, 4),
    "GunPoint": (50, 150, (150, 150), 1, 2),
    "ItalyPowerDemand": (67, 1029, (24, 24), 1, 2),
    "JapaneseVowels": (270, 370, (7, 29), 12, 9),
    "OSULeaf": (200, 242, (427, 427), 1, 6),
    "PLAID": (537, 537, (100, 1344), 1, 11),
}


def real(file: str) -> Cases:
    path = ARCHIVE / file
    if not path.is_file():
        pytest.skip(f"{path} is not there: set PHYSML_DATA to a folder with ucr_uea")
    return read_ts(path)


@pytest.mark.parametrize("name", REAL)
def test_real_files_of_the_archive(name: str) -> None:
    n_train, n_test, (least, most), dimensions, classes = REAL[name]
    lengths = set()
    for part, n in (("TRAIN", n_train), ("TEST", n_test)):
        cases = real(f"{name}_{part}.ts")
        assert (cases.name, len(cases.x), len(cases.labels)) == (name, n, classes)
        assert set(cases.y.tolist()) == set(range(classes))
        assert {x.shape[1] for x in cases.x} == {dimensions}
        lengths |= {len(x) for x in cases.x}
    assert (min(lengths), max(lengths)) == (least, most)


def test_real_beats() -> None:
    cases = real("ECG5000_TRAIN.ts").expect("ECG5000", [500], ecg5000.LABELS)
    x = cases.stacked([140], 1)
    assert np.bincount(cases.y).tolist() == [292, 177, 10, 19, 2]
    np.testing.assert_allclose(x.mean(1), 0, atol=1e-6)
    np.testing.assert_allclose(x.std(1, ddof=1), 1, atol=1e-6)
