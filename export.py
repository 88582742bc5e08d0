"""Exports a trained run as a SavedModel: `python export.py --help`."""

import sys

from tf_transformer.cli import export
from tf_transformer.cli.main import main_of

if __name__ == "__main__":
    sys.exit(main_of(export, "export.py"))
