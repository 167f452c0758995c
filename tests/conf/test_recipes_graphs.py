"""Settings of tasks on one graph against the collection of the recipes."""

import functools
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from collections_of_papers import paper_recipes
from each import each

from physml.base.paths import ROOT
from physml.config.build import build_net, parts_of
from physml.config.compose import compose
from physml.run.record import count_parameters

UNIVERSITIES = ("texas", "wisconsin", "cornell")
# Recipes whose settings the official code ships -> experiment, features and outputs of its network there.
# On synthetic Cora the code has 7 outputs for 5 classes.
SHIPPED: dict[str, tuple[str, int, int]] = {
    **{f"graphcon-gcn-{graph}": (f"graphcon/{graph}-graphcon_gcn", 1703, 5) for graph in UNIVERSITIES},
    "g2-sage-wisconsin": ("g2/wisconsin-g2_sage", 1703, 5),
    "g2-gcn-squirrel-regression": ("g2/squirrel_regression-g2_gcn", 3148, 1),
    "g2-gcn-synthetic-cora": ("g2/syn_cora-g2_gcn", 1433, 7),
}
CITATIONS = ("cora", "citeseer", "pubmed")
ATTENTION = {f"graphcon-tran-{graph}": f"graphcon/{graph}-graphcon_tran" for graph in CITATIONS}
REGRESSION = {"gcnii": "gcnii", "pairnorm": "gcn-pair_norm", "gcn": "gcn", "gat": "gat"}
REGRESSION |= {"g2-gcn": "g2_gcn", "g2-gat": "g2_gat"}
# Recipes of which the paper prints a part, or nothing but the ranges of a search -> experiment.
PARTLY = {
    **{f"graphcon-gat-{graph}": f"graphcon/{graph}-graphcon_gat" for graph in (*UNIVERSITIES, *CITATIONS)},
    **{f"graphcon-gcn-{graph}": f"graphcon/{graph}-graphcon_gcn" for graph in CITATIONS},
    **{f"graphcon-ppi-{model}": f"graphcon/ppi-graphcon_{model}" for model in ("gat", "gcn")},
    **{
        f"g2-{printed}-{graph}": f"g2/{graph}-g2_{ours}"
        for graph in ("texas", "wisconsin", "film", "squirrel", "chameleon", "cornell")
        for printed, ours in {"gat": "gat", "gcn": "gcn", "graphsage": "sage"}.items()
        if (printed, graph) != ("graphsage", "wisconsin")
    },
    **{
        f"regression-{printed}-{graph}": f"g2/{graph}_regression-{ours}"
        for graph in ("chameleon", "squirrel")
        for printed, ours in REGRESSION.items()
        if (printed, graph) != ("g2-gcn", "squirrel")
    },
    **{f"g2-sage-{g}": f"g2/{g.replace('-', '_')}-g2_sage" for g in ("snap-patents", "arxiv-year", "genius")},
}
SIMULATED = {"graphcon-dirichlet": "graphcon-fig-2", "g2-dirichlet": "g2-fig-2"}
# Recipes on many graphs -> experiment, and whether its dropout is the one that the code runs with.
MANY = {
    "graphcon-gcn-zinc": ("graphcon/zinc-graphcon_gcn", False),
    "graphcon-gcn-superpixels-paper": ("graphcon/superpixels-graphcon_gcn", False),
    "graphcon-gcn-superpixels-repo": ("graphcon/superpixels-graphcon_gcn-official", True),
    "graphcon-gat-superpixels-paper": ("graphcon/superpixels-graphcon_gat", False),
    "graphcon-gat-superpixels-repo": ("graphcon/superpixels-graphcon_gat-official", True),
}
RAN_WITH = 0.3  # dropout of the official code on superpixels, whatever was tuned


@functools.cache
def config_of(experiment: str) -> dict[str, Any]:
    return compose([f"experiment={experiment}"]).config


def chosen(node: dict[str, Any]) -> str:
    return str(node["_target_"]).rpartition(".")[2]


def shared_settings(config: dict[str, Any]) -> dict[str, Any]:
    optim = config["optim"]
    settings = {"optimizer": chosen(optim).lower(), "hidden": config["net"]["hidden"]}
    return settings | {key: optim[key] for key in ("lr", "weight_decay")}


