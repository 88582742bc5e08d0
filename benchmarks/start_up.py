"""Start-up: seconds from the shell to the first output.

    python benchmarks/start_up.py --run RUN

Measures `import tf_transformer`, which must not import TensorFlow, `--help`, and the first
translation of `tf-transformer translate`. Without --run, it first trains a tiny model for a few
steps.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from harness.chart import Bar, draw_bars
from harness.environments import FOLDER
from harness.options import make_parser, run
from harness.report import Report, shown, table
from harness.rounds import Spread, say

from tf_transformer.errors import UserError

COMMAND = [sys.executable, "-m", "tf_transformer.cli.main"]
LIGHT = "import sys, tf_transformer; sys.exit('tensorflow' in sys.modules)"
IMPORT, HELP, TRANSLATE = "import tf_transformer", "--help", "first translation"
# In seconds; the import has no limit.
LIMITS = {HELP: 0.3, TRANSLATE: 6.0}
SENTENCE = "The old man sees a red house.\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--run", help="a run of a small model")
    options = parser.parse_args(arguments)
    folder = options.run or str(_tiny_run())
    commands = {
        IMPORT: [sys.executable, "-c", LIGHT],
        HELP: [*COMMAND, "--help"],
        TRANSLATE: [*COMMAND, "translate", folder, "--threads", str(options.threads)],
    }
    report = Report("start_up", vars(options), options.output)
    times = {name: [] for name in commands}
    for number in range(options.rounds + 1):
        for name, command in commands.items():
            seconds = seconds_to_output(name, command)
            if number:  # the first round reads the files from disk
                times[name].append(seconds)
    report.add("seconds", times)
    results = {name: Spread.of(seconds) for name, seconds in times.items()}
    rows = [
        [name, shown(spread, 2), f"{LIMITS[name]:g}" if name in LIMITS else ""]
        for name, spread in results.items()
    ]
    print(f"\n{options.rounds} rounds, median (smallest-largest)\n")
    print(table(("", "seconds", "at most"), rows))
    print(f"\n{report.say_machine()}")
    panel = {"from the shell": [Bar(name, spread, "ours") for name, spread in results.items()]}
    print("wrote", report.write(), *draw_bars(panel, "seconds", options.output / report.name))


def seconds_to_output(name: str, command: Sequence[str]) -> float:
    """Times a command to its first line of output, or to its end if it prints none.

    Raises:
        UserError: if the command fails.
    """
    begun = time.perf_counter()
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        if name == TRANSLATE:
            process.stdin.write(SENTENCE)
        process.stdin.close()
        process.stdout.readline()
        seconds = time.perf_counter() - begun
        process.stdout.read()
        stderr = process.stderr.read()
    if process.returncode:
        why = stderr.strip() or "it imports TensorFlow"
        raise UserError(f"{name} ended with status {process.returncode}: {why}")
    return seconds


def _tiny_run() -> Path:
    """Trains a run for a few steps on first use, and resumes it after an interruption.

    Raises:
        UserError: if training fails.
    """
    path = FOLDER / ".cache" / "tiny-run"
    if not (path / "checkpoints" / "best.npz").exists():
        settings = ("steps=20", "evaluate_every=20", "average_last=1")
        command = [*COMMAND, "train", "--output", str(path)]
        command += [word for each in settings for word in ("--set", f"training.{each}")]
        say("training a tiny model")
        done = subprocess.run(command, capture_output=True, text=True)
        say("")
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2].removeprefix("error: ")
            raise UserError(
                f"The tiny run could not be trained (status {done.returncode}): {last} "
                f"Delete {path}, or use a run of your own with --run RUN."
            )
    return path


if __name__ == "__main__":
    run(main)
