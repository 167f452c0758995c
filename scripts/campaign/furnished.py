"""Configs, a plugin and runs of a lab."""

from pathlib import Path

from scripts.campaign.driver import Command

STUDY = """task: fitzhugh_nagumo
provenance: {{kind: own, source: a campaign}}
{plugins}common:
  trainer: {{epochs: {epochs}, batch_size: 4}}
  task: {{n_train: 8, n_valid: 4, n_test: 4, n_points: 26, t_end: 10.0, data_seed: 7}}
  runtime: {{save_model: true, checkpoint_every_s: 0.05}}
search: {{metric: rmse, better: lower, trials: 3, seed: 1000}}
searches:
  rate: {{space: {{optim.lr: {{low: 1.0e-3, high: 5.0e-2, log: true}}}}}}
rows:
  {own}: {{model: {model}, search: rate, set: {{model: {{{sizes}}}}}}}
  lstm: {{model: lstm, set: {{model: {{d_hidden: 3}}}}}}
"""
TABLE = """title: A table
source: a campaign, Table 1
seeds: [0, 1]
columns: [{key: rmse, metric: test/rmse, better: lower, protocol: clean}]
claim: {text: mine beats other, order: [{better: mine, than: [other], column: rmse}]}
rows:
  - {label: mine, experiment: mine/fitzhugh_nagumo-lem, cells: {rmse: {published: {value: 0.2, digits: 1}}}}
  - {label: other, experiment: mine/fitzhugh_nagumo-lstm}
"""
FIGURE = """title: A figure
source: a campaign, Figure 1
kind: curves
x_label: step
y_label: RMSE
metric: valid/rmse
seeds: [0]
panels:
  - title: Mine
    series: [{label: mine, experiment: mine/fitzhugh_nagumo-lem}]
"""
PLUGIN = '''"""A leaky average of a driven tanh."""

import torch
from torch import Tensor, nn


class Own(nn.Module):
    def __init__(self, d_in: int, d_hidden: int, *, leak: float = 0.1) -> None:
        super().__init__()
        self.d_in, self.d_out, self.leak = d_in, d_hidden, leak
        self.drive = nn.Linear(d_in, d_hidden)

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        y = torch.tanh(self.drive(u)).cumsum(1) * self.leak
        return y, y[:, -1]
'''


def study(epochs: int, *, own: bool) -> str:
    """own: with the plugin, to be read by its path."""
    names = {"own": "mine", "model": "own", "sizes": "_target_: own_rnn.Own, d_hidden: 4"}
    ours = {"own": "lem", "model": "lem", "sizes": "d_hidden: 4"}
    return STUDY.format(
        epochs=epochs, plugins="plugins: [own_rnn.py]\n" if own else "", **(names if own else ours)
    )


def lab(folder: Path, epochs: int = 2) -> None:
    """Configs in conf/ and in the working folder."""
    for name, text in {
        "conf/study/mine/fitzhugh_nagumo.yaml": study(epochs, own=False),
        "conf/table/mine-1.yaml": TABLE,
        "conf/figure/mine-fig-1.yaml": FIGURE,
        "here/study.yaml": study(epochs, own=True),
        "here/own_rnn.py": PLUGIN,
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def carried_out(folder: Path, *commands: str) -> None:
    """The commands, one after the other, in a lab; an error if one fails."""
    for text in commands:
        command = Command(text.split(), folder)
        if command.wait() != 0:
            raise SystemExit(f"physml {text} ends with {command.code} in a lab:\n{command.text}")
        command.output.unlink()
        (folder / "started").unlink(missing_ok=True)
