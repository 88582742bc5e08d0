"""Exports a run like `export.py`."""

from pathlib import Path

from harness.child import serve

from tf_transformer.files import replacing_folder
from tf_transformer.run import Run
from tf_transformer.serving.translations import export
from tf_transformer.tasks.models import load_engine


def setup(run: str) -> dict:
    """Args:
    run: a run directory, whose best weights are exported.
    """

    def write(path: str) -> dict:
        opened = Run.open(run)
        engine = load_engine(opened, "best")
        with replacing_folder(Path(path), replace=False) as folder:
            export(engine, opened.config.decoding, folder, version=1)
        return {}

    return {"write": write}


if __name__ == "__main__":
    serve(setup)
