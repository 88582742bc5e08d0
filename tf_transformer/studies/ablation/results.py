"""The folder of an ablation: its settings, and a JSON file of results in each row's run."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from tf_transformer.config import Config
from tf_transformer.errors import UserError
from tf_transformer.evaluation.bleu import bleu
from tf_transformer.files import write_text
from tf_transformer.run import Run, holds_other_files
from tf_transformer.run.records import differences
from tf_transformer.studies.ablation.rows import ROWS
from tf_transformer.studies.cost import parameter_count

SETTINGS_FILE = "base.json"
RESULT_FILE = "result.json"
# Settings that may change between sessions, since results do not depend on them.
_CHANGEABLE = ("training.max_tokens_per_device", "training.save_minutes")


@dataclass(frozen=True)
class Result:
    """The result of a row with one seed, at its last checkpoint.

    Attributes:
        row: name in Table 3, such as "C-N2".
        change: difference from base.
        seed: training seed.
        steps: number of updates.
        perplexity: dev perplexity per word piece, without label smoothing.
        bleu: dev sacreBLEU, without averaging checkpoints.
        signature: sacreBLEU's signature.
        parameters: number of parameters.
        target_tokens: target tokens seen in training.
        train_seconds: training time, without evaluations.
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


def check_folder(output: Path, base: Config) -> None:
    """Checks that a folder can hold an ablation of `base`; writes nothing.

    Raises:
        UserError: if it has other files or rows with other settings, or cannot be read.
    """
    if not (output / SETTINGS_FILE).exists():
        if holds_other_files(output):
            raise UserError(
                f"{output} exists but was not created by `tf-transformer ablate`. Give "
                "--output a new folder."
            )
        return
    changes = differences(read_settings(output), base, _CHANGEABLE.__contains__)
    if changes and _has_rows(output):
        raise UserError(
            f"{output} has rows with other settings: {'; '.join(changes)}. Use the same "
            "settings to resume, or another --output."
        )


def begin_folder(output: Path, base: Config) -> Run:
    """Returns the run for the tokenizer and tokenised corpus that all rows share.

    Deletes an existing tokenizer if there are no rows yet, since it may come from mistaken
    settings. Call `check_folder` first.
    """
    run = Run(output, base)
    if not _has_rows(output):
        run.discard_tokenizer()
    write_text(output / SETTINGS_FILE, base.to_json())
    return run


def read_settings(output: Path) -> Config:
    """Returns the configuration of base, from which all rows in a folder derive."""
    try:
        return Config.from_json((output / SETTINGS_FILE).read_text("utf-8"))
    except OSError:
        raise UserError(
            f"{output} has no results yet. Expected the --output of an earlier `ablate`."
        ) from None


def run_folder(output: Path, row: str, seed: int) -> Path:
    """Returns the run directory of a row."""
    return output / f"{row}-seed{seed}"


def write_result(run: Run, row: str, change: str) -> Result:
    """Writes the result of a finished run."""
    history = run.history()
    last = history[-1]
    tokenize = run.config.data.bleu_tokenizer
    tokens = [record["train_seconds"] * record["tokens_per_second"] for record in history]
    result = Result(
        row=row,
        change=change,
        seed=run.config.training.seed,
        steps=last["step"],
        perplexity=last["valid_perplexity"],
        bleu=last["valid_bleu"],
        signature=bleu(["a"], ["a"], tokenize=tokenize).signature,
        parameters=parameter_count(run.config.model),
        target_tokens=round(sum(tokens)),
        train_seconds=sum(record["train_seconds"] for record in history),
    )
    write_text(run.path / RESULT_FILE, json.dumps(dataclasses.asdict(result), indent=2) + "\n")
    return result


def read_results(output: Path) -> dict[str, list[Result]]:
    """Reads all results in a folder, by row in the order of the paper, then by seed.

    Raises:
        UserError: if one cannot be read.
    """
    results = [_read(path) for path in sorted(output.glob(f"*-seed*/{RESULT_FILE}"))]
    results.sort(key=lambda result: result.seed)
    by_row = {row: [result for result in results if result.row == row] for row in ROWS}
    return {row: seeds for row, seeds in by_row.items() if seeds}


def _read(path: Path) -> Result:
    try:
        return Result(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path} is not a result of ablate: {error}. Delete it.") from None


def _has_rows(output: Path) -> bool:
    return any(output.glob("*-seed*"))
