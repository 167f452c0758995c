"""Large packages that the fork server of `run_harness` imports; tests that run there do not need them."""

import matplotlib.backends.backend_agg
import matplotlib.figure
import wandb

PRELOADED = (matplotlib, wandb)
