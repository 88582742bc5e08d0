"""Results of rows of Table 3: one JSON file in each row's run directory."""

import dataclasses
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tf_transformer.errors import UserError
from tf_transformer.evaluation.bleu import bleu
from tf_transformer.files import parse_json, write_text
from tf_transformer.run import Run
from tf_transformer.studies.ablation.rows import ROWS
from tf_transformer.training.memory import parameter_count

RESULT_FILE = "result.json"


@dataclass(frozen=True)
class Result:
    """What became of a row with one seed, by its last checkpoint.

    Attributes:
        row: of Table 3, such as "C-N2".
        change: what makes it differ from base.
        seed: of the training.
        steps: updates made.
        perplexity: of the dev set, not smoothed, per word piece.
        bleu: sacreBLEU of the dev set, without averaging checkpoints.
        signature: of that BLEU.
        parameters: of the model.
        target_tokens: seen in training.
        train_seconds: of training alone.
    """

    row: str
    change: str
    seed: int
    steps: int
    perplexity: float
    bleu: float
    signature: str
    parameters: int
    target_tokens: int
    train_seconds: float


@dataclass(frozen=True)
class Spread:
    """The mean of a figure over seeds and its standard deviation (None for one seed)."""

    mean: float
    deviation: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        several = len(values) > 1
        return cls(statistics.mean(values), statistics.stdev(values) if several else None)


def run_folder(output: Path, row: str, seed: int) -> Path:
    """The run directory of a row."""
    return output / f"{row}-seed{seed}"


def write_result(run: Run, row: str, change: str) -> Result:
    """Writes the result of a run that has been trained to its end."""
    history = run.history()
    last = history[-1]
    seconds = [record["train_seconds"] for record in history]
    rates = [record["tokens_per_second"] for record in history]
    result = Result(
        row=row,
        change=change,
        seed=run.config.training.seed,
        steps=last["step"],
        perplexity=last["valid_perplexity"],
        bleu=last["valid_bleu"],
        signature=bleu(["a"], ["a"]).signature,
        parameters=parameter_count(run.config.model),
        target_tokens=round(sum(s * r for s, r in zip(seconds, rates, strict=True))),
        train_seconds=sum(seconds),
    )
    write_text(run.path / RESULT_FILE, json.dumps(dataclasses.asdict(result), indent=2) + "\n")
    return result


def read_results(output: Path) -> dict[str, list[Result]]:
    """The results in a folder of rows, by row in the order of the paper, and by seed.

    Raises:
        UserError: if one cannot be read.
    """
    results = [_read(path) for path in sorted(output.glob(f"*-seed*/{RESULT_FILE}"))]
    results.sort(key=lambda result: result.seed)
    by_row = {row: [each for each in results if each.row == row] for row in ROWS}
    return {row: found for row, found in by_row.items() if found}


def _read(path: Path) -> Result:
    try:
        return Result(**parse_json(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path} is no result of ablate: {error}. Delete it.") from None
