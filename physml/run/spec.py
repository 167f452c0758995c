"""One run, before it is made: its config, its identity, its places on disk."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physml.base.paths import OWN_RESULTS, results_root, work_root
from physml.config import conf_files
from physml.config.compose import Composed, compose
from physml.config.conf_files import is_path
from physml.config.identity import identity
from physml.config.resolve import name_plugins
from physml.records.record import Place

if TYPE_CHECKING:
    from physml.config.build import Parts


@dataclass(frozen=True)
class RunSpec:
    config: dict[str, Any]
    choices: dict[str, str | None]
    place: Place
    datasets: tuple[str, ...] = ()  # of conf/dataset, which its task reads
    parts: "Parts | None" = field(default=None, compare=False, repr=False)  # once they are checked

    @property
    def record_path(self) -> Path:
        return results_root() / self.place.relative

    @property
    def work_folder(self) -> Path:
        return work_root() / self.place.folder / self.place.stem

    @property
    def file(self) -> Path:
        """The spec itself, where `physml status` looks."""
        return self.work_folder / "spec.json"

    @property
    def output_file(self) -> Path:
        """Standard output and error of its worker process."""
        return self.work_folder / "output.txt"

    @property
    def log_file(self) -> Path:
        """Output of its worker process; of a run in the foreground its warnings and errors."""
        return self.output_file if self.output_file.exists() else self.work_folder / "log.txt"

    @property
    def setting(self) -> str:
        """A name that no other setting has: it says the identity too where several share a folder."""
        place = self.place
        alone = self.config["profile"] == "full" and not place.folder.startswith("adhoc/")
        return place.folder if alone else f"{place.folder} {place.identity}"

    @cached_property
    def label(self) -> str:
        """A name that no other run has."""
        return f"{self.setting} split {self.place.split} seed {self.place.seed}"

    def to_json(self) -> dict[str, Any]:
        kept = {name: getattr(self, name) for name in ("config", "choices", "datasets")}
        return kept | {"place": vars(self.place)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "RunSpec":
        return cls(data["config"], data["choices"], Place(**data["place"]), tuple(data["datasets"]))


# Besides the identity: what a record of an experiment says of itself, and what a figure wants beside it.
TOLD = ("arrays", "provenance", "n_parameters_printed", "short")


def spec_of(composed: Composed, *, adhoc: bool = False) -> RunSpec:
    """The run of a composed config, with the folder of its record.

    An experiment of conf/ that is untouched, but for seed, split, runtime and tracker, has its folder below
    results/runs; everything else is ad hoc: results/runs/adhoc, which git ignores. So are smoke runs in the
    checkout's own results.
    """
    config = composed.config
    key = identity(config)
    name = config["experiment"]
    if name and not is_path(name):
        folder = f"adhoc/{name}" if adhoc or not _counts(config, key) else str(name)
    elif name:
        folder = folder_of(str(name))
    else:
        folder = f"adhoc/{_name(composed, 'task')}-{_name(composed, 'model')}"
    place = Place(folder, key, config["split"], config["seed"])
    return RunSpec(config, composed.choices, place, composed.datasets)


def _counts(config: dict[str, Any], key: str) -> bool:
    """True if a run of an experiment of conf/ has the settings that its tables need."""
    if not config["runtime"]["score_test"] or (
        config["profile"] == "smoke" and results_root() == OWN_RESULTS
    ):
        return False
    published = compose([f"experiment={config['experiment']}", f"profile={config['profile']}"]).config
    return key == identity(published) and all(config[name] == published[name] for name in TOLD)


def folder_of(experiment: str) -> str:
    """Folder of an experiment's records, below runs/."""
    return f"adhoc/{conf_files.flat(experiment)}" if is_path(experiment) else experiment


def _name(composed: Composed, group: str) -> str:
    choice = composed.choices[group]
    if choice in (None, "own"):
        return str(composed.config[group]["_target_"]).rpartition(".")[2].lower()
    return str(choice)


def checked_specs(composed: Sequence[Composed], *, adhoc: bool = False, run: bool = False) -> list[RunSpec]:
    """Specs of configs whose keys have been checked, before anything is started.

    run: whether code of plugins may be run for it; else it is read alone.
    """
    from physml.config.schema import checked

    if run:
        name_plugins([composition.config for composition in composed])
    specs = []
    for composition in composed:
        config, parts = checked(composition.config, run=run)
        spec = spec_of(dataclasses.replace(composition, config=config), adhoc=adhoc)
        specs.append(dataclasses.replace(spec, parts=parts))
    return specs
