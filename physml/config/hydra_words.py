"""Options and keys of Hydra that mean nothing here, with the way to the same end. See docs/hydra.md."""

from physml.base.errors import ConfigError

# By the first part of a key below `hydra`.
KEYS = {
    "run": "Records go below PHYSML_RESULTS, logs and checkpoints below PHYSML_RUNS.",
    "sweep": "Records go below PHYSML_RESULTS, logs and checkpoints below PHYSML_RUNS; -m makes no folders.",
    "output_subdir": "Each record has its config; physml run ... --cfg prints it.",
    "launcher": "Use --jobs N on this machine, --on slurm or --on ray on others.",
    "sweeper": "Use -m for all combinations, physml search for a search.",
    "mode": "Use -m for all combinations.",
    "searchpath": "Use --config-dir DIR, or PHYSML_CONF=DIR.",
    "verbose": "A run's log is log.txt in its work folder; physml logs prints it.",
    "job_logging": "A run's log is log.txt in its work folder; physml logs prints it.",
    "hydra_logging": "A run's log is log.txt in its work folder; physml logs prints it.",
    "job": "A run never changes its folder; its name is made of experiment, identity, seed and split.",
    "help": "Use physml run --help.",
}
OTHER = "Results are placed by PHYSML_RESULTS and PHYSML_RUNS, runs by --jobs and --on."

# Options of `@hydra.main`, by their names.
OPTIONS = {
    ("--config-name", "-cn"): "Use experiment=NAME for a row of a study, experiment=./mine.yaml for a file.",
    ("--config-path", "-cp"): "Use --config-dir DIR: its files stand beside those of physml.",
    ("-cd",): "Use --config-dir DIR.",
    ("--info", "-i"): "Use physml run ... --cfg for the config, physml doctor for the installation.",
    ("--hydra-help",): "Use physml run --help.",
    ("--package", "-p"): "Use physml run ... --cfg, which prints the whole config.",
    ("--run", "-r"): "Leave it out: physml run starts runs.",
    ("--shell-completion", "-sc"): "Use physml completion bash.",
    ("--experimental-rerun",): "Use physml rerun RECORD.",
}


def refuse_key(key: str) -> None:
    """ConfigError for a key or group of Hydra's own: `hydra.run.dir`, `hydra/launcher`."""
    first, _, rest = key.lstrip("+~").replace("/", ".").partition(".")
    if first == "hydra":
        hint = KEYS.get(rest.partition(".")[0], OTHER)
        raise ConfigError(f"{key}: keys of hydra itself have no meaning here. {hint}")


def refuse_option(word: str) -> None:
    """ConfigError for an option of Hydra's that the program does not have."""
    name = word.partition("=")[0]
    for options, hint in OPTIONS.items():
        if name in options:
            raise ConfigError(f"{name} is an option of Hydra that physml does not have. {hint}")
