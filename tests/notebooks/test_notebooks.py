"""The notebooks: executed as their text sources say, and executable from start to end."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("jupytext")
pytest.importorskip("ipykernel")

FOLDER = Path(__file__).parents[2] / "notebooks"
MOST_BYTES = 500_000  # beyond, GitHub is slow to show a notebook, or does not


def executor() -> ModuleType:
    """notebooks/execute.py, which is a program and in no package."""
    spec = importlib.util.spec_from_file_location("execute", FOLDER / "execute.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXECUTE = executor()
EACH = pytest.mark.parametrize("source", EXECUTE.SOURCES, ids=lambda source: source.stem)


def code_cells(notebook) -> list:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs_of(notebook) -> list:
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def assert_clean(notebook) -> None:
    """No errors, and nothing but what a cell means to show."""
    assert [each for each in outputs_of(notebook) if each.output_type == "error"] == []
    streams = [each for each in outputs_of(notebook) if each.output_type == "stream"]
    assert [each.text for each in streams if each.name == "stderr"] == []
    text = "".join(each.text for each in streams)
    assert re.findall(r"(?<![\w.])/(?:tmp|home|root|Users|var|work)/\S+", text) == []
    assert "\r" not in text, "a progress bar"
    assert "\x1b" not in text, "colours of a terminal"


def test_there_are_three():
    names = [source.stem for source in EXECUTE.SOURCES]
    assert names == ["1-walkthrough", "2-attention-and-heads", "3-your-own-data"]


@EACH
def test_the_executed_notebook_is_of_its_source(source):
    """Else `make notebooks` was forgotten."""
    executed = nbformat.read(source.with_suffix(".ipynb"), 4)
    expected = EXECUTE.read(source)
    assert executed.metadata == expected.metadata
    assert [(cell.cell_type, cell.source) for cell in executed.cells] == [
        (cell.cell_type, cell.source) for cell in expected.cells
    ]


@EACH
def test_the_executed_notebook_was_run_from_start_to_end(source):
    executed = nbformat.read(source.with_suffix(".ipynb"), 4)
    counts = [cell.execution_count for cell in code_cells(executed)]
    assert counts == list(range(1, len(counts) + 1))
    pictures = [each for each in outputs_of(executed) if "image/png" in each.get("data", {})]
    assert pictures
    assert_clean(executed)
    assert source.with_suffix(".ipynb").stat().st_size < MOST_BYTES


HURRY = """\
from tf_transformer.export import publishing, signatures
publishing.self_test = lambda *_: None
every, asked = signatures.Signatures.functions, ("serving_default", "with_options", "score")
signatures.Signatures.functions = lambda *given: {name: every(*given)[name] for name in asked}
"""
FEWER = {'"steps": 240': '"steps": 120', '"100 steps"': '"70 steps"', "epochs=6": "epochs=3"}


@EACH
def test_a_source_runs_in_a_fresh_kernel(source, monkeypatch):
    """The notebooks' own assertions are what is tested; an error in a cell raises.

    Less is trained; exports have what `load` needs, and the notebooks alone compare them.
    """

    def hurried(source):
        notebook = read(source)
        for cell in code_cells(notebook):
            for printed, number in FEWER.items():
                cell.source = cell.source.replace(printed, number)
        return notebook.cells.insert(0, nbformat.v4.new_code_cell(HURRY)) or notebook

    read = EXECUTE.read
    monkeypatch.setattr(EXECUTE, "read", hurried)
    notebook = EXECUTE.execute(source)
    assert [cell for cell in code_cells(notebook) if not cell.execution_count] == []
    assert_clean(notebook)
