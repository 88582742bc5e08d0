"""On a terminal, `translate` prompts and answers line by line."""

import os
import pty
import re
import subprocess
import time
from select import select

from command_line import TF_TRANSFORMER, environment, translated

PATIENCE = 300  # seconds


def read_until(terminal: int, pattern: str) -> str:
    """What the terminal shows, up to the pattern, without its control sequences."""
    shown, end = "", time.monotonic() + PATIENCE
    while not re.search(pattern, shown):
        assert select([terminal], [], [], end - time.monotonic())[0], shown
        shown += os.read(terminal, 4096).decode()
        shown = re.sub(r"\x1b\[\?\d+[hl]", "", shown).replace("\r", "")
    return shown


def test_a_line_is_answered_before_the_next_prompt(trained_run, tmp_path, capsys):
    lines = [*trained_run.lines("train.en")[:2], ""]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    expected = translated(capsys, trained_run.path, tmp_path / "in")
    terminal, theirs = pty.openpty()
    # The first measurement of the number of threads would write a line.
    command = [*TF_TRANSFORMER, "translate", str(trained_run.path), "--threads", "1"]
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with subprocess.Popen(command, env=environment() | {"TERM": "dumb"}, **streams) as process:
        os.close(theirs)
        greeting = read_until(terminal, r"> $")
        assert greeting == "Type a sentence, then Enter; Ctrl-D ends.\n> "
        for line, translation in zip(lines, expected, strict=True):
            os.write(terminal, f"{line}\n".encode())
            assert read_until(terminal, r"\n> $") == f"{line}\n{translation}\n> "
        os.write(terminal, b"\x04")
        assert process.wait(PATIENCE) == 0
    os.close(terminal)
