"""Classes are those of train, by exact value; gaps in series; tables of numbers in text."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refuses

from physml.base.errors import DataError
from physml.data.files.gaps import without_gaps
from physml.data.files.labels import coded, in_both
from physml.data.files.tables import table


@pytest.mark.parametrize(
    ("train", "test", "classes", "y"),
    [
        (["A", "a", "A"], ["a"], ("A", "a"), [1]),  # PriorLabs/TabPFN#29: two texts are two classes
        ([0, 2, 1], [2, 0], (0, 1, 2), [2, 0]),
        ([1, 2_000_000, 1], [2_000_000], (1, 2_000_000), [1]),  # no class in between
        ([-1, 1], [1, -1], (-1, 1), [1, 0]),
        ([1.0, 2.5], [np.float64(1)], (1, 2.5), [0]),
        ([True, False], [False], (False, True), [0]),
        (["b", 1], [1, "b"], (1, "b"), [0, 1]),
    ],
)
def test_classes_are_the_values_of_train(train: Any, test: Any, classes: tuple, y: list[int]) -> None:
    codes, names = coded({"train": train, "test": test}, "toy")
    assert names == classes and codes["test"].tolist() == y and codes["test"].dtype == np.int64


@pytest.mark.parametrize(
    ("train", "test", "says"),
    [
        # BIMSBbioinfo/flexynesis#156: test has a class that train lacks
        ("ab", "acc", "toy, test: 2 of 3 items are of no class of train, .* 'c' .item 1.; tr"),
        ([0, 1], [0, 5], "1 of 2 items are of no class of train, .* class 5 .item 1.; train has 0, 1"),
        # scikit-learn/scikit-learn#22628: a missing label is no class of its own
        (["a", None, "b"], ["a"], "toy, train: 1 of 3 labels are missing, the first of item 1. Leave such"),
        ([0.0, 1.0], [float("nan"), 1.0], "toy, test: 1 of 2 labels are missing, the first of item 0"),
        # EricFillion/happy-transformer#248: the test part of many sets has -1 in place of its labels
        ([0, 1], [-1, -1], "toy, test: all 2 labels are -1: they are hidden, so nothing can be scored"),
        (["0", "1"], ["?"], "all 1 labels are '[?]': they are hidden"),
        ([0, 1], [None, None], "all 2 labels are None: they are hidden"),
        (["a", "a"], ["a"], "toy, train: all 2 items are of the class 'a'; a task needs two classes"),
        (["a", "b"], [], "toy, test: there are no items"),
        ([0, 1], [1, [0, 1]], r"toy, test: the label of item 1 is \[0, 1\], expected a number or a text"),
        ([np.arange(99)] * 2, [0], r"toy, train: the label of item 0 is \[ 0 1 .{,90} \.\.\., expected"),
        (["a" * 999, "b"], ["c" * 999], r"test: 1 of 1 .* 'c{79} \.\.\. \(item 0"),
        (["a" * 999], ["b"], r"of the class 'a{79} \.\.\.; a task"),
    ],
)
def test_labels_that_no_score_can_come_from(train: Any, test: Any, says: str) -> None:
    refuses(DataError, says, coded, {"train": [*train], "test": [*test]}, "toy")


def test_declared_classes_keep_their_order_gaps_are_told_and_equal_rows_counted(caplog) -> None:
    assert coded({"train": ["x", "b"]}, "toy", ("x", "never", "b"))[1] == ("x", "b")
    assert not caplog.records
    with pytest.raises(DataError, match="toy, train: b is none of the classes x, y"):
        coded({"train": ["x", "b"]}, "toy", ("x", "y"))
    with caplog.at_level(logging.WARNING):
        coded({"train": [3, 7, 3]}, "toy")
    assert "toy: the labels 3, 7 became the classes 0 to 1." in caplog.text
    rows = [np.arange(n, dtype=np.float32) for n in (2, 3, 4)]
    assert in_both(rows[:2], [rows[1], rows[2], rows[1]]) == 2
    assert in_both([], rows) == 0


# ---------------------------------------------------------------------------- gaps


def series() -> list[np.ndarray]:
    gap = np.nan
    return [np.array([[1.0, 5.0], [2.0, 6.0]]), np.array([[gap, 1.0], [3.0, gap], [gap, 5.0], [9.0, 7.0]])]


def at(i: int, step: int, dimension: int) -> str:
    return f"{i}/{step}/{dimension}"


def test_gaps_are_refused_filled_or_left_out_with_their_series() -> None:
    with pytest.raises(DataError, match=r"toy: 1 of 2 series have missing values, .* at 1/0/0. Set task"):
        without_gaps(series(), "refuse", "toy", at)
    filled, kept = without_gaps(series(), "fill", "toy", at)
    assert filled[1].tolist() == [[3, 1], [3, 3], [6, 5], [9, 7]] and kept.tolist() == [0, 1]
    left, kept = without_gaps(series(), "drop", "toy", at)
    assert len(left) == 1 and kept.tolist() == [0]
    nothing = [np.full((3, 1), np.nan)]
    with pytest.raises(DataError, match=r"no value is known at 0/0/0 .* Set task.missing=drop"):
        without_gaps(nothing, "fill", "toy", at)
    with pytest.raises(DataError, match=r"all 1 series have missing values. Set task.missing=fill"):
        without_gaps(nothing, "drop", "toy", at)
    assert without_gaps(series()[:1], "refuse", "toy", at)[1].tolist() == [0]


# ---------------------------------------------------------------------------- tables in text

NUMBERS = [[0.5, -1.25, 0.0], [1000.0, 2.0, 1.0]]


@pytest.mark.parametrize(
    "content",
    [
        b"0.5,-1.25,0\n1e3,2,1\n",
        b"\xef\xbb\xbft0,t1,label\r\n0.5,-1.25,0\r\n\r\n1e3,2,1",
        b"t0;t1;label\n0,5;-1,25;0\n1e3;2;1\n",
        b"# a comment\n0.5\t-1,25\t0\n1000\t2\t1\n",
        b'"t0" "t1" "label"\n0.5  -1.25 0\n1000 2 1\n',
        b't0,"t 1, filtered",label\n"0,5", "-1,25","0"\n1e3,2,1\n',
        b'"t 0" t1 label\n0,5 -1,25 0\n1000 2 1\n',
        b'"0,5"\t"-1,25"\t0\n"1000,0"\t2\t1\n',
    ],
)
def test_tables_as_spreadsheets_write_them(tmp_path: Path, content: bytes, caplog) -> None:
    path = tmp_path / "waves.csv"
    path.write_bytes(content)
    np.testing.assert_array_equal(table(path), NUMBERS)
    assert not caplog.text
    path.write_text("\n0,1,2\n0.5,0.1,1\n")
    assert len(table(path)) == 2 and "line 2: 0 to 2 are read as numbers" in caplog.text
    path.write_text("a,b\n1,\n?,4\n")
    np.testing.assert_array_equal(table(path, gaps=True), [[1, np.nan], [np.nan, 4]])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a,b\n1,2\n3,x\n", r"waves.csv, line 3, column 2 \(b\): 'x' is no number"),
        ("1,2\n3,\n", "line 2, column 2: the value is missing"),
        ("1,2\n3,NaN\n", "line 2, column 2: the value is missing"),
        ("1,inf\n", "line 1, column 2: 'inf' is not finite"),
        ("a,b\n1_000,2\n", "'1_000' is no number"),
        ('a,b\n2,"1,234"\n', r"line 2, column 2 \(b\): the comma of '1,234' may be of thousands"),
        ('"1,234,5","2"\n', "line 1, column 1: '1,234,5' is no number"),
        ("a,b,c\n1,2\n", "line 2: 2 columns, expected 3 as in the first line, separated by ','"),
        ("a,b\n", "there are no lines with numbers"),
        ("", "there are no lines with numbers"),
    ],
)
def test_tables_that_cannot_be_right(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "waves.csv"
    path.write_text(content)
    refuses(DataError, says, table, path)
    path.write_bytes("ä".encode("latin-1"))
    refuses(DataError, "no text in UTF-8: byte 0 is 0xe4", table, path)
