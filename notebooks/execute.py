"""Executes the notebooks: `python notebooks/execute.py [NAME...]`, by default all of them.

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
TIMEOUT = 600  # seconds per cell


def read(source: Path) -> nbformat.NotebookNode:
    """Reads a text source as a notebook without outputs; the result is reproducible."""
    notebook = jupytext.read(source)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    return notebook


def execute(source: Path) -> nbformat.NotebookNode:
    """Executes a text source and returns its notebook.

    The kernel is this Python with this working tree, in a folder that is deleted afterwards.

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
        # TensorFlow's C++ code prints messages at import that readers do not need.
        client.execute(cleanup_kc=True, stderr=subprocess.DEVNULL)
    for cell in notebook.cells:  # without the blanks that progress bars leave behind
        cell.get("outputs", [])[:] = [
            each for each in cell.get("outputs", []) if each.get("text", "-").strip()
        ]
    notebook.metadata = metadata  # without the version of Python
    return notebook


def _kernel_manager(folder: Path) -> AsyncKernelManager:
    """Returns a manager for a kernel that needs no installation."""
    specification = {
        "argv": [
            *(sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"),
            # Output that bypasses Python does not belong to a cell.
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
            # glibc keeps the memory of freed tensors, as in commands (see base/system.py).
            "MALLOC_MMAP_MAX_": "0",
            "MALLOC_TOP_PAD_": str(64 * 2**20),
            "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
        },
    }
    (folder / KERNEL).mkdir()
    (folder / KERNEL / "kernel.json").write_text(json.dumps(specification), "utf-8")
    kernels = KernelSpecManager(kernel_dirs=[str(folder)])
    return AsyncKernelManager(kernel_name=KERNEL, kernel_spec_manager=kernels)


def main(names: list[str]) -> None:
    sources = [FOLDER / f"{name}.py" for name in names] or SOURCES
    for source in sources:
        nbformat.write(execute(source), source.with_suffix(".ipynb"))
        print(source.with_suffix(".ipynb").relative_to(FOLDER.parent))


if __name__ == "__main__":
    main(sys.argv[1:])
