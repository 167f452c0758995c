"""Configs: real ones with a value, a key or letters changed, and the command that reads each."""

import random
from pathlib import Path
from typing import Any

import yaml as yaml_module

from physml.base.paths import CONF
from scripts.campaign import furnished
from scripts.campaign.driver import MARK, Found, Try, in_turn

EACH = 10  # of a round
FOUND = """lem: {trial: 0, search: results/search/mine-fitzhugh_nagumo-lem.json, drawn: 3, trials: 3,
  seeds: 1, set: {optim.lr: 0.01}}
"""
# File of a lab -> a real one, or its text; the commands that read it.
READ: dict[str, tuple[Path | str, tuple[str, ...]]] = {
    "here/study.yaml": (
        furnished.study(2, own=True),
        (
            "run experiment=./study.yaml:mine --cfg",
            "run experiment=./study.yaml:lstm --plan",
            "search ./study.yaml:mine --plan",
            "table mine-1 --plan --row label=A,experiment=./study.yaml:mine",
        ),
    ),
    "conf/study/mine/fitzhugh_nagumo.yaml": (
        furnished.study(2, own=False),
        ("list experiments mine", "table mine-1 --plan", "status mine-1", "list searches mine"),
    ),
    "conf/table/mine-1.yaml": (
        furnished.TABLE,
        ("table mine-1 --no-run --long", "table mine-1 --plan", "list tables mine", "cite mine-1"),
    ),
    "conf/figure/mine-fig-1.yaml": (
        furnished.FIGURE,
        ("figure mine-fig-1 --no-run --formats csv", "figure mine-fig-1 --plan", "list figures mine"),
    ),
    "conf/figure/mine-fig-2.yaml": (
        CONF / "figure" / "lem-fig-1.yaml",
        ("figure mine-fig-2 --plan", "list figures mine"),
    ),
    "conf/model/mine.yaml": (
        CONF / "model" / "lem.yaml",
        ("run model=mine task=adding profile=smoke --cfg", "list models mine"),
    ),
    "conf/task/mine.yaml": (
        CONF / "task" / "fitzhugh_nagumo.yaml",
        ("run model=lem task=mine profile=smoke --cfg", "list tasks mine"),
    ),
    "conf/trainer/mine.yaml": (
        CONF / "trainer" / "default.yaml",
        ("run model=lem task=adding trainer=mine profile=smoke --cfg",),
    ),
    "conf/engine/slurm/mine.yaml": (
        CONF / "engine" / "slurm.yaml",
        ("run experiment=mine/fitzhugh_nagumo-lem --on slurm/mine --plan",),
    ),
    "conf/engine/mine.yaml": (
        CONF / "engine" / "slurm.yaml",
        ("run experiment=mine/fitzhugh_nagumo-lem --on slurm/mine --plan",),
    ),
    "conf/dataset/mine.yaml": (CONF / "dataset" / "ecg5000.yaml", ("data list mine", "data list ecg5000")),
    "conf/study/mine/fitzhugh_nagumo.searched.yaml": (
        FOUND,
        ("run experiment=mine/fitzhugh_nagumo-lem --cfg", "list searches mine"),
    ),
}
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 1e308, float("nan"), float("inf"), 10**40, 10**300, -(10**300), "", " ", "x", "é",
    [], {}, [[]], [None], {"a": 1}, {1: 2}, {None: None}, {"": ""}, [1, "a", None], "x" * 3000, "\x1b[2J",
    "\u202e", "${seed}", "${a.b}", "${oc.env:WANDB_API_KEY}", "${oc.decode:1}", "${", "???", "null", "1e5",
    "~", "=1+1", "../../x", "/dev/zero", "/etc/passwd", "./fifo", "dir", "link", "here", "n5", "0-9999999999",
    "$(id)", "-rf", {"_target_": "os.system"}, {"_target_": "os.system", "_args_": [f"touch {MARK}"]},
    {"_target_": 1}, "os.system", "\\href{javascript:alert(1)}{x}", "<img src=x onerror=alert(1)>", "$x_{",
    "https://ana:pw@h/x?token=y", "%s",
)  # fmt: skip
TEXTS = (
    f'!!python/object/apply:os.system ["touch {MARK}"]', "!!python/name:os.system", "*x", "&a *a",
    "&a [*a, *a]", "{<<: *x}", "!!binary xx", "!!timestamp 2020-99-99", "- - - -", "? x", "%YAML 9.9",
    "---\n", "...\n", "\t", "\0", "\ufeff", "\x85", "[" * 2000, "{a: " * 500, "'", '"', "|", ">", "# x",
    "<<: {}", "2020-01-01", "0o17", "1_000", "0b11", "1:30", ".inf", "=", "@x", "`x`", "\udc80", "a: 1\na: 2",
)  # fmt: skip


