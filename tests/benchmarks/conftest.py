"""The benchmarks are programs beside the package: their folders go on the path here."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path += [str(FOLDER), str(FOLDER / "contenders")]
