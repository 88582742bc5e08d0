"""Input: the speed of the data pipeline, alone and when feeding a model in training.

    python benchmarks/input_pipeline.py --corpus PREFIX --source en --target de

Text is tokenised once into a corpus of ids on disk, from which every epoch is batched. Training
from that corpus is compared with training on the same batches held in memory as constants.
"""

import argparse
from collections.abc import Mapping, Sequence

from harness.chart import Bar, draw_bars
from harness.contender import Spec
from harness.options import (
    add_corpus,
    make_parser,
    model_sizes,
    positive,
    prepared_corpus,
    run,
)
from harness.report import Report, say_versions, shown, table
from harness.rounds import Measured, measure, times_as_fast

KINDS = {
    "text to ids, once": "encode",
    "ids to batches": "batches",
    "training from ids on disk": "train-disk",
    "training from memory": "train-memory",
}
ON_DISK, IN_MEMORY = "training from ids on disk", "training from memory"


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    report = Report("input_pipeline", vars(options), options.output)
    title = f"{options.model}, batches of {options.batch_tokens} positions"
    ((_, results),) = measure(_specs(options), {title: {}}, options)
    report.add(title, results)
    print(f"\n{title}: {options.rounds} rounds, median (smallest-largest)\n")
    _say(results)
    print(report.say_machine())
    bars = [Bar(name, each.rate("tokens"), "ours") for name, each in results.items()]
    pictures = draw_bars(
        {"the pipeline alone": bars[:2], "training": bars[2:]},
        "target tokens a second",
        options.output / report.name,
    )
    print("wrote", report.write(), *pictures)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add_corpus(parser)
    parser.add_argument("--model", default="small", help="a preset")
    parser.add_argument("--vocab-size", type=positive, default=8_000)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--batch-tokens", type=positive, default=2_048)
    parser.add_argument("--steps", type=positive, default=8, help="batches in a round")
    parser.add_argument("--gpu", action="store_true", help="compute on the first GPU")
    return parser.parse_args(arguments)


def _specs(options: argparse.Namespace) -> list[Spec]:
    work = {
        "corpus": prepared_corpus(options),
        "model": model_sizes(options.model, options.vocab_size),
        "precision": options.precision,
        "batch_tokens": options.batch_tokens,
        "steps": options.steps,
    }
    return [Spec(name, "pipeline", options=work | {"kind": k}) for name, k in KINDS.items()]


def _say(results: Mapping[str, Measured]) -> None:
    trained = results[IN_MEMORY].rate("tokens").median
    rows = [
        [
            name,
            shown(each.rate("tokens")),
            f"{each.rate('tokens').median / trained:,.1f}",
            f"{each.cpu_seconds().median / each.answers[0].result['tokens'] * 1e6:,.1f} us",
        ]
        for name, each in results.items()
    ]
    print(table(("", "tokens/s", "times the speed of training", "CPU time per token"), rows))
    ratio = times_as_fast(results[ON_DISK], results[IN_MEMORY])
    print(f"\n{ON_DISK} is {shown(ratio, 3)} times as fast as {IN_MEMORY}")
    print(say_versions(results))


if __name__ == "__main__":
    run(main)
