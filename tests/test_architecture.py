"""The package's layers of modules: who may import whom, read from the source with `ast`."""

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import tf_transformer
from tf_transformer.tasks.registry import TASKS

PACKAGE = "tf_transformer"
ROOT = Path(tf_transformer.__file__).parent
FRAMEWORKS = {"keras", "tensorflow", "tensorflow_text", "sentencepiece"}

# What a module or package may import of ours, beside itself. Where a package and one of its
# modules both have a line, the module's holds for it.
MAY_IMPORT = {
    "errors": [],
    "files": ["errors"],
    "settings": ["errors"],
    "config": ["errors", "settings"],
    "presets": ["config", "errors"],
    "recipes": ["config", "errors", "presets"],
    "paper": [],
    "ablation": [
        "config", "errors", "evaluation.bleu", "files", "paper", "plots.ablation", "presets",
        "run", "training.memory",
    ],
    "cards": [
        "config", "data.corpus", "data.encoded", "data.normalization", "data.texts", "errors",
        "evaluation.bleu", "files", "paper", "presets", "recipes", "run",
        "training.checkpoints", "training.cost", "training.evaluation", "training.memory",
    ],
    "evaluation": ["errors"],
    "plots": ["errors", "evaluation", "files"],
    "layers": [],
    "models": ["layers", "training.model"],
    "data": ["config", "errors", "files"],
    "decoding": [],
    "decoding.rules": ["config"],
    "decoding.candidates": ["config", "decoding.rules"],
    "decoding.search": ["config", "decoding.candidates", "decoding.rules"],
    "decoding.beam_search": ["decoding.candidates", "decoding.rules", "decoding.search"],
    "decoding.sampling": [
        "config", "decoding.beam_search", "decoding.candidates", "decoding.rules",
        "decoding.search",
    ],
    "decoding.batches": ["config"],
    "decoding.ensemble": ["models"],
    "decoding.alignment": ["config"],
    "decoding.forced": [
        "config", "data.tokenizer", "decoding.alignment", "decoding.batches",
        "decoding.ensemble", "decoding.search", "models",
    ],
    "decoding.translator": [
        "config", "data.tokenizer", "decoding.batches", "decoding.beam_search",
        "decoding.candidates", "decoding.ensemble", "decoding.forced", "decoding.rules",
        "decoding.sampling", "decoding.search", "decoding.shortlist", "models",
    ],
    "decoding.translation_table": ["config"],
    "decoding.shortlist": ["config", "decoding.ensemble", "errors", "files", "models"],
    "training": ["config", "errors", "files", "layers", "run"],
    "training.losses": ["layers"],
    "training.metrics": ["training.losses"],
    "training.schedules": [],
    "training.optimizers": [],
    "training.model": ["training.losses", "training.metrics", "training.optimizers"],
    "training.progress": ["training.model"],
    "training.interruption": ["errors"],
    "training.evaluation": ["errors"],
    "training.devices": ["errors"],
    "training.checkpoints": ["errors", "files", "training.npz"],
    "training.npz": ["errors", "files"],
    "training.selection": ["training.checkpoints", "training.evaluation"],
    "training.memory": ["config"],
    "training.parts": ["config", "errors", "training.devices", "training.memory"],
    "training.cost": ["config", "paper"],
    "checksums": ["data.texts", "errors", "files"],
    "records": ["errors", "files"],
    "run": ["checksums", "config", "errors", "files", "records", "training.checkpoints"],
    "resume": ["config", "data.texts", "errors", "run"],
    "tasks": [
        "config", "data", "decoding", "errors", "evaluation", "files", "models", "run",
        "training.checkpoints", "training.model",
    ],
    "tasks.record": ["config", "run"],
    "tasks.registry": [
        "config", "errors", "run", "tasks.classification", "tasks.parsing", "tasks.record",
        "tasks.translation",
    ],
    "tasks.treebank": [
        "config", "data.corpus", "errors", "evaluation.trees", "tasks.linearisation",
        "tasks.parallel_text",
    ],
    "tasks.parallel_text": ["config", "errors", "files"],
    "tasks.transfer": ["config", "errors", "run"],
    "diagnosis": [
        "config", "data", "tasks.sequences", "training.memory", "training.parts",
    ],
    "tasks.linearisation": ["evaluation.trees"],
    "heads": [
        "data.tokenizer", "decoding.translator", "errors", "evaluation.bleu", "files", "models",
        "run", "training.checkpoints",
    ],
    "serving": [
        "cards.facts", "config", "data", "decoding", "errors", "evaluation", "files", "run",
        "training.checkpoints", "training.evaluation",
    ],
    "conversion": [
        "config", "data.normalization", "data.tokenizer", "errors", "files", "layers", "models",
        "run", "settings", "training.checkpoints",
    ],
    "cli": [
        "ablation", "cards", "config", "conversion", "data",
        "decoding.alignment", "diagnosis", "errors",
        "evaluation", "files", "heads", "plots", "presets", "recipes", "resume", "run",
        "serving", "settings", "tasks",
        "training.checkpoints", "training.devices", "training.evaluation",
        "training.interruption", "training.trainer",
    ],
}  # fmt: skip

