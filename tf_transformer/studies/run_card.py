"""A run's card in Markdown: model, data, scores and cost."""

import json
import logging
from typing import Any

from tf_transformer.config import ModelConfig
from tf_transformer.config.presets import train_command
from tf_transformer.data.text import ROLES
from tf_transformer.data.vocabulary import tokenizer_settings
from tf_transformer.errors import UserError
from tf_transformer.files import write_text
from tf_transformer.output import MARKDOWN, Part, Table, joined
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import read_progress
from tf_transformer.run.records import comparable, read_results
from tf_transformer.run.run import (
    best_record,
    changed_text,
    data_files,
    describe_origin,
    evaluation_of,
)
from tf_transformer.studies.cost import Lengths, costs, describe_cost, parameter_count
from tf_transformer.studies.departures import describe_departures
from tf_transformer.tasks.registry import encoder_outputs

CARD_FILE = "card.md"

logger = logging.getLogger(__name__)


def write_card(run: Run, sustained_tflops: float | None = None) -> list[Part]:
    """Writes RUN/card.md from the files of a run, even during training.

    Args:
        run: a run with at least one evaluation.
        sustained_tflops: sustained rate of one device, to estimate the cost as in the paper.

    Returns:
        The parts of the card, for `tables.joined`.

    Raises:
        UserError: if the run has no evaluation yet, or the file cannot be written.
    """
    parts = _parts(run, sustained_tflops)
    write_text(run.path / CARD_FILE, joined(parts, MARKDOWN))
    return parts


def try_to_write_card(run: Run) -> None:
    """Writes the card at the end of training; a failure is only a warning."""
    try:
        write_card(run)
    except (UserError, OSError) as error:
        logger.warning("warning  no card was written: %s", error)


def _parts(run: Run, sustained_tflops: float | None) -> list[Part]:
    best = best_record(run)
    if best is None:
        raise UserError(
            f"{run.path} has no evaluation yet, so there is no card. Train the run until its "
            "first evaluation."
        )
    own = tokenizer_settings(run.tokenizer)
    sections: dict[str, list[Part]] = {
        "Model": _model(run),
        "Departures from the paper": [_code(describe_departures(run.config, own))],
        "Data": _data(run),
        "Changes during training": _changes(run),
        "Dev set": [_scores(run, best)],
        "Test sets": _tests(run),
        "Cost": _cost(run, sustained_tflops),
        "Versions": [_versions(run)],
        "Command": [_code([train_command(run.config, run.path)])],
    }
    parts: list[Part] = [f"# {run.path.name}"]
    for title, content in sections.items():
        parts += [f"## {title}", *content] if content else []
    return parts


def _model(run: Run) -> list[Part]:
    config, outputs = run.config, encoder_outputs(run)
    model, training = config.model, config.training
    kind = f"an encoder and a classifier of {outputs} labels" if outputs else "a Transformer"
    norm = "before each sublayer" if model.norm_first else "after each sublayer"
    done = max((record["step"] for record in run.history()), default=0)
    updates = f"{done:,}" if done == training.steps else f"{done:,} of {training.steps:,}"
    return [
        f"Preset {config.preset or 'none'}: {kind}, of {_layers(model, outputs)}, "
        f"d_model {model.d_model}, d_ff {model.d_ff}, {model.num_heads} heads, "
        f"{model.vocab_size:,} word pieces, {parameter_count(model, outputs):,} "
        f"parameters; {model.positions} positions, norms {norm}, dropout {_rates(model)}.",
        f"Trained for {updates} updates of {training.batch_tokens:,} positions with "
        f"Adam, {training.warmup_steps:,} of them warm-up, label smoothing "
        f"{training.label_smoothing:g}, {training.precision}, seed {training.seed}.",
        *_origin(run),
    ]


def _origin(run: Run) -> list[Part]:
    lines = describe_origin(run)
    return ["\n".join(lines)] if lines else []


def _layers(model: ModelConfig, outputs: int) -> str:
    """Formats the number of layers, of each stack if they differ."""
    layers, decoder_layers = model.num_layers, model.num_decoder_layers
    if outputs or decoder_layers == layers:
        return f"{layers} layers"
    return f"{layers} layers in the encoder and {decoder_layers} in the decoder"


def _rates(model: ModelConfig) -> str:
    """Formats the dropout rates; those that the paper lacks only if used."""
    attention, inner = model.attention_dropout, model.activation_dropout
    rates = {"attention weights": attention, "activations": inner}
    beside = [f", {rate:g} on {name}" for name, rate in rates.items() if rate]
    return f"{model.dropout:g}{''.join(beside)}"


