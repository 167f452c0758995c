"""Settings in conf/study against the collection of the papers' recipes."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from collections_of_papers import paper_recipes
from each import each

from physml.config.compose import compose

# Recipe of the collection -> our experiment.
EXPERIMENTS = {
    "cornn-adding-T5000": "cornn/adding-5000-cornn",
    "cornn-smnist-128": "cornn/smnist-cornn128",
    "cornn-smnist-256": "cornn/smnist-cornn256",
    "cornn-psmnist-128": "cornn/psmnist-cornn128",
    "cornn-psmnist-256": "cornn/psmnist-cornn256",
    "cornn-ncifar": "cornn/ncifar-cornn",
    "cornn-har2": "cornn/har2-cornn",
    "cornn-har2-tiny": "cornn/har2-cornn_tiny",
    "cornn-imdb": "cornn/imdb-cornn",
    "unicornn-psmnist-128": "unicornn/psmnist-unicornn128",
    "unicornn-psmnist-256": "unicornn/psmnist-unicornn256",
    "unicornn-ncifar": "unicornn/ncifar-unicornn",
    "unicornn-eigenworms-paper": "unicornn/eigenworms-unicornn",
    "unicornn-eigenworms-repo": "unicornn/eigenworms-unicornn-official",
    "unicornn-rr": "unicornn/respiratory_rate-unicornn",
    "unicornn-hr": "unicornn/heart_rate-unicornn",
    "unicornn-imdb-paper": "unicornn/imdb-unicornn",
    "unicornn-imdb-repo": "unicornn/imdb-unicornn-official",
    "lem-adding-10000": "lem/adding-10000-lem",
    "lem-smnist": "lem/smnist-lem-official",
    "lem-psmnist-paper": "lem/psmnist-lem",
    "lem-psmnist-repo": "lem/psmnist-lem-official",
    "lem-ncifar-paper": "lem/ncifar-lem",
    "lem-ncifar-repo": "lem/ncifar-lem-official",
    "lem-eigenworms-paper": "lem/eigenworms-lem",
    "lem-eigenworms-repo": "lem/eigenworms-lem-official",
    "lem-hr-paper": "lem/heart_rate-lem",
    "lem-hr-repo": "lem/heart_rate-lem-official",
    "lem-fhn": "lem/fitzhugh_nagumo-lem",
    "lem-google12": "lem/google12-lem-official",
    "lem-ptb-char": "lem/ptb_char-lem",
    "lem-ptb-word": "lem/ptb_word-lem",
    "eigenworms-ablation-lstm": "lem/eigenworms-lstm",
    "eigenworms-ablation-lstm-chrono": "lem/eigenworms-lstm-chrono",
    "eigenworms-ablation-lem-dt1": "lem/eigenworms-lem-dt1",
    "eigenworms-ablation-lem-dt1-chrono": "lem/eigenworms-lem-dt1-chrono",
    "eigenworms-t11-t-bptt-lstm": "unicornn/eigenworms-lstm-truncated",
    "eigenworms-t11-subsampled-lstm": "unicornn/eigenworms-lstm-subsampled",
    "eigenworms-t11-dt-lstm-v1": "lem/eigenworms-lstm-dt_v1",
    "eigenworms-t11-dt-lstm-v2": "lem/eigenworms-lstm-dt_v2",
    "lipschitz-smnist": "talk/smnist-lipschitz128",
    "lipschitz-psmnist": "talk/psmnist-lipschitz128",
    "antisym-smnist": "talk/smnist-antisymmetric",
    "noisy-smnist-low": "talk/smnist-noisy-low",
    "noisy-smnist-high": "talk/smnist-noisy",
}

Config = dict[str, Any]


def first_of(config: Config, *keys: str) -> Any:
    return next(config["model"][key] for key in keys if key in config["model"])


# Settings that a recipe calls as they are called in a part of a composed config.
SAME_NAME = {
    "optim": ("lr", "weight_decay"),
    "trainer": ("epochs",),
    "model": ("dt", "alpha", "add_noise", "mult_noise", "dropout", "state_dropout"),
    "net": ("input_dropout", "embedding_dropout", "embedding"),
    "task": ("bptt",),
}
# What a recipe calls a setting -> where it stands in a composed config.
SETTINGS: dict[str, Callable[[Config], Any]] = {
    **{key: lambda c, part=part, key=key: c[part][key] for part, keys in SAME_NAME.items() for key in keys},
    "optimizer": lambda c: c["optim"]["_target_"].rpartition(".")[2].lower(),
    "l2": lambda c: c["optim"]["weight_decay"],
    "batch": lambda c: c["trainer"]["batch_size"],
    "steps": lambda c: c["trainer"]["epochs"] * c["task"]["epoch_steps"],
    "grad_clip": lambda c: c["trainer"]["clip_norm"],
    "clip": lambda c: c["trainer"]["clip_norm"],
    "hidden": lambda c: c["model"]["d_hidden"],
    "layers": lambda c: c["model"]["n_layers"],
    "gamma": lambda c: first_of(c, "gamma", "gamma_a"),
    "eps": lambda c: first_of(c, "epsilon", "dt"),
    "beta": lambda c: c["model"]["beta_a"],
    "output_dropout": lambda c: c["net"]["dropout"],
    "tied": lambda c: bool(c["net"]["tied"]),
    "chrono": lambda c: bool(c["model"]["chrono"]),
}

# Not compared: seeds of runs are those of a table, and the start of weights has tests of its own.
ELSEWHERE = {"seed", "init_std", "tuned_dt", "schedule"}

# What an antisymmetric network has no argument for: it is the Lipschitz network at beta 1 and alpha 0.
FIXED = {"antisym-smnist": {"beta", "alpha"}}

# Protocol of the collection -> keys of the task that it decides.
PROTOCOLS: dict[str, Config] = {
    "smnist_cornn": {"permutation": None, "valid": "mnist-valid-3000", "scale": "unit", "stride": 1},
    "smnist_lem": {"permutation": None, "valid": "mnist-valid-3000", "scale": "unit", "stride": 1},
    "psmnist_cornn": {"valid": "mnist-valid-3000", "scale": "unit", "stride": 1},
    "psmnist_lem": {"permutation": "psmnist-torch-5544", "valid": "mnist-valid-3000", "scale": "unit"},
    "robust_smnist": {"permutation": None, "valid": "mnist-valid-2000", "scale": "unit", "stride": 1},
    "ncifar": {"length": 1000, "noise": "fixed_normal"},
    "har2": {"held_out": "subjects", "tested": "subjects", "scaling": "channel", "merge": "text"},
    "imdb": {"n_words": 25_000, "vectors": "glove", "width": 100},
    "eigenworms_lem": {"split_of": "lem", "inputs": "raw"},
    "eigenworms_unicornn": {"split_of": "lem", "inputs": "raw", "entries": None},
    "bidmc_lem": {"_target_": "tasks.bidmc.ArchiveRates"},
    "bidmc_unicornn": {"_target_": "tasks.bidmc.ArchiveRates"},
    "fhn": {"n_train": 128, "n_valid": 128, "n_test": 1024, "n_points": 1001, "data_seed": 1234},
    "google12": {"protocol": "official"},
    "lamb_ptb": {"loss": "summed", "epoch_steps": 200, "eval_streams": 1},
}

# Where our task differs from the protocol that the collection names, and why.
PERMUTED = {"permutation": "psmnist-torch-12008"}
OTHER = {
    **{"cornn-psmnist-128": PERMUTED, "cornn-psmnist-256": PERMUTED},
    # the collection names coRNN's protocol, and says in words that this code has bytes and 2000 held out
    "lipschitz-psmnist": PERMUTED | {"valid": "mnist-valid-2000", "scale": "bytes"},
}
VALID_OF_NCIFAR = {"cornn": "cifar-valid-3000", "unicornn": "cifar-valid-2000", "lem": "cifar-valid-2000"}


@functools.cache
def config_of(experiment: str) -> Config:
    return compose([f"experiment={experiment}"]).config


@each("recipe, experiment", EXPERIMENTS.items())
def test_settings_are_those_of_the_recipe(recipe: str, experiment: str) -> None:
    printed, config = paper_recipes()[recipe]["hyperparameters"], config_of(experiment)
    differs = {}
    for key, value in printed.items():
        lost = value is None and key != "grad_clip"  # in the texts
        if lost or key in ELSEWHERE | FIXED.get(recipe, set()):
            continue
        ours = SETTINGS[key](config)
        rounded = isinstance(value, int | float | list) and ours is not None
        if ours != (pytest.approx(value, rel=2e-4) if rounded else value):
            differs[key] = (value, ours)
    assert not differs, f"{experiment}: printed, ours: {differs}"


@each("recipe, experiment", EXPERIMENTS.items())
def test_the_rate_drops_where_the_recipe_says(recipe: str, experiment: str) -> None:
    printed = paper_recipes()[recipe]["hyperparameters"].get("schedule")
    trainer = config_of(experiment)["trainer"]
    schedule = trainer["schedule"]
    if printed is None:
        assert schedule is None
        return
    assert (trainer["epochs"], schedule["milestones"]) == (printed["total_epochs"], [printed["at_epoch"]])
    assert schedule["_target_"].endswith(".MultiStepLR") and schedule["gamma"] == pytest.approx(0.1)


@each("recipe, experiment", EXPERIMENTS.items())
def test_the_task_follows_the_protocol_of_the_recipe(recipe: str, experiment: str) -> None:
    protocol, task = paper_recipes()[recipe]["protocol"], config_of(experiment)["task"]
    if protocol == "adding":
        assert str(task["length"]) in experiment
        return
    settings = PROTOCOLS[protocol] | OTHER.get(recipe, {})
    if protocol == "ncifar":
        settings |= {"valid": VALID_OF_NCIFAR[experiment.partition("/")[0]]}
    if protocol.startswith("bidmc"):
        settings |= {"rate": "heart" if "heart" in experiment else "respiratory"}
    assert {key: task[key] for key in settings} == settings


@each("experiment", EXPERIMENTS.values())
def test_weights_are_selected_on_validation_data_or_not_at_all(experiment: str) -> None:
    """The driver of the Noisy RNN and the script of the adding problem select nothing; none looks at test."""
    selects = config_of(experiment)["trainer"]["select"]["_target_"].rpartition(".")[2]
    assert selects == ("Last" if experiment.startswith("talk/") or "/adding-" in experiment else "BestValid")


def test_every_recipe_of_a_sequence_task_has_its_experiment() -> None:
    """But those that other tests hold, or that no table of ours has."""
    others = ("graphcon-", "g2-", "regression-", "momentum-", "adam-", "rmsprop-", "sr-", "hbnode-")
    others += ("cornn-adding-cli", "cornn-lorenz96", "lstm-lorenz96", "unicornn-lorenz96")
    others += ("lem-fhn-single-scale", "exprnn-mnist", "fastgrnn-edgeml")
    assert {name for name in paper_recipes() if not name.startswith(others)} <= set(EXPERIMENTS)


def test_antisymmetric_networks_start_small_and_lamb_averages_as_in_the_code() -> None:
    # Entries of W: 0.1 / H each, so sigma_w = 0.1 / H^(1/2).
    names = ["talk/smnist-antisymmetric", "talk/psmnist-antisymmetric"]
    for name in [*names, "cornn/ncifar-antisymmetric", "cornn/ncifar-antisymmetric-gated"]:
        model = config_of(name)["model"]
        assert model["sigma_w"] == pytest.approx(0.1 * model["d_hidden"] ** -0.5, rel=5e-3)
    # A turn is 200 steps: the mean begins after 50 without a gain, or at 800 (char: 25, 400).
    for experiment, starts in {"lem/ptb_word-lem": (50, 800), "lem/ptb_char-lem": (25, 400)}.items():
        trainer = config_of(experiment)["trainer"]
        assert (trainer["average"]["epochs"], trainer["average"]["latest"]) == starts
        assert trainer["epochs"] == 1000