# The frameworks that may be imported, where it is not all of them.
MAY_USE = {
    "errors": set(),
    "files": set(),
    "settings": set(),
    "config": set(),
    "presets": set(),
    "recipes": set(),
    "evaluation": set(),
    "plots": set(),
    "paper": set(),
    "ablation": set(),
    "run": set(),
    "checksums": set(),
    "records": set(),
    "resume": set(),
    "data.normalization": {"sentencepiece"},
    "decoding.translation_table": set(),
    "tasks.linearisation": set(),
    "tasks.record": set(),
    "tasks.parallel_text": set(),
    "tasks.registry": set(),
    "tasks.transfer": set(),
    "tasks.treebank": set(),
    "layers": {"keras"},
    "models": {"keras"},
    "training.losses": {"keras"},
    "training.metrics": {"keras"},
    "training.schedules": {"keras"},
    "training.progress": {"keras"},
    "training.interruption": set(),
}


def module_name(path: Path) -> str:
    """layers/attention.py is layers.attention, layers/__init__.py is layers."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}
MODULES = pytest.mark.parametrize("module", [name for name in SOURCES if name])


def imported_names(module: str) -> set[str]:
    """The full names of all imported modules, also of imports inside functions."""
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


def frameworks_of(module: str) -> set[str]:
    return FRAMEWORKS & {name.partition(".")[0] for name in imported_names(module)}


def is_package(module: str) -> bool:
    """Whether it is a package's `__init__`; that of `layers` is there to gather its modules."""
    return SOURCES[module].name == "__init__.py" and module != "layers"


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
    assert frameworks_of(module) <= allowed


def test_no_module_imports_itself_in_a_circle():
    graph = {module: own_imports(module) - {module} for module in SOURCES}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


# A default and a preset's purpose are data, and say their task by its name.
MAY_NAME_TASKS = ("tasks", "cli", "config", "presets")


@MODULES
def test_nothing_outside_tasks_and_the_command_line_knows_a_tasks_name(module):
    """A new task is a module of `tasks` and a line of its registry, and no more."""
    if not any(is_in(module, part) for part in MAY_NAME_TASKS):
        # "translation" is an everyday word as well: the name of a served output, for one.
        assert not strings_of(module) & (set(TASKS) - {"translation"})
        assert not own_imports(module) & {f"tasks.{name}" for name in TASKS}
        assert not asks_for_the_task(module), "the task does what differs, not its caller"


def nodes_of(module: str) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(SOURCES[module].read_text(encoding="utf-8")))


def strings_of(module: str) -> set[str]:
    constants = (node.value for node in nodes_of(module) if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def asks_for_the_task(module: str) -> bool:
    """Whether it reads `config.task`, of whatever holds the configuration."""
    read = (node for node in nodes_of(module) if isinstance(node, ast.Attribute))
    return any(
        node.attr == "task" and ast.unparse(node.value).endswith("config") for node in read
    )


def test_the_table_names_only_modules_that_exist():
    lines = {*MAY_IMPORT, *MAY_USE, *(name for part in MAY_IMPORT.values() for name in part)}
    assert lines <= set(SOURCES)


@pytest.mark.parametrize("package", [name for name in SOURCES if is_package(name)])
def test_a_package_imports_nothing_for_its_modules(package):
    """Else `import tf_transformer.config` would wait for TensorFlow."""
    assert not own_imports(package)
    assert not frameworks_of(package)
