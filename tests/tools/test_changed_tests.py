"""`make check` runs the tests of changed modules."""

from pathlib import Path

import pytest

from tools.changed_tests import CORE, PACKAGE, TESTS, matching_tests

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("tf_transformer/data/corpus.py", ["data/test_corpus.py"]),
        ("tests/data/test_corpus.py", ["data/test_corpus.py"]),
        ("tests/data/conftest.py", []),
        ("README.md", []),
    ],
)
def test_a_module_is_matched_to_the_test_of_its_name(changed, expected):
    found = matching_tests(Path(changed), ROOT / TESTS)
    assert [str(path.relative_to(ROOT / TESTS)) for path in found] == expected


def test_a_module_without_its_own_test_is_matched_to_its_folder():
    module = next(
        path.relative_to(ROOT)
        for path in sorted((ROOT / PACKAGE / "training").glob("*.py"))
        if not [*(ROOT / TESTS / "training").glob(f"test_{path.stem}*.py")]
    )
    assert [*matching_tests(module, ROOT / TESTS)] == [ROOT / TESTS / "training"]


def test_the_default_tests_exist():
    assert all((ROOT / TESTS / name).exists() for name in CORE)