@pytest.mark.parametrize("recipe", [name for name in SHIPPED if name.startswith("graphcon-")])
def test_graphcon_on_pages_of_universities_is_as_the_code_runs_it(recipe: str) -> None:
    printed, config = paper_recipes()[recipe]["hyperparameters"], config_of(SHIPPED[recipe][0])
    net, model, trainer = config["net"], config["model"], config["trainer"]
    ours = {
        **shared_settings(config),
        **{key: model[key] for key in ("alpha", "gamma", "dt")},
        "layers": model["n_layers"],
        "dropout_effective": model["dropout"],
        "residual_version": int(model["residual"].removeprefix("official-v")),
        "epochs": trainer["epochs"],
        "patience": trainer["stop"]["epochs"],
    }
    tuned = printed["dropout_in_dict"]
    assert ours == {key: value for key, value in printed.items() if key != "dropout_in_dict"}
    assert net["input_dropout"] == printed["dropout_effective"] != tuned
    assert (net["dropout"], net["encoder_activation"], net["output_activation"]) == (0, "relu", "identity")
    assert (net["decoder"], net["decoder_activation"]) == ("linear", "identity")
    assert (net["init"], model["activation"]) == ("official-heterophilic", "relu")
    assert (model["shared_weights"], chosen(model["coupling"])) == (True, "GraphConvolution")
    for rule, name in {"select": "BestValid", "stop": "CumulativePatience"}.items():
        assert (chosen(trainer[rule]), trainer[rule]["metric"]) == (name, "noisy_cross_entropy")
    assert (config["task"]["edges"], config["task"]["protocol"]) == ("stored", "official")
    with_tuned = config_of(f"{SHIPPED[recipe][0]}-dict_dropout")
    assert (with_tuned["model"]["dropout"], with_tuned["net"]["input_dropout"]) == (tuned, tuned)


@pytest.mark.parametrize("recipe", [name for name in SHIPPED if name.startswith("g2-")])
def test_gradient_gating_is_as_the_code_runs_it(recipe: str) -> None:
    printed, config = dict(paper_recipes()[recipe]["hyperparameters"]), config_of(SHIPPED[recipe][0])
    net, model, trainer = config["net"], config["model"], config["trainer"]
    ours = {
        **shared_settings(config),
        "layers": model["n_layers"],
        "drop_in": net["input_dropout"],
        "drop": net["dropout"],
        "p": model["p"],
        "separate_conv": model["gate_coupling"] is not None,
        "epochs_effective": trainer["epochs"],
        "output": net["output_activation"],
    }
    assert ours == {"separate_conv": False, "output": "identity"} | printed
    check_gating(config)
    assert (net["encoder_activation"], net["decoder"], net["init"]) == ("relu", "linear", "default")
    assert config["task"]["protocol"] == "official"


def check_gating(config: dict[str, Any]) -> None:
    """What the code does in all its experiments on gradient gating, whatever is tuned."""
    model, trainer = config["model"], config["trainer"]
    attention = chosen(model["coupling"]) == "GraphAttention"
    staged = trainer["stop"] is not None  # a search in stages chooses the aggregate, too
    assert model["aggregate"] in (("mean", "sum") if staged else ("mean",))
    assert (model["shared_weights"], model["rate_exponent"]) == (True, 1)
    assert (model["activation"], model["heads"]) == (("elu", "official") if attention else ("relu", "mean"))
    if attention:
        assert model["coupling"]["n_heads"] == 4
    assert not model["single_rate"]
    patience = {"epochs": 200, "metric": "accuracy"} if staged else {}
    assert {key: value for key, value in (trainer["stop"] or {}).items() if key != "_target_"} == patience
    assert (trainer["epochs"], trainer["schedule"]) == (1000 if staged else 200, None)
    assert (chosen(trainer["select"]), trainer["select"].get("metric")) == ("BestValid", None)


@pytest.mark.parametrize("recipe", SHIPPED)
def test_networks_are_as_large_as_in_the_code(recipe: str) -> None:
    experiment, d_in, d_out = SHIPPED[recipe]
    task = SimpleNamespace(d_in=d_in, d_out=d_out, readout="node", tokens=None, vectors=None)
    net = build_net(parts_of(config_of(experiment)), task)
    assert count_parameters(net) == paper_recipes()[recipe]["parameters_count"]["exact"]


