"""The package's layers of modules: who may import whom, read from the source with `ast`."""

import ast
import graphlib
from pathlib import Path

import pytest

import tf_transformer

PACKAGE = "tf_transformer"
ROOT = Path(tf_transformer.__file__).parent
FRAMEWORKS = {"keras", "tensorflow", "tensorflow_text", "sentencepiece"}

# A module or package, and what else of ours it may import: its own modules always. Where
# both a package and one of its modules stand here, the module's line holds for it.
MAY_IMPORT = {
    "errors": [],
    "files": ["errors"],
    "config": ["errors"],
    "presets": ["config", "errors"],
    "evaluation": [],
    "layers": [],
    "models": ["layers"],
    "data": ["config", "errors", "files"],
    "decoding.candidates": ["config"],
    "decoding.beam_search": ["config", "decoding.candidates"],
    "decoding.translator": ["config", "data", "decoding.beam_search", "models"],
    "run": ["config", "errors", "files", "training.checkpoints"],
    "training": ["config", "errors", "files", "layers", "run"],
    "training.checkpoints": ["errors", "files"],
    "tasks": ["config", "data", "decoding", "errors", "evaluation", "files", "models", "run"],
    "cli": ["config", "data", "errors", "presets", "run", "tasks", "training"],
}

# The frameworks that may be imported, where it is not all of them.
MAY_USE = {
    "errors": set(),
    "files": set(),
    "config": set(),
    "presets": set(),
    "evaluation": set(),
    "run": set(),
    "layers": {"keras"},
    "models": {"keras"},
}


def module_name(path: Path) -> str:
    """Without the package: layers/attention.py is layers.attention, layers/__init__.py layers."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}
MODULES = pytest.mark.parametrize("module", [name for name in SOURCES if name])


def imported_names(module: str) -> set[str]:
    """The full names of all imported modules, also of imports inside functions."""
    names = set()
    for node in ast.walk(ast.parse(SOURCES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            names |= {_imported_from(node.module, alias.name) for alias in node.names}
    return names


def _imported_from(module: str, name: str) -> str:
    """`from a import b` imports a.b if that is one of our modules, else a."""
    full_name = f"{module}.{name}"
    return full_name if full_name.removeprefix(f"{PACKAGE}.") in SOURCES else module


def own_imports(module: str) -> set[str]:
    prefix = f"{PACKAGE}."
    return {
        name.removeprefix(prefix) for name in imported_names(module) if name.startswith(prefix)
    }


def line_of(module: str) -> str:
    """The most precise line of the table for a module."""
    lines = [line for line in MAY_IMPORT if is_in(module, line)]
    assert lines, f"{module} has no line in MAY_IMPORT: say what it may import"
    return max(lines, key=len)


def is_in(module: str, part: str) -> bool:
    return module == part or module.startswith(f"{part}.")


@MODULES
def test_imports_go_in_the_designs_direction(module):
    line = line_of(module)
    allowed = [line, *MAY_IMPORT[line]]
    wrong = {
        name for name in own_imports(module) if not any(is_in(name, part) for part in allowed)
    }
    assert not wrong, f"{module} may import {allowed} of ours only"


@MODULES
def test_frameworks_stay_where_they_belong(module):
    allowed = next((use for part, use in MAY_USE.items() if is_in(module, part)), FRAMEWORKS)
    used = {name.partition(".")[0] for name in imported_names(module)}
    assert used & FRAMEWORKS <= allowed


def test_no_module_imports_itself_in_a_circle():
    graph = {module: own_imports(module) - {module} for module in SOURCES}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_the_table_names_only_modules_that_exist():
    lines = {*MAY_IMPORT, *MAY_USE, *(name for part in MAY_IMPORT.values() for name in part)}
    assert lines <= set(SOURCES)


def test_packages_run_no_code_when_a_module_is_imported():
    """Else importing `training.checkpoints` would import all of `training`; layers may."""
    for module, path in SOURCES.items():
        if path.name == "__init__.py" and module != "layers":
            body = ast.parse(path.read_text(encoding="utf-8")).body
            assert all(isinstance(node, ast.Expr) for node in body), module
