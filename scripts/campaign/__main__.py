"""`python -m scripts.campaign KIND --rounds N --seed S --out FILE`: one campaign, and its counts at the end.

The same seed gives the same rounds; rounds that are in FILE already are not made again.
"""

import argparse
import sys
from pathlib import Path

from scripts.campaign import driver


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=driver.KINDS)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="default: KIND.jsonl")
    options = parser.parse_args()
    made = driver.campaign(options.kind, options.rounds, options.seed, options.out or f"{options.kind}.jsonl")
    print("\n".join(driver.counted(made)))
    return int(any(one["fault"] for one in made))


if __name__ == "__main__":
    sys.exit(main())
