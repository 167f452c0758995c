"""Settings on molecules and superpixels against the collection of the recipes."""

from typing import Any

import pytest
from collections_of_papers import paper_recipes

from physml.config.compose import compose

RAN_WITH = 0.3  # dropout of the official code on superpixels, whatever was tuned

# Recipe of the collection -> our experiment, and whether its dropout is the one that the code runs with.
EXPERIMENTS = {
    "graphcon-gcn-zinc": ("graphcon/zinc-graphcon_gcn", False),
    "graphcon-gcn-superpixels-paper": ("graphcon/superpixels-graphcon_gcn", False),
    "graphcon-gcn-superpixels-repo": ("graphcon/superpixels-graphcon_gcn-official", True),
    "graphcon-gat-superpixels-paper": ("graphcon/superpixels-graphcon_gat", False),
    "graphcon-gat-superpixels-repo": ("graphcon/superpixels-graphcon_gat-official", True),
}


@pytest.fixture(scope="module")
def recipes() -> dict[str, Any]:
    return paper_recipes()


@pytest.mark.parametrize(("recipe", "ours"), EXPERIMENTS.items())
def test_settings_are_those_of_the_recipe(
    recipe: str, ours: tuple[str, bool], recipes: dict[str, Any]
) -> None:
    experiment, as_run = ours
    printed, config = recipes[recipe]["hyperparameters"], compose([f"experiment={experiment}"]).config
    model, net, trainer = config["model"], config["net"], config["trainer"]
    assert config["optim"]["_target_"].lower().endswith(f".{printed['optimizer']}")
    settings = {
        "lr": config["optim"]["lr"],
        "hidden": net["hidden"],
        "layers": model["n_layers"],
        "alpha": model["alpha"],
        "gamma": model["gamma"],
        "dt": model["dt"],
        "batch": trainer["batch_size"],
    }
    assert settings == {key: printed[key] for key in settings}
    tuned = printed.get("dropout", printed.get("dropout_in_dict"))
    assert model["dropout"] == (RAN_WITH if as_run else tuned)
    assert (net["pool"], net["encoder_activation"], net["decoder"]) == ("sum", "identity", "linear")
    assert trainer["select"]["_target_"].endswith(".BestValid")
    molecules = "zinc" in experiment
    assert trainer["epochs"] == (3000 if molecules else 1000)
    assert trainer["schedule"]["factor"] == 0.5
    assert trainer["schedule"]["patience"] == (20 if molecules else 10)
    assert trainer["stop"]["below"] == 1e-5