def prepared(base: Path) -> None:
    furnished.lab(base)
    furnished.carried_out(base, "list experiments", "table mine-1 --plan")


def round_of(rng: random.Random, number: int, folder: Path, material: None) -> Found:
    return in_turn(folder, [other(rng) for _ in range(EACH)])


def other(rng: random.Random) -> Try:
    name = rng.choice(sorted(READ))
    source, commands = READ[name]
    text = source.read_text() if isinstance(source, Path) else source
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        text = rng.choice((of_nodes, of_nodes, of_letters))(rng, text)
    return Try(rng.choice(commands).split(), name, text.encode(errors="surrogatepass"))


def of_letters(rng: random.Random, text: str) -> str:
    """Letters are inserted, dropped, changed or doubled."""
    at = rng.randrange(len(text) + 1)
    to = min(len(text), at + rng.choice((1, 1, 2, 10, 100)))
    match rng.choice(("insert", "value", "drop", "change", "double", "cut")):
        case "insert":
            return text[:at] + rng.choice(TEXTS) + text[at:]
        case "value":  # after a colon or a comma
            places = [i + 1 for i, letter in enumerate(text) if letter in ":,["] or [0]
            i = rng.choice(places)
            end = next((k for k in range(i, len(text)) if text[k] in ",}]\n"), len(text))
            return f"{text[:i]} {rng.choice(TEXTS)}{text[end:]}"
        case "drop":
            return text[:at] + text[to:]
        case "change":
            return text[:at] + chr(rng.randrange(1, 256)) + text[at + 1 :]
        case "double":
            return text[:to] + text[at:]
    return text[:at]


def of_nodes(rng: random.Random, text: str) -> str:
    """A value becomes odd, or a key is dropped, renamed, added or given the value of another one."""
    try:
        content = yaml_module.safe_load(text)
    except (yaml_module.YAMLError, ValueError, RecursionError):
        return of_letters(rng, text)
    places: list[tuple[Any, Any]] = []
    keys: list[tuple[dict[Any, Any], Any]] = []

    def walk(node: Any) -> None:
        for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
            places.append((node, key))
            if isinstance(node, dict):
                keys.append((node, key))
            if isinstance(value, dict | list):
                walk(value)

    if not isinstance(content, dict | list):
        return text
    try:
        walk(content)
    except RecursionError:  # a node that holds itself
        return of_letters(rng, text)
    values = [node[key] for node, key in keys]
    kind = rng.choice(("odd", "odd", "odd", "other", "drop", "rename", "add")) if keys else "odd"
    if kind in ("odd", "other") and places:
        node, key = rng.choice(places)
        node[key] = rng.choice(ODD if kind == "odd" else values)
    elif keys:
        node, key = rng.choice(keys)
        if kind == "add":
            node[rng.choice((rng.choice(keys)[1], "plugins", "_target_", "extra", 1, None))] = rng.choice(ODD)
        else:
            value = node.pop(key)
            if kind == "rename":
                node[rng.choice((f"{key}x", rng.choice(keys)[1]))] = value
    head = "# @package _global_\n" if text.startswith("# @package") else ""
    try:
        return head + yaml_module.safe_dump(content, sort_keys=False, allow_unicode=True)
    except (yaml_module.YAMLError, RecursionError):  # a node that holds itself
        return of_letters(rng, text)
