"""Public paths: sentences per second, compared with only the search on token ids.

    python benchmarks/public_paths.py --run RUN --corpus PREFIX --source en --target de

The paths are `Translator.translate`, the exported SavedModel in a session like TF
Serving's, and `tf-transformer translate`, which reads all sentences at once. The time until the
first translation of a single sentence is subtracted from that of the command.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from harness.chart import Bar, draw_bars
from harness.contender import Spec, environment, make_file
from harness.options import add_corpus, make_parser, positive, prepared_corpus, run
from harness.report import Report, say_versions, shown, table
from harness.rounds import Spread, measure, say, times_as_fast
from harness.sentences import evenly_spaced

import tf_transformer
from tf_transformer.data.corpus import read_lines
from tf_transformer.errors import UserError

SEARCH, COMMAND = "search alone", "command"
PATHS = {SEARCH: "search", "Python": "python", "SavedModel": "savedmodel"}
SINGLES = 64  # sentences in a round of small requests
FEWEST = 100  # with fewer sentences, start-up dominates the time of the command


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    corpus = prepared_corpus(options)
    report = Report("public_paths", vars(options), options.output)
    panels = {}
    cases = _cases(options)
    for title, results in measure(_specs(options, corpus), cases, options):
        report.add(title, results)
        report.write()
        rates = {name: each.rate("sentences") for name, each in results.items()}
        ratios = {name: times_as_fast(each, results[SEARCH]) for name, each in results.items()}
        rows = [[name, shown(rates[name], 1), shown(ratios[name], 2)] for name in results]
        if title == list(cases)[-1]:
            seconds = command_seconds(options, corpus)
            report.add(COMMAND, {"seconds of the first sentence and of all": seconds})
            rates[COMMAND] = Spread.of(
                (options.sentences - 1) / (every - first) for first, every in seconds
            )
            rows.append([COMMAND, shown(rates[COMMAND], 1), ""])
        print(f"\n{title}: {options.rounds} rounds, median (smallest-largest)\n")
        print(table(("", "sentences/s", "times as fast"), rows))
        print(f"\n{say_versions(results)}", flush=True)
        panels[title] = [
            Bar(name, rate, "floor" if name == SEARCH else "ours")
            for name, rate in rates.items()
        ]
    print(f"\n{report.say_machine()}")
    pictures = draw_bars(panels, "sentences a second", options.output / report.name)
    print("wrote", report.write(), *pictures)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__, rounds=3)
    add_corpus(parser)
    parser.add_argument("--run", required=True, help="a trained run")
    parser.add_argument("--batch-sizes", type=positive, nargs="+", default=[1, 8, 32])
    parser.add_argument("--sentences", type=positive, default=1_000, help="sentences at once")
    options = parser.parse_args(arguments)
    if options.sentences < FEWEST:
        raise UserError(
            f"--sentences must be at least {FEWEST}. Received: {options.sentences}."
        )
    return options


def _specs(options: argparse.Namespace, corpus: str) -> list[Spec]:
    folder = Path(options.run).absolute()
    parts = ("config.json", "tokenizer.model", "checkpoints/best.npz")
    files = [folder / part for part in parts]
    files += sorted(Path(tf_transformer.__file__).parent.rglob("*.py"))
    exported = make_file("exported", files, run=str(folder))
    given = {"run": str(folder), "corpus": corpus, "exported": exported}
    return [
        Spec(name, "public_path", options=given | {"path": path})
        for name, path in PATHS.items()
    ]


def _cases(options: argparse.Namespace) -> dict[str, dict]:
    """Returns the arguments of `work` by title; the last has all sentences in a request."""
    cases = {
        f"{batch} a request": {"batch": batch, "number": max(batch, SINGLES)}
        for batch in options.batch_sizes
    }
    number = options.sentences
    return cases | {f"all {number:,} at once": {"batch": number, "number": number}}


def command_seconds(options: argparse.Namespace, corpus: str) -> list[tuple[float, float]]:
    """Times `tf-transformer translate` for one sentence and for all, in each round."""
    texts = sorted(read_lines(Path(corpus, "source.txt")), key=len)
    chosen = evenly_spaced(texts, options.sentences)
    results = []
    for each in range(options.rounds):
        say(f"{COMMAND}: round {each + 1} of {options.rounds}")
        results.append((_seconds(options, chosen[:1]), _seconds(options, chosen)))
    say("")
    return results


def _seconds(options: argparse.Namespace, lines: Sequence[str]) -> float:
    """Times the command for these sentences.

    Raises:
        UserError: if it fails.
    """
    command = [sys.executable, "-m", "tf_transformer.cli.main", "translate", options.run]
    command += ["--threads", str(options.threads)]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as text:
        text.writelines(f"{line}\n" for line in lines)
        text.seek(0)
        begun = time.perf_counter()
        done = subprocess.run(
            command,
            stdin=text,
            capture_output=True,
            text=True,
            env=environment(options.threads, gpu=False),
        )
        seconds = time.perf_counter() - begun
    if done.returncode:
        raise UserError(f"translate ended with status {done.returncode}: {done.stderr}")
    return seconds


if __name__ == "__main__":
    run(main)
