"""Later choices: CPU time of a training step and of decoding, against the paper's choices.

    python benchmarks/choices.py --corpus PREFIX --source en --target de --threads 1

Each choice is one setting beside an otherwise equal preset multi30k, with random weights. A
round of training is one update on each of a few batches of real lengths, in mixed_bfloat16; a
round of decoding is a beam search in float32 for a batch whose outputs are forced to the same
length. "Times" is the CPU time divided by that of the paper's choices in the same round. All
models are in memory at once: --choices measures fewer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from harness.contender import Spec, make_file
from harness.options import add_corpus, make_parser, positive, prepared_corpus, run
from harness.report import Report, say_versions, shown, table
from harness.rounds import Measured, measure, times_as_fast

from tf_transformer.config.presets import preset

PAPER = "sinusoidal, relu, layer norm"
# A gated network has three matrices instead of two, so d_ff is two thirds of the preset's 256.
CHOICES = {
    PAPER: {"positions": "sinusoidal"},
    **{f"positions={name}": {"positions": name} for name in ("learned", "relative", "rotary")},
    "positions=none": {"positions": "none"},
    **{f"activation={n}": {"activation": n, "d_ff": 171} for n in ("swiglu", "geglu")},
    "norm=rms": {"norm": "rms"},
    "attention_window=16": {"attention_window": 16},
}
SEARCH = {"source": 16, "output": 24, "beam": 5, "batch": 32}
HEADER = ("", "parameters", "CPU s an update", "times", "CPU ms a decoded token", "times")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__, rounds=7)
    add_corpus(parser)
    text = "batches in a round of training"
    parser.add_argument("--batches", type=positive, default=4, help=text)
    parser.add_argument("--choices", nargs="+", choices=list(CHOICES)[1:], metavar="CHOICE",
                        default=list(CHOICES)[1:], help="default: all")  # fmt: skip
    options = parser.parse_args(arguments)
    chosen, size = preset("multi30k"), {"number": options.batches}
    size["batch_tokens"] = chosen.training.batch_tokens
    batches = make_file("batches", corpus=prepared_corpus(options), **size)
    base = asdict(chosen.model) | CHOICES[PAPER]
    models = {name: base | CHOICES[name] for name in (PAPER, *options.choices)}
    work = {"batches": batches, "precision": "mixed_bfloat16"}
    training = [
        Spec(name, "training_ours", options=work | {"model": model})
        for name, model in models.items()
    ]
    decoding = [Spec(name, "scaling", options=model) for name, model in models.items()]
    model = chosen.model
    sizes = {"vocabulary": model.vocab_size, "width": model.d_model, "layers": model.num_layers}
    report = Report("choices", vars(options), options.output)
    ((_, trained),) = measure(training, {"training": {}}, options)
    report.add("training", trained)
    ((_, decoded),) = measure(decoding, {"decoding": SEARCH | sizes}, options)
    report.add("decoding", decoded)
    rows = [_row(name, trained, decoded, options.batches) for name in models]
    print(f"\n{options.rounds} rounds, median (smallest-largest)\n")
    print(table(HEADER, rows))
    print(f"\n{say_versions(trained)}\n{report.say_machine()}")
    print("wrote", report.write())


def _row(
    name: str, trained: Mapping[str, Measured], decoded: Mapping[str, Measured], batches: int
) -> list[str]:
    result = decoded[name].answers[0].result
    return [
        name,
        f"{result['parameters']:,}",
        shown(trained[name].cpu_seconds().scaled(1 / batches), 2),
        shown(times_as_fast(trained[PAPER], trained[name], cpu=True), 2),
        shown(decoded[name].cpu_seconds().scaled(1e3 / result["tokens"]), 2),
        shown(times_as_fast(decoded[PAPER], decoded[name], cpu=True), 2),
    ]


if __name__ == "__main__":
    run(main)
