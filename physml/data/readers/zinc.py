"""ZINC-12k: molecules with their penalised solubility, logP - SA - cycles. No torch at import.

Axes: G graphs, V atoms and E directed bonds of all of them. `zinc` is the official subset of 10,000, 1000
and 1000 molecules; `zinc_substitute` has its official valid and test molecules, but 9922 others train, with
targets of the same formula: a result on it is none on ZINC-12k.
"""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from physml.base.text import brief
from physml.data import graphs
from physml.data.datasets import Arrays, DataSet, Files
from physml.data.files.array_files import npz
from physml.data.files.limits import WrongFile, read_text
from physml.data.files.safe_pickle import tensors, unpickle
from physml.data.readers.fixtures import write_zip

ATOMS, BONDS = 28, 4  # kinds; bond 0 is none
MOST_ATOMS = 1000  # of one molecule; those of the data set have 38 at most
ARCHIVE = "zinc/molecules.zip"
PARTS = {"train": "train", "valid": "val", "test": "test"}  # as upstream calls them
SIZES = {"train": 10_000, "valid": 1000, "test": 1000}
SUBSTITUTE_SIZES = {"train": 9922, "valid": 1000, "test": 1000}
FIXTURE_SIZES = {"train": 24, "valid": 8, "test": 8}


def index_name(part: str) -> str:
    return f"zinc/{PARTS[part]}.index"


def substitute_name(part: str) -> str:
    stem = "zinc_train_SUBSTITUTE" if part == "train" else f"zinc12k_{PARTS[part]}"
    return f"zinc-substitute/{stem}.npz"


# ---------------------------------------------------------------------------- the official subset


def _read(files: Files) -> Arrays:
    """x (V, 1) int64: kind of atom, 0..27; edge_attr (E,) int64: kind of bond, 1..3; y (G,) float32.

    edge_index has each bond in both directions; offsets and n_graphs as `physml.data.graphs` says.
    """
    tree = files.tree(ARCHIVE)
    molecules: dict[str, list[Arrays]] = {}
    for part, name in PARTS.items():
        where = f"{tree.path}: molecules/{name}.pickle"
        everything = unpickle(tree.bytes(f"molecules/{name}.pickle"), tensors, where)
        if not isinstance(everything, list):
            raise WrongFile(f"{where}: expected a list; got {type(everything).__name__}.")
        chosen = _chosen(files, part, len(everything))
        molecules[part] = [_molecule(where, k, everything[k]) for k in chosen]
    return _together(tree.path, molecules)


def _chosen(files: Files, part: str, n: int) -> list[int]:
    """Which molecules of the whole set are in the subset: numbers with commas between, on one line."""
    path = files.path(index_name(part))
    try:
        chosen = [int(word) for word in read_text(path).strip().split(",")]
    except ValueError as error:
        raise WrongFile(f"{path}: expected numbers with commas between: {brief(error)}.") from error
    if len(chosen) not in files.sizes(SIZES[part], FIXTURE_SIZES[part]) or len(set(chosen)) != len(chosen):
        raise WrongFile(f"{path}: expected {SIZES[part]} different numbers; got {len(chosen)}.")
    if min(chosen) < 0 or max(chosen) >= n:
        raise WrongFile(f"{path}: there are {n} molecules, 0..{n - 1}; it names {brief(max(chosen))}.")
    return chosen


def _molecule(where: str, k: int, entry: Any) -> Arrays:
    try:
        parts = [entry[key] for key in ("atom_type", "bond_type", "logP_SA_cycle_normalized")]
        if not all(hasattr(values, "dtype") for values in parts):
            raise TypeError("expected arrays or tensors")
        atoms, bonds, y = (np.asarray(values) for values in parts)
        if max(len(atoms), len(bonds)) > MOST_ATOMS:
            raise ValueError(f"{max(len(atoms), len(bonds))} atoms")
        atoms, bonds = (graphs.whole(f"{where}: molecule {k}", "kinds", kinds) for kinds in (atoms, bonds))
        y = y.astype(np.float32).reshape(-1)
    except (KeyError, TypeError, ValueError) as error:
        raise WrongFile(
            f"{where}: molecule {k} lacks atoms, bonds or target: {brief(repr(error))}."
        ) from error
    if atoms.ndim != 1 or bonds.shape != (len(atoms), len(atoms)) or len(y) != 1:
        raise WrongFile(
            f"{where}: molecule {k} has atoms of shape {atoms.shape}, bonds of {bonds.shape}, {len(y)} "
            "targets; expected N, N x N and 1."
        )
    edge_index = np.stack(np.nonzero(bonds))
    return {"x": atoms[:, None], "edge_index": edge_index, "edge_attr": bonds[tuple(edge_index)], "y": y}


def _together(where: Path, by_part: dict[str, list[Arrays]]) -> Arrays:
    arrays = graphs.together([molecule for part in PARTS for molecule in by_part[part]])
    arrays["n_graphs"] = np.array([len(by_part[part]) for part in PARTS], np.int64)
    _check(where, arrays)
    return arrays


def _check(where: object, arrays: Arrays) -> None:
    """Kinds of atoms and bonds, the ends of every bond, targets."""
    for name, values, low, high in (
        ("atom", arrays["x"], 0, ATOMS - 1),
        ("bond", arrays["edge_attr"], 1, BONDS - 1),
    ):
        if values.min() < low or values.max() > high:
            raise WrongFile(
                f"{where}: kinds of {name}s are {low}..{high}; got {values.min()} to {values.max()}."
            )
    atoms = np.repeat(np.diff(arrays["node_offsets"]), np.diff(arrays["edge_offsets"]))
    wrong = np.flatnonzero(((arrays["edge_index"] < 0) | (arrays["edge_index"] >= atoms)).any(0))
    if len(wrong):
        raise WrongFile(f"{where}: bond {wrong[0]} names an atom that its molecule lacks.")
    graphs.check_finite(where, "targets", arrays["y"])


