"""The project stays small: no size exceeds its budget.

Who needs more removes something; a budget is raised only where an issue says so.
"""

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import ROOT

import tf_transformer
from tf_transformer.cli.main import COMMANDS

BUDGETS = {
    "package code": 21_069,  # lines without blanks, comments and docstrings
    "package lines": 31_360,
    "package files": 157,
    "tests lines": 29_515,
    "tests files": 169,
    "experiments lines": 7_000,  # with their tests
    "commands": 16,
    "refusals": 246,  # `raise UserError`
    "lines of a file": 600,
    "lines of a function": 60,  # without its arguments and docstring
}
_FOLDERS = ("tf_transformer", "tests", "experiments")
PACKAGE, TESTS, EXPERIMENTS = (sorted((ROOT / name).rglob("*.py")) for name in _FOLDERS)


def lines(files: list[Path]) -> int:
    return sum(len(file.read_text("utf-8").splitlines()) for file in files)


SILENT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(files: list[Path]) -> int:
    """Counts lines that hold code: neither blank nor only a comment, and in no docstring."""
    count = 0
    for file in files:
        text = file.read_text("utf-8")
        words = tokenize.generate_tokens(io.StringIO(text).readline)
        spans = (range(w.start[0], w.end[0] + 1) for w in words if w.type not in SILENT)
        numbers = {number for span in spans for number in span}
        for node in ast.walk(ast.parse(text)):
            documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            if documented and ast.get_docstring(node) is not None:
                numbers -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
        count += len(numbers)
    return count


def nodes(files: list[Path], kind: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Yields the nodes of a kind in files, with their places."""
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, kind):
                yield f"{file.relative_to(ROOT)}:{node.lineno}", node


def is_refusal(node: ast.AST) -> bool:
    call = node.exc
    return isinstance(call, ast.Call) and getattr(call.func, "id", "") == "UserError"


SIZES = {
    "package code": lambda: code_lines(PACKAGE),
    "package lines": lambda: lines(PACKAGE),
    "package files": lambda: len(PACKAGE),
    "tests lines": lambda: lines(TESTS),
    "tests files": lambda: len(TESTS),
    "experiments lines": lambda: lines(EXPERIMENTS),
    "commands": lambda: len(COMMANDS),
    "refusals": lambda: sum(is_refusal(node) for _, node in nodes(PACKAGE, ast.Raise)),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_size_is_within_its_budget(name):
    assert SIZES[name]() <= BUDGETS[name]


def test_no_file_is_long():
    files = (*PACKAGE, *TESTS, *EXPERIMENTS)
    sizes = {str(file.relative_to(ROOT)): lines([file]) for file in files}
    most = BUDGETS["lines of a file"]
    assert {name: size for name, size in sizes.items() if size > most} == {}


def body_lines(function: ast.FunctionDef) -> int:
    first = function.body[ast.get_docstring(function) is not None :]
    return function.end_lineno - first[0].lineno + 1 if first else 0


def test_no_function_is_long():
    functions = nodes(PACKAGE + EXPERIMENTS, ast.FunctionDef)
    sizes = {place: body_lines(node) for place, node in functions}
    most = BUDGETS["lines of a function"]
    assert {place: size for place, size in sizes.items() if size > most} == {}


def test_public_names_have_docstrings():
    """Ruff finds missing docstrings in files; here are the names that users import."""
    assert [
        name for name in tf_transformer.__all__ if not getattr(tf_transformer, name).__doc__
    ] == []
