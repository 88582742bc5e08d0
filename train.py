"""Trains a Transformer: `python train.py --help`."""

from tf_transformer.cli.process import run_process


def main() -> int:
    """Runs the command; returns its exit status."""
    # Imported here, so that Ctrl-C during the import prints one line too.
    from tf_transformer.cli.main import main_of

    return main_of("train", "train.py")


if __name__ == "__main__":
    run_process(main)
