"""`python -m physml.bench`: time the recurrences against plain loops, nn.LSTM and nn.GRU."""

import sys

from physml.bench.run import main

if __name__ == "__main__":
    sys.exit(main())
