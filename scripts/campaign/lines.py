"""Command lines: real ones with words changed, dropped, doubled or of another command. Nothing is trained."""

import random
from pathlib import Path

from scripts.campaign import furnished
from scripts.campaign.driver import SECRET, Found, Try, in_turn

EACH = 10  # of a round
REAL = (
    "run model=lem task=adding profile=smoke --cfg",
    "run -m model=lem,lstm task=adding profile=smoke seed=0,1 --plan",
    "run experiment=lem/fitzhugh_nagumo-lem trainer.epochs=3 optim.lr=1e-3 --plan",
    "run experiment=./study.yaml:mine --cfg",
    "run model._target_=own_rnn.Own plugins=[own_rnn.py] +model.d_hidden=3 task=adding --cfg",
    "run model=lem task=uea task.name=X --cfg --verify off",
    "run model=graphcon_gcn task=texas split=3 --cfg",
    "run experiment=mine/fitzhugh_nagumo-lem --plan --on slurm --workers 2 --engine gpus=1 memory_gib=2",
    "rerun runs/mine/x.json --seed 1 --plan --threads 1",
    "table lem-9 --no-run --long",
    "table mine-1 --plan --seeds 0-1 --row label=A,experiment=./study.yaml:mine,seeds=0-4",
    "table mine-1 --no-run --latex - --only mine --columns rmse --show value --bold-best",
    "table 4 --paper lem --no-run --yours x.json",
    "figure mine-fig-1 --no-run --formats csv --seeds n2",
    "plot mine/* --metric valid/rmse --mean --log-y --title T --out p.csv",
    "search mine/fitzhugh_nagumo-lem --plan --storage sqlite:///x.db --repeat 2",
    "search ./study.yaml:mine --picture",
    "status mine-1 --all --seeds 0",
    "status --every 3 --all",
    "logs mine-1",
    "failed",
    "retry mine-1",
    "list models lem --settings",
    "list experiments mine/*",
    "list tables mine",
    "list searches mine",
    "list tasks",
    "data list texas mnist",
    "data check texas --verify content",
    "data get texas",
    "records pack export costs",
    "records costs",
    "export x.safetensors --to safetensors --out new --plugin own_rnn.py",
    "track sync --plan --tracker mlflow --project p mine-1",
    "diff a.json b.json",
    "compare mine other --table mine-1 --column rmse --out c.csv",
    "compare mine/fitzhugh_nagumo-lem mine/fitzhugh_nagumo-lstm --metric test/rmse --better lower",
    "cite lem-4",
    "pilot table mine-1 --plan",
    "completion bash",
    "--version",
    "site --out other --url https://example.org --help",
)
KEYS = [
    "model", "net", "task", "trainer", "optim", "runtime", "tracker", "profile", "precision", "seed",
    "split", "plugins", "experiment", "model.dt", "trainer.stop", "trainer.epochs", "task.datasets",
    "data.verify", "hydra", "a.b", "model._target_", "+", "~",
]  # fmt: skip
VALUES = (
    *("", "-1", "0", "1e400", "nan", "null", "true", "lem", "none", "[x]", "[1,2]", "{a: 1}", "10**40"),
    *("{_target_: os.system}", "{_target_: os.system, _args_: [touch was_run]}", "'", '"', "${seed}"),
    *("${a.b}", "${oc.env:WANDB_API_KEY}", "../run", "~nosuchuser/x.yaml", "[~nosuchuser/a.py]", "0,1"),
    *("range(3)", "interval(0,1)", "\udcff", "\ud800", "\0", "é", "x" * 300, "a@b", "=", "..", "."),
    *("/dev/zero", "/etc"),
    *("9" * 300, "-" + "9" * 300, "1_0", "0x10", "inf", "-0.0", "[" * 500, "{" * 40, "*x", "&a 1", "!!str 1"),
    *("account=[", "account=*x", "gpus=-1", "memory_gib=-5", "a=1=2", "\x1b[2J", "$(touch was_run)", "`id`"),
    *(f"postgres://ana:{SECRET}@127.0.0.1:1/x", f"htps:/ana:{SECRET}@h", f"mysql://h/x?password={SECRET}"),
    *("x.journal", "/dev/null", "label=A", "label=A,experiment=x", "0-99999999999", "n0", "n99999999999"),
    *("runs", "results", "here", "study.yaml", "study.yaml:mine", "./study.yaml:nothing", "link", "fifo"),
    "dir",
)
OPTIONS = [
    "-m", "--cfg", "--plan", "--probe", "--force", "--no-run", "--smoke", "--long", "--jobs=-1", "--jobs=x",
    "--jobs", "--max-hours=nan", "--max-hours=inf", "--max-hours=1e-9", "--yes", "--verify=off", "--verify=",
    "--on=ray", "--on=slurm/x", "--on=pilot", "--workers=0", "--engine=a=[", "--detach", "--no-wait",
    "--seeds=n0", "--seeds=0,0", "--seeds=0-9999999999", "--paper=x", "--device=x", "--help",
    "--row=label=A,experiment=x", "--yours=.", "--latex=/nowhere/x", "--html=/dev/full", "--out=/dev/full",
    "--formats=exe", "-x", "--storage=", "--repeat=-1", "--every=-1", "--metric=x", "--column=x", "--only=x",
    "--columns=x", "--show=x", "--", "-",
]  # fmt: skip
# They would train, wait for ever or serve: each is given a word that keeps it from that.
LOOKS = {"run": "--plan", "table": "--plan", "figure": "--plan", "search": "--plan", "rerun": "--plan"}
STOPS = ("--cfg", "--plan", "--no-run", "--picture", "--help")


