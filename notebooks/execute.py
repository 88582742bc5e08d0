"""Executes the notebooks: `python notebooks/execute.py [NAME...]`, all of them by default.

Each text source, NAME.py, is executed from start to end in a fresh kernel and written, with its
outputs, to NAME.ipynb beside it.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent
SOURCES = sorted(FOLDER.glob("[0-9]-*.py"))
KERNEL = "notebook"
TIMEOUT = 600  # seconds a cell


def read(source: Path) -> nbformat.NotebookNode:
    """The notebook of a text source, without outputs; the same source, the same notebook."""
    notebook = jupytext.read(source)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    return notebook


def execute(source: Path) -> nbformat.NotebookNode:
    """The executed notebook of a text source.

    Its kernel is this Python with this working tree, in a folder that is deleted afterwards.

    Raises:
        nbclient.exceptions.CellExecutionError: if a cell raises.
    """
    notebook = read(source)
    metadata = notebook.metadata.copy()
    with tempfile.TemporaryDirectory() as temporary:
        folder, work = Path(temporary), Path(temporary, "work")
        work.mkdir()
        client = NotebookClient(
            notebook,
            km=_kernel_manager(folder),
            timeout=TIMEOUT,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": str(work)}},
        )
        # What TensorFlow's C++ side prints at import is for no one.
        client.execute(cleanup_kc=True, stderr=subprocess.DEVNULL)
    notebook.metadata = metadata  # without the version of Python
    return notebook


def _kernel_manager(folder: Path) -> AsyncKernelManager:
    """Of a kernel that nobody needs to have installed."""
    specification = {
        "argv": [
            *(sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"),
            # What is printed past Python is no output of a cell.
            "--IPKernelApp.capture_fd_output=False",
        ],
        "display_name": KERNEL,
        "language": "python",
        "env": {
            "PYTHONPATH": os.pathsep.join(
                [str(FOLDER.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
            "IPYTHONDIR": str(folder / "ipython"),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
    }
    (folder / KERNEL).mkdir()
    (folder / KERNEL / "kernel.json").write_text(json.dumps(specification), "utf-8")
    kernels = KernelSpecManager(kernel_dirs=[str(folder)])
    return AsyncKernelManager(kernel_name=KERNEL, kernel_spec_manager=kernels)


def main(names: list[str]) -> None:
    wanted = [FOLDER / f"{name}.py" for name in names] or SOURCES
    for source in wanted:
        nbformat.write(execute(source), source.with_suffix(".ipynb"))
        print(source.with_suffix(".ipynb").relative_to(FOLDER.parent))


if __name__ == "__main__":
    main(sys.argv[1:])
