"""`python -m scripts.bench`: time the recurrences against plain loops, nn.LSTM and nn.GRU."""

import os
import sys

from physml.ops import waiting

if __name__ == "__main__":
    os.environ.update(waiting.variables())  # before torch is imported
    from scripts.bench.run import main

    sys.exit(main())
