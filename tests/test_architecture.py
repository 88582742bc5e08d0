"""Rules of the package that import-linter's contracts in pyproject.toml cannot express."""

import ast
import graphlib
import importlib
import inspect
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import tf_transformer

PACKAGE = "tf_transformer"
ROOT = Path(tf_transformer.__file__).parent
FRAMEWORKS = {"keras", "tensorflow", "tensorflow_text", "sentencepiece"}


def module_name(path: Path) -> str:
    """layers/attention.py is layers.attention, layers/__init__.py is layers."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}
MODULES = pytest.mark.parametrize("module", [name for name in SOURCES if name])


def imported_names(module: str) -> set[str]:
    """Returns the full names of all imported modules, even if imported inside functions."""
    names = set()
    for node in nodes_of(module):
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


def is_in(module: str, part: str) -> bool:
    return module == part or module.startswith(f"{part}.")


def test_no_modules_import_each_other_in_a_cycle():
    graph = {module: own_imports(module) - {module} for module in SOURCES}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle


def nodes_of(module: str) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(SOURCES[module].read_text(encoding="utf-8")))


def docstrings_of(module: str) -> Iterator[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for node in nodes_of(module):
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            yield text


@MODULES
def test_docstrings_begin_with_a_verb_or_a_noun(module):
    """ "Returns whether ...", and not "Whether ..."."""
    no_subject = {"Of", "What", "That", "Those", "Whether", "Where", "How"}
    assert not [text for text in docstrings_of(module) if text.split()[0] in no_subject]


@pytest.mark.parametrize(
    "module", [m for m in SOURCES if m.startswith(("fast.", "layers.", "models."))]
)
def test_methods_without_a_docstring_override_documented_ones(module):
    classes = vars(importlib.import_module(f"{PACKAGE}.{module}")).values()
    for each in filter(inspect.isclass, classes):
        if each.__module__ == f"{PACKAGE}.{module}":
            undocumented = {
                name for name, method in vars(each).items()
                if inspect.isfunction(method) and not (method.__doc__ or name.startswith("_"))
            }  # fmt: skip
            assert not [name for name in undocumented if not hasattr(each.__base__, name)]


def test_settings_runs_and_commands_load_without_a_framework():
    modules = (
        "config", "run", "translation.checks", "loading.load", "cli.main", "cli.options",
        "api.train", "decoding.interface",
    )  # fmt: skip
    code = "import sys\n" + "".join(f"import {PACKAGE}.{name}\n" for name in modules)
    code += f"print(*{{*sys.modules}} & {FRAMEWORKS})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


def test_a_wrong_path_is_refused_before_a_framework_is_imported():
    code = f"import sys, {PACKAGE}\ntry:\n    {PACKAGE}.load('nowhere')\n"
    code += f"except {PACKAGE}.UserError:\n    print(*{{*sys.modules}} & {FRAMEWORKS})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


TRACE = """
import builtins, sys

found, importing = set(), builtins.__import__

def traced(name, names=None, local=None, fromlist=(), level=0):
    importer = (names or {}).get("__name__", "")
    for module in (name, *(f"{name}.{each}" for each in fromlist or ())):
        found.add((importer, module))
    return importing(name, names, local, fromlist, level)

builtins.__import__ = traced
import importlib

import_module = importlib.import_module

def by_string(name, package=None):
    found.add((sys._getframe(1).f_globals["__name__"], name))
    return import_module(name, package)

importlib.import_module = by_string
import tf_transformer

assert tf_transformer.load(sys.argv[1]).translate("A dog runs.")
print(*(f"{importer} {module}" for importer, module in found), sep="\\n")
"""


def floors() -> dict[str, int]:
    """Returns the floor of each room, 0 for the highest, by the contract of pyproject.toml."""
    settings = tomllib.loads((ROOT.parent / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return {room: floor for floor, rooms in enumerate(layers) for room in rooms.split(" | ")}


def test_no_import_goes_upwards_while_a_run_translates(trained_run):
    """Imports by strings and inside functions count: import-linter does not see the former."""
    done = subprocess.run(
        [sys.executable, "-c", TRACE, str(trained_run.path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    pairs = [tuple(line.split()) for line in done.stdout.splitlines()]
    pairs = [pair for pair in pairs if all(name.startswith(f"{PACKAGE}.") for name in pair)]
    floor = {name: floors()[name.split(".")[1]] for pair in pairs for name in pair}
    assert len(floor) > 60  # that many modules were imported
    assert not [(one, other) for one, other in pairs if floor[one] > floor[other]]