# ---------------------------------------------------------------------------- the substitute


def _read_substitute(files: Files) -> Arrays:
    """The same arrays, of which train is another choice of molecules."""
    parts = [_part(files, part) for part in PARTS]
    vocabulary = {tuple(part.pop("atom_vocab").tolist()) for part in parts}
    if len(vocabulary) > 1:
        path = files.path(substitute_name("train"))
        raise WrongFile(f"{path}: it numbers the atoms otherwise than valid and test.")
    return graphs.together(parts) | {"n_graphs": graphs.n_graphs_of(parts)}


def _part(files: Files, part: str) -> Arrays:
    path = files.path(substitute_name(part))
    names = ("atom_type", "edge_index", "bond_type", "y", "node_ptr", "edge_ptr", "atom_vocab")
    stored = npz(path, names, text=("atom_vocab",))
    if any(stored[name].ndim != (2 if name == "edge_index" else 1) for name in names):
        raise WrongFile(f"{path}: edge_index must be a matrix, the others vectors.")
    if len(stored["y"]) not in files.sizes(SUBSTITUTE_SIZES[part], FIXTURE_SIZES[part]):
        raise WrongFile(f"{path}: {len(stored['y'])} molecules, expected {SUBSTITUTE_SIZES[part]}.")
    numbers = {"x": "atom_type", "edge_index": "edge_index", "edge_attr": "bond_type"}
    numbers |= {"node_offsets": "node_ptr", "edge_offsets": "edge_ptr"}
    arrays = {key: graphs.whole(path, name, stored[name]) for key, name in numbers.items()}
    arrays |= {"x": arrays["x"][:, None], "y": stored["y"].astype(np.float32)}
    for name, total in (("node_offsets", len(arrays["x"])), ("edge_offsets", len(arrays["edge_attr"]))):
        ends = arrays[name]
        if (
            len(ends) != len(arrays["y"]) + 1
            or ends[0] != 0
            or ends[-1] != total
            or (np.diff(ends) < 0).any()
        ):
            raise WrongFile(f"{path}: {name} do not cut {total} into {len(arrays['y'])}.")
    _check(path, arrays)
    return {**arrays, "atom_vocab": stored["atom_vocab"]}


# ---------------------------------------------------------------------------- fixtures


def _molecules(part: str) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """Rings of 5 to 7 atoms of four kinds with a tail: atoms, matrix of bonds, a target that counts them."""
    rng = np.random.RandomState(list(PARTS).index(part))
    molecules = []
    for _ in range(FIXTURE_SIZES[part]):
        ring, tail = int(rng.randint(5, 8)), int(rng.randint(0, 3))
        n = ring + tail
        atoms = rng.randint(0, 4, n)
        bonds = np.zeros((n, n), np.int64)
        for a in range(n):
            b = 0 if a == ring - 1 else a + 1
            if b < n:
                bonds[a, b] = bonds[b, a] = rng.randint(1, 4)
        if tail:
            bonds[0, ring] = bonds[ring, 0] = 1
        molecules.append((atoms, bonds, float(0.5 * (atoms == 0).sum() - 0.2 * n)))
    return molecules


def _fixture(root: Path) -> None:
    """A pickle of tensors for each part, and all of its molecules in the index."""
    import torch

    (root / "zinc").mkdir(parents=True, exist_ok=True)
    members = {}
    for part, name in PARTS.items():
        entries = [
            {
                "num_atom": len(atoms),
                "atom_type": torch.from_numpy(atoms),
                "bond_type": torch.from_numpy(bonds),
                "logP_SA_cycle_normalized": torch.tensor([y]),
            }
            for atoms, bonds, y in _molecules(part)
        ]
        members[f"molecules/{name}.pickle"] = pickle.dumps(entries, protocol=2)
        (root / index_name(part)).write_text(",".join(map(str, range(len(entries)))) + "\n")
    write_zip(root / ARCHIVE, members)


def _fixture_substitute(root: Path) -> None:
    (root / "zinc-substitute").mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        molecules = _molecules(part)
        ends = [np.stack(np.nonzero(bonds)) for _, bonds, _ in molecules]
        file = io.BytesIO()
        np.savez(
            file,
            atom_type=np.concatenate([atoms for atoms, _, _ in molecules]).astype(np.int8),
            edge_index=np.concatenate(ends, 1).astype(np.int16),
            bond_type=np.concatenate(
                [b[tuple(e)] for (_, b, _), e in zip(molecules, ends, strict=True)]
            ).astype(np.int8),
            y=np.array([y for _, _, y in molecules], np.float32),
            node_ptr=graphs.offsets([len(atoms) for atoms, _, _ in molecules]).astype(np.int32),
            edge_ptr=graphs.offsets([e.shape[1] for e in ends]).astype(np.int32),
            atom_vocab=np.array(["C", "N", "O", "F"]),
        )
        (root / substitute_name(part)).write_bytes(file.getvalue())


ZINC = DataSet("zinc", 1, _read, _fixture)
ZINC_SUBSTITUTE = DataSet(
    "zinc_substitute",
    1,
    _read_substitute,
    _fixture_substitute,
    remedy="Get a sound copy of it; `physml data get zinc` has the official set.",
)
