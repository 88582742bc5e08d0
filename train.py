"""Trains a Transformer: `python train.py --help`."""

import sys

from tf_transformer.cli.train import main

if __name__ == "__main__":
    sys.exit(main())
