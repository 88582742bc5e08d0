"""`python -m tools.changed_tests`: prints the test files that belong to uncommitted changes.

Tests mirror the package: `tf_transformer/data/corpus.py` has `tests/data/test_corpus.py` or, if
that does not exist, the folder `tests/data`. Without changes it prints a few fast tests.
"""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

PACKAGE, TESTS = Path("tf_transformer"), Path("tests")
CORE = ("config", "evaluation", "test_architecture.py", "test_errors.py", "test_files.py")


def changed_files() -> list[Path]:
    """Returns the files that differ from the last commit, new ones included."""
    command = ["git", "status", "--porcelain", "--no-renames", "--untracked-files=all"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [Path(line[3:].strip('"')) for line in lines.splitlines()]


def matching_tests(file: Path, tests: Path = TESTS) -> Iterable[Path]:
    """Yields a module's test files, or else their folder; a test file yields itself."""
    if file.is_relative_to(TESTS):
        if file.name.startswith("test_") and file.suffix == ".py":
            yield tests / file.relative_to(TESTS)
    elif file.is_relative_to(PACKAGE) and file.suffix == ".py":
        room = tests / file.relative_to(PACKAGE).parent
        exact = [room / f"test_{file.stem}.py", *room.rglob(f"test_{file.stem}_*.py")]
        yield from [path for path in exact if path.exists()] or [room]


def main() -> int:
    tests = {path for file in changed_files() for path in matching_tests(file) if path.exists()}
    tests.discard(TESTS)
    print(*sorted(tests or {TESTS / name for name in CORE}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
