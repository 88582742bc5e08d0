"""`python -m tools.storm`: tries many kinds of trouble for some minutes and prints counts."""

import argparse
import importlib
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tools.storm.lab import Lab

KINDS = {
    "stops": "signals and kills at random moments of training",
    "circumstances": "full and read-only disks, vanished folders, closed pipes",
    "damage": "bytes changed in the files of a run between two sessions",
    "requests": "malformed, huge, slow and many requests to a server",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.storm", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"default: {', '.join(KINDS)}")
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="minutes in total, shared among the kinds"
    )
    parser.add_argument("--tries", type=int, help="end each kind after this many tries")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="folder to keep (default: a temporary one)")
    options = parser.parse_args()
    kinds = options.kinds or list(KINDS)
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"KIND must be one of {', '.join(KINDS)}. Received: {', '.join(unknown)}.")
    broken = 0
    with tempfile.TemporaryDirectory() as temporary:
        for kind in kinds:
            folder = (options.folder or Path(temporary)) / kind
            folder.mkdir(parents=True)
            end = time.monotonic() + 60 * options.minutes / len(kinds)
            broken += storm(kind, Lab(folder, options.seed), end, options.tries)
    return 1 if broken else 0


def storm(kind: str, lab: Lab, end: float, most: int | None = None) -> int:
    """Tries one kind until `end` (by `time.monotonic`); prints counts, returns the failures.

    The module with the kind's name has `tries(lab)`, an endless generator of outcomes.
    """
    tried, broken = Counter(), Counter()
    for outcome in importlib.import_module(f"tools.storm.{kind}").tries(lab):
        tried[outcome.what] += 1
        if not outcome.held:
            broken[outcome.what] += 1
            print(f"{kind}: {outcome.what} broke: {outcome.detail}", flush=True)
        if tried.total() % 25 == 0:
            print(f"{kind}: {tried.total()} tried, {broken.total()} broke", flush=True)
        if time.monotonic() >= end or tried.total() == most:
            break
    for what in sorted(tried):
        print(f"{kind:14} {what:40} {tried[what]:6} tried {broken[what]:6} broke", flush=True)
    return broken.total()


if __name__ == "__main__":
    sys.exit(main())
