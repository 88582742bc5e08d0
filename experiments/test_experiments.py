"""Experiments use what docs/reference/api.md lists of the package, and nothing else."""

import ast
import re
from collections.abc import Iterator

import pytest
from helpers import ROOT

import tf_transformer

PACKAGE = "tf_transformer"
SOURCES = sorted((ROOT / "experiments").rglob("*.py"))
OPEN_MODULES = ("evaluation", "layers")  # whose names are imported from them


def public_names() -> set[str]:
    """The names that the page lists, as they are imported: "load", "layers.Encoder"."""
    page = (ROOT / "docs" / "reference" / "api.md").read_text("utf-8")
    listed = re.findall(rf"(?m)^\.\. autoapi\w+:: {PACKAGE}\.([\w.]+)$", page)
    inside = {name for name in listed if name.startswith(tuple(f"{m}." for m in OPEN_MODULES))}
    return {name.rpartition(".")[2] for name in listed} & {*dir(tf_transformer)} | inside


PUBLIC = public_names() | {*OPEN_MODULES}


def used_names(source: str) -> Iterator[str]:
    """Yields what a source uses of the package, without the package's own name in front."""
    nodes, opened = [*ast.walk(ast.parse(source))], set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
            yield from (n.partition(".")[2] for n in names if n.startswith(f"{PACKAGE}."))
        elif isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{PACKAGE}."):
            room = (node.module or "").removeprefix(PACKAGE).removeprefix(".")
            used = {f"{room}.{alias.name}".lstrip(".") for alias in node.names}
            opened |= used & {*OPEN_MODULES}
            yield from used
    paths = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
    for path in (each.split(".") for each in paths if re.fullmatch(r"[\w.]+", each)):
        if path[0] == PACKAGE:
            yield ".".join(path[1:3] if path[1] in OPEN_MODULES else path[1:2])
        elif path[0] in opened:
            yield ".".join(path[:2])


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_an_experiment_uses_public_names_only(file):
    assert {*used_names(file.read_text("utf-8"))} - PUBLIC == set()


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_an_experiment_reads_no_private_attribute_of_others(file):
    nodes = ast.walk(ast.parse(file.read_text("utf-8")))
    private = {
        ast.unparse(node)
        for node in nodes
        if isinstance(node, ast.Attribute)
        and re.match(r"_(?!_)", node.attr)
        and ast.unparse(node.value) not in ("self", "cls")
    }
    assert private == set()


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from tf_transformer.run import Run", "run.Run"),
        ("from tf_transformer import run", "run"),
        ("import tf_transformer.run.run", "run.run"),
        ("import tf_transformer\ntf_transformer.decoding.engine", "decoding"),
        ("from tf_transformer import evaluation\nevaluation.paired_tests", "evaluation.paired"),
        ("from tf_transformer.layers.attention import x", "layers.attention.x"),
    ],
)
def test_another_name_is_found(source, name):
    assert any(used.startswith(name) for used in {*used_names(source)} - PUBLIC)
