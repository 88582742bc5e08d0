"""Trains rows of the paper's Table 3, scaled down, and prints them beside the paper's.

Run the same command again to resume; finished rows are not trained again. Other options are
those of train.py, and are for every row.
"""

import itertools
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from experiments.common import Parser, integer, positive, run, write
from experiments.table3.report import parameters_table, write_report
from experiments.table3.rows import BASE, PRINTED, Settings, as_yaml, plan_rows, select_rows
from tf_transformer import Run

TRAIN = Path(__file__).parents[2] / "train.py"


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command with these words, by default those of the process."""
    parser = Parser("python -m experiments.table3", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    rows = (
        f"rows to train: {', '.join(PRINTED)}, or a letter for all of its rows (default: all)"
    )
    add("--rows", nargs="+", default=[], metavar="ROW", help=rows)
    scale = "divisor of widths, steps and warm-up (default: 1, as in the paper)"
    add("--scale", type=positive, default=1, metavar="N", help=scale)
    steps = "steps of base (default: 100,000 / scale); big, warm-up and evaluations follow"
    add("--steps", type=positive, metavar="N", help=steps)
    seeds = "seeds with which to train each row (default: 1)"
    add("--seeds", type=integer, nargs="+", default=[1], metavar="SEED", help=seeds)
    add("--output", metavar="DIR", help="folder of the runs (default: runs/table3-SCALE)")
    parameters = "print the rows' parameters beside the paper's; needs no data"
    add("--params-only", action="store_true", help=parameters)
    add("--table", action="store_true", help="print the results so far")
    options, more = parser.parse_known_args(words)
    output = Path(options.output or f"runs/table3-{options.scale}")
    chosen = select_rows(options.rows)
    planned = plan_rows(chosen, options.scale, options.steps, given_settings(more))
    if options.params_only:
        print(parameters_table(planned))
        return 0
    status = 0
    if not options.table:
        status = train_rows({row: planned[row] for row in chosen}, options.seeds, output, more)
        if status < 0:
            print("run the same command again to resume")
            return 0
    print(write_report(output, planned[BASE]))
    return status


def given_settings(words: Sequence[str]) -> dict[str, Any]:
    """Returns the settings that options of train.py give by --set, by "section.field"."""
    given = {}
    for option, word in itertools.pairwise(words):
        if option == "--set":
            name, _, value = word.partition("=")
            given[name.strip()] = yaml.safe_load(value)
    return given


def train_rows(
    rows: Mapping[str, Settings], seeds: Sequence[int], output: Path, more: Sequence[str]
) -> int:
    """Trains rows that are not finished, as runs in OUTPUT/ROW-seedN, seed after seed.

    A process of train.py for each, one after the other; `more` are its options. A row that
    fails does not stop the others. Returns 0, 1 if a row failed, or -1 if one stopped early.
    """
    status = 0
    for seed in seeds:
        for row, settings in rows.items():
            folder, file = output / f"{row}-seed{seed}", output / f"{row}.yaml"
            if (folder / "config.json").exists() and Run.open(folder).is_finished:
                continue
            write(file, as_yaml(settings))
            print(folder, flush=True)
            seed_option = ["--set", f"training.seed={seed}"]
            command = [sys.executable, str(TRAIN), "--config", str(file), *more, *seed_option]
            if failure := _train([*command, "--output", str(folder)]):
                print(f"{folder} failed, with status {failure}", flush=True)
                status = 1
            elif not Run.open(folder).is_finished:  # --stop-after
                return -1
    return status


def _train(command: Sequence[str]) -> int:
    """Runs train.py to its end; Ctrl-C reaches it too, so that it saves and ends."""
    with subprocess.Popen(command) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()
            raise


if __name__ == "__main__":
    sys.exit(run(main))
