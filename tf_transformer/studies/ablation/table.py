"""Table 3 with our figures beside the paper's, as Markdown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tf_transformer.config import Config
from tf_transformer.studies.ablation.plot import Difference
from tf_transformer.studies.ablation.results import Result, Spread
from tf_transformer.studies.ablation.rows import BASE, ROWS, change
from tf_transformer.studies.paper import TABLE3_PRINTED, Printed
from tf_transformer.training.memory import parameter_count

PARAMETERS_NOTE = (
    "No vocabulary gives all of the paper's parameters: its own figures do not agree. From\n"
    "C-d1024 to big, d_ff doubles and 50.4 M weights are added; the paper prints 45. At its\n"
    "37,000 pieces every row comes out smaller than printed, big larger; at 41,100 pieces\n"
    "(--set model.vocab_size=41100) every row but big comes out as printed."
)


@dataclass(frozen=True)
class Compared:
    """A row's figures, ours and the paper's; None where there is none."""

    row: str
    change: str
    perplexity: Spread
    bleu: Spread
    parameters: int
    printed: Printed


def compare(results: dict[str, list[Result]]) -> list[Compared]:
    """Our results, from `read_results`, beside the paper's."""
    return [
        Compared(
            row=row,
            change=found[0].change,
            perplexity=Spread.of([result.perplexity for result in found]),
            bleu=Spread.of([result.bleu for result in found]),
            parameters=found[0].parameters,
            printed=TABLE3_PRINTED[ROWS[row]],
        )
        for row, found in results.items()
    ]


def results_table(rows: Sequence[Compared]) -> str:
    """A line for each row: figures with differences to base, ours and the paper's.

    Without base among the rows there are no differences of ours.
    """
    base = next((row for row in rows if row.row == BASE), None)
    header = [
        "row", "change", "PPL", "to base", "paper", "to base", "BLEU", "to base", "paper",
        "to base", "params (M)", "paper",
    ]  # fmt: skip
    lines = [
        [
            row.row,
            row.change,
            *_figures(row, base, lambda each: each.perplexity, lambda p: p.perplexity, 2),
            *_figures(row, base, lambda each: each.bleu, lambda p: p.bleu, 1),
            _millions(row.parameters),
            _optional(row.printed.millions),
        ]
        for row in rows
    ]
    return markdown([header, *lines])


def caption(base: Config, results: dict[str, list[Result]]) -> str:
    """What the figures of ours are: the base model, its training, seeds and signature."""
    model, training, data = base.model, base.training, base.data
    every = [result for found in results.values() for result in found]
    text = ", ".join(data.train) or "the built-in corpus"
    languages = f" {data.source}-{data.target}" if data.train else ""
    signatures = " and ".join(sorted({each.signature for each in every}))
    counts = sorted({len(found) for found in results.values()})
    seeds = " to ".join(str(count) for count in {counts[0]: 0, counts[-1]: 0})
    return (
        f"Base: N {model.num_layers}, d_model {model.d_model}, d_ff {model.d_ff}, "
        f"h {model.num_heads}, vocabulary {model.vocab_size:,}; "
        f"{training.steps:,} steps of {training.batch_tokens:,} positions; "
        f"{text}{languages}; seeds a row: {seeds}.\n"
        "Perplexity (per word piece, not smoothed) and BLEU are of the dev set and the last "
        f"checkpoint. BLEU of ours: {signatures}; the paper's is tokenised."
    )


def differences(rows: Sequence[Compared]) -> dict[str, list[Difference]]:
    """How far each row is from base, for a chart; empty without base or without others."""
    base = next((row for row in rows if row.row == BASE), None)
    others = [row for row in rows if row is not base]
    if base is None or not others:
        return {}
    return {
        title: [
            Difference(
                row.row,
                getattr(row, name).mean - getattr(base, name).mean,
                getattr(row.printed, name) - getattr(base.printed, name),
                getattr(row, name).deviation,
            )
            for row in others
        ]
        for title, name in (("perplexity", "perplexity"), ("BLEU", "bleu"))
    }


def _figures(
    row: Compared,
    base: Compared | None,
    ours: Callable[[Compared], Spread],
    papers: Callable[[Printed], float],
    decimals: int,
) -> list[str]:
    """Ours, its difference to base, the paper's and its difference."""
    is_base = row.row == BASE
    printed = papers(row.printed)
    printed_difference = printed - papers(TABLE3_PRINTED[BASE])
    difference = "" if is_base or base is None else (
        f"{ours(row).mean - ours(base).mean:+.2f}"
    )  # fmt: skip
    return [
        _spread(ours(row)),
        difference,
        f"{printed:.{decimals}f}",
        "" if is_base else f"{printed_difference:+.{decimals}f}",
    ]


def parameters_table(configs: dict[str, Config]) -> str:
    """A line for each row: its parameters, counted from the configuration, and the paper's.

    `configs` must have base.
    """
    counts = {row: parameter_count(config.model) for row, config in configs.items()}
    base, printed_base = counts[BASE], TABLE3_PRINTED[BASE].millions
    lines = [["row", "change", "parameters", "M", "to base", "paper M", "to base"]]
    for row, config in configs.items():
        printed = TABLE3_PRINTED[ROWS[row]].millions
        lines.append(
            [
                row,
                change(config, configs[BASE]),
                f"{counts[row]:,}",
                _millions(counts[row]),
                "" if row == BASE else _millions(counts[row] - base, sign="+"),
                _optional(printed),
                "" if printed is None or row == BASE else f"{printed - printed_base:+d}",
            ]
        )
    return markdown(lines)


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A table whose columns line up in plain text too; the first line is its head."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * width for width in widths]
    return "".join(
        f"| {' | '.join(map(str.ljust, line, widths))} |\n"
        for line in (lines[0], rule, *lines[1:])
    )


def _spread(value: Spread) -> str:
    spread = "" if value.deviation is None else f" ± {value.deviation:.2f}"
    return f"{value.mean:.2f}{spread}"


def _millions(count: int, sign: str = "") -> str:
    return f"{count / 1e6:{sign}.{1 if abs(count) >= 10e6 else 3}f}"


def _optional(value: int | None) -> str:
    return "" if value is None else f"{value}"
