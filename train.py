"""Trains a Transformer: `python train.py --help`."""

import sys

from tf_transformer.cli import train
from tf_transformer.cli.main import main_of

if __name__ == "__main__":
    sys.exit(main_of(train, "train.py"))
