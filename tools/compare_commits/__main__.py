"""`python -m tools.compare_commits OLD [NEW]`: checks that two commits give the same results.

Both run the same small programs with fixed seeds, in separate processes; then NEW uses the
files of OLD. The status is 1 if any result differs, 2 if OLD itself fails.
"""

import argparse
import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.compare_commits.comparison import Row, compare
from tools.compare_commits.programs import MAKE, RESUMED, USE, write_texts
from tools.compare_commits.trees import Program, Tree, checked_out


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.compare_commits", description=__doc__
    )
    parser.add_argument("old", metavar="OLD", help="a commit")
    parser.add_argument("new", metavar="NEW", nargs="?", help="default: the working tree")
    parser.add_argument("--cross-only", action="store_true",
                        help="compare only the results of NEW on the files of OLD")  # fmt: skip
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as temporary,
        checked_out(options.old, Path(temporary, "tree-old")) as old,
        checked_out(options.new, Path(temporary, "tree-new")) as new,
    ):
        for tree in (old, new):
            tree.require_own_package()
        return print_results(old, new, Path(temporary), options.cross_only)


def print_results(old: Tree, new: Tree, folder: Path, cross_only: bool) -> int:
    """Prints a line for each result; returns the exit status."""
    made = {"old": old} if cross_only else {"old": old, "new": new}
    for name in made:
        (folder / name / "answers").mkdir(parents=True)
        write_texts(folder / name)
    failed = _run_all(MAKE, {folder / name: tree for name, tree in made.items()})
    if old_fails := failed[folder / "old"]:
        print("OLD fails:", *old_fails, sep="\n")
        return 2
    shutil.copytree(folder / "old", folder / "cross")
    used = made | {"cross": new}
    for name in used:
        for run in RESUMED:
            if (folder / name / "runs" / run).exists():
                shutil.copytree(folder / name / "runs" / run, folder / name / "resumed" / run)
    known = (old.path / "experiments").exists()
    use = [program for program in USE if known or not program.is_experiment]
    later = _run_all(use, {folder / name: tree for name, tree in used.items()})
    if old_fails := later[folder / "old"]:
        print("OLD fails:", *old_fails, sep="\n")
        return 2
    rows = []
    if not cross_only:
        failures = failed[folder / "new"] + later[folder / "new"]
        rows += _print_rows("OLD and NEW", folder / "old", folder / "new", failures)
    failures = later[folder / "cross"]
    title = "NEW with the files of OLD"
    rows += _print_rows(
        title, folder / "old", folder / "cross", failures, ("answers", "resumed")
    )
    different = sum(bool(row.difference) for row in rows)
    print(f"\n{len(rows)} results compared, {different} different")
    return 1 if different else 0


def _run_all(programs: Sequence[Program], trees: dict[Path, Tree]) -> dict[Path, list[str]]:
    """Runs programs in each folder, two folders at a time; returns the failures in each."""

    def run(item: tuple[Path, Tree]) -> list[str]:
        folder, tree = item
        failures = []
        for program in programs:
            print(f"{folder.name:5} {program.name}", file=sys.stderr, flush=True)
            failures += filter(None, [tree.run(program, folder)])
        return failures

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(trees, pool.map(run, trees.items()), strict=True))


def _print_rows(
    title: str,
    old: Path,
    new: Path,
    failures: Sequence[str],
    parts: Sequence[str] = ("runs", "answers", "resumed"),
) -> list[Row]:
    rows = [Row("failed in NEW", 0, why) for why in failures]
    for part in parts:
        rows += [
            dataclasses.replace(row, what=f"{part}/{row.what}")
            for row in compare(old / part, new / part)
        ]
    print(f"\n{title}\n", *rows, sep="\n", flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())