def prepared(base: Path) -> None:
    furnished.lab(base)
    furnished.carried_out(base, "table lem-9 --no-run", "list experiments")


def round_of(rng: random.Random, number: int, folder: Path, material: None) -> Found:
    return in_turn(folder, [Try(line(rng)) for _ in range(EACH)])


def line(rng: random.Random) -> list[str]:
    words = rng.choice(REAL).split()
    for _ in range(rng.choice((1, 1, 2, 3))):
        words = changed(rng, words)
    words = [word for word in words if word not in ("--serve", "--watch")]
    command = next((word for word in words if word in LOOKS), None)
    if command and not set(words) & set(STOPS):
        words.append(LOOKS[command])
    return [*words, "texas"] if words[-1:] == ["get"] else words  # not all that there is


def changed(rng: random.Random, words: list[str]) -> list[str]:
    """The line with one word changed, added, dropped or doubled."""
    at = rng.randrange(len(words)) if words else 0
    word = words[at] if words else ""
    match rng.choice(
        ("value", "value", "value", "option", "key", "drop", "double", "letters", "other", "swap")
    ):
        case "value":
            key, equals, _ = word.rpartition("=")
            new = [key + equals + rng.choice(VALUES) if at or equals else word]
        case "option":
            new = [word, rng.choice(OPTIONS)]
        case "key":
            sign = rng.choice(("", "", "+", "++", "~"))
            new = [
                word,
                f"{sign}{rng.choice(KEYS)}{rng.choice(('=', '=', '=', '', '@x='))}{rng.choice(VALUES)}",
            ]
        case "drop":
            new = []
        case "double":
            new = [word, word]
        case "letters":
            i = rng.randrange(len(word) + 1)
            new = [
                word[:i] + chr(rng.choice((rng.randrange(32, 127), rng.randrange(1, 0x2FFF)))) + word[i + 1 :]
            ]
        case "other":
            new = [rng.choice(rng.choice(REAL).split())]
        case _:
            rest = words[:at] + words[at + 1 :]
            return [*rest, word]
    return [*words[:at], *new, *words[at + 1 :]]
