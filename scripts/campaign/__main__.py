"""`python -m scripts.campaign KIND ... --rounds N ... --seed S --out FILE`: campaigns, then their counts.

The same seed gives the same rounds; rounds that are in FILE already are not made again.
"""

import argparse
import itertools
import signal
import sys
from pathlib import Path

from scripts.campaign import driver


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "kinds", choices=driver.KINDS, nargs="+", metavar="KIND", help=", ".join(driver.KINDS)
    )
    parser.add_argument(
        "--rounds", type=int, nargs="+", default=[100], metavar="N", help="of all kinds, or of each in turn"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("campaign.jsonl"))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # labs and commands end, too
    if len(options.rounds) not in (1, len(options.kinds)):
        parser.error(f"{len(options.rounds)} numbers of rounds for {len(options.kinds)} kinds")
    faults = False
    for kind, rounds in zip(options.kinds, itertools.cycle(options.rounds), strict=False):
        results = driver.campaign(kind, rounds, options.seed, options.out)
        print("\n  ".join([f"{kind}:", *driver.counted(results)]), flush=True)
        faults |= any(result["fault"] for result in results)
    return int(faults)


if __name__ == "__main__":
    sys.exit(main())