def _data(run: Run) -> list[Part]:
    data, files = run.config.data, data_files(run)
    if not files:
        return ["The built-in English-German corpus of this package."]
    parts: list[Part] = [f"{data.source} to {data.target}."] if data.source else []
    rows = []
    for file in files:
        lines = file.lines()
        known = ["no longer there", ""] if lines is None else [f"{lines:,}", file.sha256]
        rows.append([f"{file.role}: {file.path}", *known])
    parts.append(Table(["file", "lines", "SHA-256"], rows))
    if changed := " and ".join(ROLES[role] for role in changed_text(run)):
        parts.append(f"Since the last session, the {changed} has changed.")
    return parts


def _changes(run: Run) -> list[Part]:
    """Tabulates settings that later sessions changed; other sections show the final values."""
    rows = [
        [f"{change['step']:,}", change["what"], change["from"], change["to"]]
        for change in run.changes()
    ]
    return [Table(["from step", "what", "before", "since"], rows)] if rows else []


def _scores(run: Run, best: dict[str, Any]) -> str:
    by, evaluations = run.config.training.best_by, len(comparable(run.history()))
    lines = [
        f"- best {by} of {evaluations} evaluations: {best[f'valid_{by}']:.4g} at step "
        f"{best['step']:,}, perplexity {best['valid_perplexity']:.2f}"
    ]
    for file in (run.checkpoints.best, run.checkpoints.average):
        if record := evaluation_of(run, file) if file.exists() else None:
            weights = record.get("weights", f"weights of step {record['step']:,}")
            scores = (f"{name[6:]} {record[name]:.4g}" for name in record if "valid_" in name)
            lines.append(f"- {file.name}: the {weights}: {', '.join(scores)}")
    if "bleu_signature" in best:
        lines.append(f"- BLEU {best['valid_bleu']:.2f}: {best['bleu_signature']}")
    return "\n".join(lines)


def _options(result: dict) -> str:
    """Lists the options of a result that change translations, unless they are defaults."""
    options = {
        result["precision"]: result["precision"] != "float32",
        "LiteRT": result["litert"],
        f"ensemble of {1 + len(result['ensemble'])}": result["ensemble"],
        f"tag {result['tag']}": result["tag"],
    }
    return "".join(f", {text}" for text, given in options.items() if given)


def _tests(run: Run) -> list[Part]:
    """Tabulates the scores from `evaluate --record`, with counts of lines seen in training."""
    rows = [
        [
            ", ".join(result["files"]),
            f"{result['lines']:,}",
            _first_score(result),
            f"{result['checkpoint']}, beam {result['decoding']['beam_size']}, "
            f"alpha {result['decoding']['alpha']:g}{_options(result)}",
            _seen(result),
        ]
        for result in read_results(run.results)
    ]
    header = ["files", "lines", "score", "search", "seen in training, in the dev text"]
    return [Table(header, rows)] if rows else []


def _first_score(record: dict[str, Any]) -> str:
    kind, score = next(iter(record["scores"].items()))
    return f"{kind} {score['value']:.2f} {score['signature'].replace('|', ' ')}"


def _seen(record: dict[str, Any]) -> str:
    """Counts lines seen in training, and in the dev text, by the side that has more."""
    if None in record["seen"].values():
        return "unknown"
    largest = [
        max(max(runs[role].values()) for runs in record["seen"].values())
        for role in ("train", "valid")
    ]
    return ", ".join(f"{number:,}" for number in largest)


def _cost(run: Run, sustained_tflops: float | None) -> list[Part]:
    outputs = encoder_outputs(run)
    per_evaluation = costs(run.history(), run.config.model, _lengths(run), outputs)
    unit = "labels" if outputs else "target tokens"
    described = describe_cost(per_evaluation[-1], _devices(run), sustained_tflops, unit)
    rows = [
        [
            f"{cost.step:,}",
            f"{cost.target_tokens:,}",
            f"{cost.seconds:,.0f}",
            "" if cost.counted is None else f"{cost.counted:.2e}",
        ]
        for cost in per_evaluation
    ]
    table = Table(["step", unit, "training s", "FLOPs counted"], rows, "r")
    return ["\n".join(described), table]


def _lengths(run: Run) -> Lengths | None:
    """Sums the lengths of the tokenised training corpus; None if it is gone."""
    from tf_transformer.data.encoded_corpus import EncodedCorpus  # imports TensorFlow

    try:
        corpus = EncodedCorpus.open(run.data / "train")
    except UserError:
        return None
    return Lengths.of(corpus.source_lengths, corpus.target_lengths)


def _devices(run: Run) -> int:
    """Returns the number of devices from the newest state; 1 if there is none."""
    steps = run.checkpoints.state_steps()
    if not steps:
        return 1
    return int(read_progress(run.checkpoints.state_path(steps[-1]))["replicas"])


def _versions(run: Run) -> str:
    try:
        versions = json.loads((run.path / "versions.json").read_text(encoding="utf-8"))
        return ", ".join(f"{name} {version}" for name, version in versions.items())
    except (OSError, ValueError, AttributeError):
        return "versions.json is missing or damaged."


def _code(lines: list[str]) -> str:
    return "\n".join(["```", *lines, "```"])