@pytest.mark.parametrize("recipe", ATTENTION)
def test_attention_on_citations_is_as_the_code_runs_it(recipe: str) -> None:
    """The loop of the code runs one epoch fewer than it is given; nothing reads two of the settings."""
    printed, config = paper_recipes()[recipe]["hyperparameters"], config_of(ATTENTION[recipe])
    net, model = config["net"], config["model"]
    attention = model["attention"]
    ours = {
        **shared_settings(config),
        "dropout": net["dropout"],
        "input_dropout": net["input_dropout"],
        "heads": attention["n_heads"],
        "attention_dim": attention["d_attention"],
        "epochs": config["trainer"]["epochs"] + 1,
        "T": model["T"],
    }
    fixed = {
        "step",
        "integrator",
        "block",
        "add_source",
        "attention_type",
        "square_plus",
    }  # in what the model is
    assert (attention["score"], attention["square_plus"]) == ("scaled_dot", False)
    assert chosen(model) == "CitationGraphCON"
    if "pubmed" not in recipe:  # and tested later by an experiment beside it
        late = config_of(ATTENTION[recipe] + "-late")["model"]
        assert late["T_test"] == pytest.approx(3 * late["T"]) and late["T"] == model["T"]
    near = {key: pytest.approx(value, rel=1e-3) for key, value in printed.items() if isinstance(value, float)}
    assert ours == {key: value for key, value in (printed | near).items() if key not in fixed}
    assert attention["normalize"] == ("receiver" if "pubmed" in recipe else "sender")
    assert (net["encoder_activation"], net["decoder_activation"]) == ("identity", "relu")
    assert net["decoder"] == "linear"
    task = config["task"]
    assert (task["split_of"], task["n_per_class"], task["n_development"]) == ("random", 20, 1500)
    assert chosen(config["trainer"]["select"]) == "BestValid"


@each("recipe, experiment", PARTLY.items())
def test_the_printed_part_of_a_recipe_is_kept_and_the_rest_is_nobodys_but_ours(
    recipe: str, experiment: str
) -> None:
    printed, config = paper_recipes()[recipe]["hyperparameters"], config_of(experiment)
    model = config["model"]
    for key in printed.keys() - {"search", "separate_conv"}:
        assert model[key] == printed[key]
    assert config["provenance"]["kind"] in ("own", "searched-here")
    if recipe.startswith("g2-") or "-g2-" in recipe:
        check_gating(config)
        if config["trainer"]["stop"] is None or "separate_conv" in printed:  # else it was searched
            assert (model["gate_coupling"] is not None) is printed.get("separate_conv", False)
    if recipe.startswith("regression-"):
        assert config["net"]["output_activation"] == "relu"
        assert config["task"]["protocol"] == "official"


@pytest.mark.parametrize("graph", UNIVERSITIES)
def test_attention_on_pages_of_universities_has_the_form_of_the_code(graph: str) -> None:
    """X and Y are dropped at the start and after every step, and nothing else is but the features."""
    config = config_of(f"graphcon/{graph}-graphcon_gat")
    net, model = config["net"], config["model"]
    assert (model["residual"], model["heads"], model["activation"]) == ("plus", "official", "elu")
    assert model["dropout"] > 0
    assert (net["dropout"], net["encoder_activation"], net["init"]) == (0, "relu", "default")


@pytest.mark.parametrize(("recipe", "figure"), SIMULATED.items())
def test_energies_are_of_the_printed_depth(recipe: str, figure: str) -> None:
    printed = paper_recipes()[recipe]["hyperparameters"]
    drawn = yaml.safe_load((ROOT / "conf" / "figure" / f"{figure}.yaml").read_text(encoding="utf-8"))
    for panel in drawn["panels"]:
        assert panel["arguments"]["n_layers"] == printed["layers"]
        assert (panel["arguments"]["rows"], panel["arguments"]["columns"]) == (10, 10)


@pytest.mark.parametrize("recipe", MANY)
def test_settings_on_many_graphs_are_those_of_the_recipe(recipe: str) -> None:
    experiment, as_run = MANY[recipe]
    printed, config = paper_recipes()[recipe]["hyperparameters"], config_of(experiment)
    model, net, trainer = config["model"], config["net"], config["trainer"]
    settings = {
        **{key: value for key, value in shared_settings(config).items() if key != "weight_decay"},
        **{key: model[key] for key in ("alpha", "gamma", "dt")},
        "layers": model["n_layers"],
        "batch": trainer["batch_size"],
    }
    assert settings == {key: printed[key] for key in settings}
    tuned = printed.get("dropout", printed.get("dropout_in_dict"))
    assert model["dropout"] == (RAN_WITH if as_run else tuned)
    assert (net["pool"], net["encoder_activation"], net["decoder"]) == ("sum", "identity", "linear")
    assert (chosen(trainer["select"]), trainer["stop"]["below"]) == ("BestValid", 1e-5)
    epochs, patience = (3000, 20) if "zinc" in experiment else (1000, 10)
    schedule = trainer["schedule"]
    assert (trainer["epochs"], schedule["factor"], schedule["patience"]) == (epochs, 0.5, patience)


def test_every_recipe_on_graphs_has_its_experiment() -> None:
    graphs = {name for name in paper_recipes() if name.startswith(("graphcon-", "g2-", "regression-"))}
    assert graphs == {*SHIPPED, *ATTENTION, *PARTLY, *SIMULATED, *MANY}
