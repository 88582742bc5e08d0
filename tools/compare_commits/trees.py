"""A commit as a tree of files, and programs that import the package of such a tree."""

import configparser
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "in_tree"
SECONDS = 900  # longer than any program takes on a loaded machine


@dataclass(frozen=True)
class Program:
    """A command line to run in a tree.

    Attributes:
        name: its name in the report; its output goes to answers/NAME.txt.
        words: the command line; `train.py`, `export.py` and `tf-transformer` mean those of the
            tree, a name such as `experiments.heads` its module, and the name of a file in
            `in_tree` that script.
        stdin: the text on standard input.
        kept: whether to compare its output; that of training contains times.
    """

    name: str
    words: Sequence[str]
    stdin: str = ""
    kept: bool = True

    @property
    def is_experiment(self) -> bool:
        """Whether it is of `experiments`, which 1.1.0 and earlier commits lack."""
        return self.words[0].startswith("experiments.")


@dataclass(frozen=True)
class Tree:
    """The files of a commit, or of the working tree."""

    path: Path

    def command(self, words: Sequence[str]) -> list[str]:
        """Returns the system's command line for `Program.words`."""
        entries = ("train.py", "export.py")
        own = {name: [sys.executable, str(self.path / name)] for name in entries}
        own |= {file.name: [sys.executable, "-P", str(file)] for file in SCRIPTS.glob("*.py")}
        own["tf-transformer"] = [sys.executable, "-P", "-c", self._console_script()]
        module = [sys.executable, "-P", "-m"]
        own |= {word: [*module, word] for word in words if word.startswith("experiments.")}
        return [part for word in words for part in own.get(word, [word])]

    def _console_script(self) -> str:
        setup = configparser.ConfigParser()
        setup.read(self.path / "setup.cfg")
        script = setup["options.entry_points"]["console_scripts"]
        module, function = script.partition("=")[2].strip().split(":")
        return f"from {module} import {function}; {function}()"

    def environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(self.path)}

    def run(self, program: Program, folder: Path) -> str:
        """Runs a program in `folder`; returns why it failed, or "" if it succeeded."""
        done = subprocess.run(
            self.command(program.words),
            input=program.stdin.encode(),
            capture_output=True,
            cwd=folder,
            env=self.environment(),
            timeout=SECONDS,
            check=False,
        )
        if program.kept:
            (folder / "answers" / f"{program.name}.txt").write_bytes(done.stdout)
        if done.returncode == 0:
            return ""
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return f"{program.name}: status {done.returncode}: {last}"

    def require_own_package(self) -> None:
        """Raises RuntimeError if the tree's processes would import an installed package."""
        show = [sys.executable, "-P", "-c", "import tf_transformer as t; print(t.__file__)"]
        done = subprocess.run(show, capture_output=True, text=True, env=self.environment())
        if not Path(done.stdout.strip()).is_relative_to(self.path):
            raise RuntimeError(f"{self.path} imports {done.stdout.strip() or done.stderr}.")


@contextmanager
def checked_out(commit: str | None, folder: Path) -> Iterator[Tree]:
    """Checks out a commit in `folder` while the context lasts; None is the working tree."""
    if commit is None:
        yield Tree(ROOT)
        return
    _git("worktree", "add", "--quiet", "--detach", str(folder), commit)
    try:
        yield Tree(folder)
    finally:
        _git("worktree", "remove", "--force", str(folder))


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *arguments], check=True)
