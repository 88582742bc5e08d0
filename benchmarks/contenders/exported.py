"""Exports a run like `export.py`."""

from pathlib import Path

from harness.child import serve

from tf_transformer import load
from tf_transformer.files import replacing_folder


def setup(run: str) -> dict:
    """Args:
    run: a run directory, whose best weights are exported.
    """

    def write(path: str) -> dict:
        translator = load(run, checkpoint="best")
        with replacing_folder(Path(path), replace=False) as folder:
            translator.export(folder, version=1)
        return {}

    return {"write": write}


if __name__ == "__main__":
    serve(setup)
