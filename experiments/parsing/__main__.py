"""The command `python -m experiments.parsing`: train, parse, score, draw."""

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.common import positive, run, run_one, table
from experiments.parsing.brackets import (
    CUTOFF,
    DELETED,
    SentenceScore,
    Status,
    score_lines,
    summarise,
)
from experiments.parsing.picture import draw_trees
from experiments.parsing.trees import ROOTS, Tree, read_line, read_linearised
from experiments.text import read_lines
from tf_transformer import UserError

FOLDER = Path(__file__).parent
AT_ONCE = 2_000  # sentences

# Of the table of scores.
_COUNTS = ("sentences", "errors", "skipped", "valid")
_FIGURES = (
    "recall", "precision", "f1", "complete_match", "average_crossing", "no_crossing",
    "two_or_less_crossing", "tagging_accuracy",
)  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    """Trains a parser, parses sentences, scores the trees, and draws them."""
    run_one("python -m experiments.parsing", main.__doc__, COMMANDS, words)


def _add_train(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    text = "files of trees in Penn brackets, plain or .gz; one given twice counts twice"
    add("--train", nargs="+", type=Path, required=True, metavar="FILE", help=text)
    text = "files of trees whose F1 chooses the best weights"
    add("--valid", nargs="+", type=Path, required=True, metavar="FILE", help=text)
    add("--output", type=Path, required=True, metavar="DIR", help="folder of the parser")
    default = FOLDER / "parsing-small.yaml"
    text = "file of settings (default: parsing-small.yaml of this folder)"
    add("--config", type=Path, default=default, metavar="FILE", help=text)
    text = "replaces a setting of the file, as in model.dropout=0.2"
    add("--set", action="append", default=[], type=_assignment, metavar="NAME=VALUE", help=text)
    text = "length of this session, such as 2h or '500 steps'; the same command resumes"
    add("--stop-after", metavar="TIME", help=text)


def _train(options: argparse.Namespace) -> None:
    """Trains a parser on trees, or resumes its training."""
    from experiments.parsing.parser import train

    train(
        options.train,
        options.valid,
        options.output,
        config=options.config,
        settings=dict(options.set),
        stop_after=options.stop_after,
    )
    print(f"python -m experiments.parsing parse {options.output} < sentences > trees")


def _add_parse(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("parser", type=Path, metavar="PARSER", help="the --output of train")
    text = (
        "what the search may write: any sequence, repaired afterwards (none); trees over "
        "exactly the words, with any tags (words) or only tags that the training trees allow "
        "for each word (tags, the default)"
    )
    add("--constraint", choices=("none", "words", "tags"), default="tags", help=text)
    text = "parse the words of the trees in FILE, plain or .gz, instead of stdin"
    add("--words-of", type=Path, metavar="FILE", help=text)
    add("--checkpoint", metavar="NAME", help="best, average, last or a step")
    add("--beam", dest="beam_size", type=positive, metavar="W", help="beam size")
    add("--alpha", type=float, metavar="A", help="exponent of the length penalty")


def _parse(options: argparse.Namespace) -> None:
    """Parses stdin to stdout, one tree in Penn brackets per line of words.

    Words are separated by spaces; empty lines stay empty. Reports on stderr how many trees had
    to be repaired.
    """
    file = options.words_of
    lines = (words for words, _ in read_linearised(file)) if file else read_lines("-")
    from experiments.parsing.parser import Counts
    from experiments.parsing.parser import Parser as TreeParser

    chosen = {name: getattr(options, name) for name in ("beam_size", "alpha")}
    search = {name: value for name, value in chosen.items() if value is not None}
    parser = TreeParser.load(
        options.parser,
        constraint=options.constraint,
        checkpoint=options.checkpoint,
        search=search,
    )
    total = Counts()
    while sentences := [*itertools.islice(lines, AT_ONCE)]:
        parses = parser.parse(sentences)
        sys.stdout.writelines(f"{parse}\n" for parse in parses)
        sys.stdout.flush()
        total += Counts.of(parses)
    print(total.summary(), file=sys.stderr)


def _add_score(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("gold", metavar="GOLD", help="file of correct trees, one on each line")
    text = "file of a parser's trees (default: stdin)"
    parser.add_argument("trees", metavar="OUTPUT", nargs="?", default="-", help=text)


def _score(options: argparse.Namespace) -> None:
    """Scores trees by labelled precision, recall and more, as evalb does.

    Prints the scores of all sentences and of short ones, and each sentence left out on stderr.
    """
    gold, output = ([*read_lines(file)] for file in (options.gold, options.trees))
    if len(gold) != len(output):
        raise UserError(
            f"GOLD and OUTPUT must have a tree on each line. Received: {options.gold} with "
            f"{len(gold):,} lines, {options.trees} with {len(output):,}."
        )
    scores = score_lines(gold, output, gold_name=options.gold)
    for number, score in enumerate(scores, start=1):
        if score.status == Status.ERROR:
            print(f"sentence {number} is left out: {score.problem}", file=sys.stderr)
    _warn_of_root(gold, options.gold)
    print(_bracket_table(scores))


def _warn_of_root(gold: Sequence[str], name: str) -> None:
    """Warns if the rules count the gold trees' root as a bracket; parsers output TOP."""
    first = next((line for line in gold if line.strip()), "")
    labels = [tree.label for tree in read_line(first, name)]
    if any(label in ROOTS and label not in DELETED for label in labels):
        print(
            f"warning: the root of the trees in {name} is "
            f"{labels[0] or 'a bracket without a label'}, which these rules count as a "
            "bracket: rename it to TOP, unless the output has it too",
            file=sys.stderr,
        )


def _bracket_table(scores: Sequence[SentenceScore]) -> str:
    summaries = summarise(scores), summarise(s for s in scores if s.length <= CUTOFF)
    rows = [
        [name.replace("_", " ").replace("f1", "F1")]
        + [format(getattr(each, name), form) for each in summaries]
        for names, form in ((_COUNTS, ",d"), (_FIGURES, ".2f"))
        for name in names
    ]
    return table(["", "all", f"<= {CUTOFF} words"], rows, "lr")


def _add_draw(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("gold", metavar="GOLD", help="file of correct trees")
    add("trees", metavar="OUTPUT", help="file of a parser's trees")
    add("--line", type=positive, default=1, metavar="N", help="line to draw (default: 1)")
    text = "picture to write, such as tree.png"
    add("--output", type=Path, required=True, metavar="FILE", help=text)


def _draw(options: argparse.Namespace) -> None:
    """Draws a tree of OUTPUT below the tree on the same line of GOLD.

    Both files have one tree per line in Penn brackets. Dashed boxes mark brackets that the
    other tree lacks.
    """
    gold, tree = (_tree(path, options.line) for path in (options.gold, options.trees))
    draw_trees(gold, tree, options.output)


def _tree(path: str, wanted: int) -> Tree:
    """Reads the tree on a line, counted from 1."""
    lines = [*read_lines(path)]
    trees = read_line(lines[wanted - 1], path, wanted) if wanted <= len(lines) else ()
    if len(trees) != 1:
        raise UserError(f"{path}:{wanted}: expected one tree. Received: {len(trees)}.")
    return trees[0]


def _assignment(text: str) -> tuple[str, Any]:
    """Reads NAME=VALUE, whose value may be JSON, such as 0.2 or true."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE. Received: {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


COMMANDS = {
    "train": (_add_train, _train),
    "parse": (_add_parse, _parse),
    "score": (_add_score, _score),
    "draw": (_add_draw, _draw),
}

if __name__ == "__main__":
    sys.exit(run(main))
