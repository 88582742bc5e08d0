"""A run's card in Markdown: model, departures from the paper, data, scores and cost."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import parse_json, write_text
from tf_transformer.base.output import MARKDOWN, ReportPart, Table, joined
from tf_transformer.config import SETTINGS, Config, settings_with
from tf_transformer.config.presets import TABLE3, train_command
from tf_transformer.data.encoded_corpus import EncodedCorpus
from tf_transformer.data.text import ROLES, Role, data_files, identity, text_files
from tf_transformer.data.vocabulary import tokenizer_settings
from tf_transformer.reports.cost import (
    TABLE2_FLOPS,
    Lengths,
    costs,
    parameter_count,
)
from tf_transformer.run import Run
from tf_transformer.run.best import record_in
from tf_transformer.run.checkpoints import is_valid, read_progress
from tf_transformer.run.records import comparable, rank_of, read_results
from tf_transformer.run.run import best_record, describe_functions, evaluation_of

CARD_FILE = "card.md"

logger = logging.getLogger(__name__)


def write_run_card(run: Run, sustained_tflops: float | None = None) -> list[ReportPart]:
    """Writes RUN/card.md from the files of a run, even during training; returns its parts.

    With the sustained rate of one device, the cost is also estimated as in the paper. Raises
    UserError if the run has no evaluation yet, or the file cannot be written.
    """
    best = best_record(run)
    if best is None:
        raise UserError(
            f"{run.path} has no evaluation yet, so there is no card. Train the run until its "
            "first evaluation."
        )
    sections: dict[str, list[ReportPart]] = {
        "Model": _model(run),
        "Departures from the paper": _departures(run),
        "Data": _data(run),
        "Changes during training": _changes(run),
        "Dev set": [_scores(run, best)],
        "Test sets": _tests(run),
        "Cost": _cost(run, sustained_tflops),
        "Versions": [_versions(run)],
        "Command": _command(run),
    }
    parts: list[ReportPart] = [f"# {run.path.name}"]
    for title, content in sections.items():
        parts += [f"## {title}", *content] if content else []
    write_text(run.path / CARD_FILE, joined(parts, MARKDOWN))
    return parts


def _command(run: Run) -> list[ReportPart]:
    if run.functions:
        return [f"tf_transformer.train in Python, with {describe_functions(run.functions)}."]
    return [f"```\n{train_command(run.config, run.path)}\n```"]


def try_to_write_card(run: Run) -> None:
    """Writes the card at the end of training; a failure is only a warning."""
    try:
        write_run_card(run)
    except (UserError, OSError) as error:
        logger.warning("warning  no card was written: %s", error)


def _model(run: Run) -> list[ReportPart]:
    config = run.config
    model, training = config.model, config.training
    kind = f"a Transformer of {model.num_layers} + {model.num_decoder_layers} layers"
    norm = "before each sublayer" if model.norm_first else "after each sublayer"
    done = max((record["step"] for record in run.history()), default=0)
    updates = f"{done:,}" if done == training.steps else f"{done:,} of {training.steps:,}"
    parts: list[ReportPart] = [
        f"Preset {config.preset or 'none'}: {kind}, d_model {model.d_model}, "
        f"d_ff {model.d_ff}, {model.num_heads} heads, {model.vocab_size:,} word pieces, "
        f"{parameter_count(model):,} parameters; {model.positions} positions, norms "
        f"{norm}, dropout {model.dropout:g}.",
        f"Trained for {updates} updates of {training.batch_tokens:,} positions with "
        f"Adam, {training.warmup_steps:,} of them warm-up, label smoothing "
        f"{training.label_smoothing:g}, {training.precision}, seed {training.seed}.",
    ]
    lines = describe_origin(run)
    return [*parts, "\n".join(lines)] if lines else parts


def _data(run: Run) -> list[ReportPart]:
    data = run.config.data
    files = data_files(data)
    if not files:
        return ["The built-in English-German corpus of this package."]
    parts: list[ReportPart] = [f"{data.source} to {data.target}."] if data.source else []
    rows = []
    for file in files:
        lines = file.lines()
        known = ["no longer there", ""] if lines is None else [f"{lines:,}", file.sha256]
        rows.append([f"{file.role}: {file.path}", *known])
    parts.append(Table(["file", "lines", "SHA-256"], rows))
    if changed := " and ".join(ROLES[role] for role in changed_text(run)):
        parts.append(f"Since the last session, the {changed} has changed.")
    return parts


def changed_text(run: Run) -> list[Role]:
    """Returns which text, training or dev, has changed since the last training session."""
    changed: list[Role] = []
    for role in ROLES:
        with suppress(UserError):  # a file is missing
            known, files = run.text_hashes.get(role), text_files(run.config.data, role)
            if known and identity(files) != known:
                changed.append(role)
    return changed


def _changes(run: Run) -> list[ReportPart]:
    """Tabulates settings that later sessions changed; other sections show the final values."""
    rows = [
        [f"{change['step']:,}", change["what"], change["from"], change["to"]]
        for change in run.changes()
    ]
    return [Table(["from step", "what", "before", "since"], rows)] if rows else []


def _scores(run: Run, best: dict[str, Any]) -> str:
    by, evaluations = run.config.training.best_by, len(comparable(run.history()))
    by_name = run.functions.get("score", by)
    how = (
        f"{by_name} (by perplexity, as it is too low to compare)"
        if rank_of(best, by)[1]
        else by_name
    )
    lines = [
        f"- best {how} of {evaluations} evaluations: {best[f'valid_{by}']:.4g} at step "
        f"{best['step']:,}, perplexity {best['valid_perplexity']:.2f}"
    ]
    for file in filter(Path.exists, (run.checkpoints.best, run.checkpoints.average)):
        if not is_valid(file):
            lines.append(f"- {file.name} is damaged")
        elif record := evaluation_of(run, file):
            weights = record.get("weights", f"weights of step {record['step']:,}")
            lines.append(f"- {file.name}: the {weights}: {described(record)}")
    if "bleu_signature" in best:
        lines.append(f"- BLEU {best['valid_bleu']:.2f}: {best['bleu_signature']}")
    return "\n".join(lines)


def _tests(run: Run) -> list[ReportPart]:
    """Tabulates the scores from `evaluate --record`, with counts of lines seen in training."""
    rows = []
    for result in read_results(run.results):
        kind, score = next(iter(result["scores"].items()))
        rows.append(
            [
                ", ".join(result["files"]),
                f"{result['lines']:,}",
                f"{kind} {score['value']:.2f} {score['signature'].replace('|', ' ')}",
                ", ".join(_search(result)),
                _seen(result),
            ]
        )
    header = ["files", "lines", "score", "search", "seen in training, in the dev text"]
    return [Table(header, rows)] if rows else []


def _search(result: dict[str, Any]) -> list[str]:
    """Describes what determines the translations; options only where they are not defaults."""
    decoding = result["decoding"]
    search = [result["checkpoint"], f"beam {decoding['beam_size']}"]
    search += [f"alpha {decoding['alpha']:g}"]
    search += [result["precision"]] * (result["precision"] != "float32")
    search += ["LiteRT"] * result["litert"]
    search += [f"with {path}" for path in result["ensemble"]]
    return search + [f"tag {result['tag']}"] * bool(result["tag"])


def _seen(record: dict[str, Any]) -> str:
    """Counts lines seen in training, and in the dev text, by the side that has more."""
    if None in record["seen"].values():
        return "unknown"
    largest = [
        max(max(runs[role].values()) for runs in record["seen"].values())
        for role in ("train", "valid")
    ]
    return ", ".join(f"{number:,}" for number in largest)


def _cost(run: Run, sustained_tflops: float | None) -> list[ReportPart]:
    """Tabulates the cost up to each evaluation, and compares it with the paper's Table 2."""
    devices, lengths = _devices(run), None
    how = "counted from the model and the lengths in the run's data/."
    try:
        corpus = EncodedCorpus.open(run.data / "train")
        window = run.config.model.attention_window
        lengths = Lengths.of(corpus.source_lengths, corpus.target_lengths, window)
    except UserError as error:
        how = f"unknown: {error}"
    per_evaluation = costs(run.history(), run.config.model, lengths)
    rows = [
        [
            f"{cost.step:,}",
            f"{cost.target_tokens:,}",
            f"{cost.seconds:,.0f}",
            "unknown" if cost.counted is None else f"{cost.counted:.2e}",
        ]
        for cost in per_evaluation
    ]
    header = ["step", "target tokens", "training s", "FLOPs counted"]
    notes = [f"On {devices} {'device' if devices == 1 else 'devices'}. FLOPs are {how}"]
    if sustained_tflops is not None:
        estimated = per_evaluation[-1].seconds * devices * sustained_tflops * 1e12  # (6.1)
        notes.append(
            f"FLOPs as the paper counts, time x devices x {sustained_tflops:g} TFLOP/s: "
            f"{estimated:.2e}"
        )
    of_paper = ", ".join(f"{name} {flops:.1e}" for name, flops in TABLE2_FLOPS.items())
    notes.append(f"Table 2, English-German, counted in this way: {of_paper}")
    return [Table(header, rows, "r"), "\n".join(notes)]


def _devices(run: Run) -> int:
    """Returns the number of devices from the newest state; 1 if there is none."""
    steps = run.checkpoints.state_steps()
    return int(read_progress(run.checkpoints.state_path(steps[-1]))["replicas"]) if steps else 1


def _versions(run: Run) -> str:
    try:
        versions = parse_json((run.path / "versions.json").read_text(encoding="utf-8"))
        return ", ".join(f"{name} {version}" for name, version in versions.items())
    except (OSError, ValueError, AttributeError):
        return "versions.json is missing or damaged."


def described(record: dict[str, Any]) -> str:
    """Returns the dev scores of an evaluation, such as "bleu 39.97, chrf 62"."""
    return ", ".join(f"{name[6:]} {record[name]:.4g}" for name in record if "valid_" in name)


def describe_origin(run: Run) -> list[str]:
    """Returns lines for the card about the run that `training.init_from` names, if any."""
    training = run.config.training
    if not training.init_from:
        return []
    lines = [f"It began with the weights of {training.init_from}."]
    if run.origin.exists():
        origin = parse_json(run.origin.read_text(encoding="utf-8"))
        before = origin.get("evaluation") or {}
        known = described(before) or "not evaluated"
        lines.append(f"Their SHA-256 is {origin['sha256']}; on that run's dev set: {known}.")
        if start := record_in(run.checkpoints.step_path(0)):
            lines.append(f"On this run's dev set, before training: {described(start)}.")
        if origin["anew"]:
            lines.append(f"New: {', '.join(origin['anew'])}.")
    if training.lora_rank:
        lines.append(f"Trained: adapters of rank {training.lora_rank} (LoRA), then merged.")
    if training.freeze:
        lines.append(f"Not trained: {', '.join(training.freeze)}.")
    return lines


# --- Departures from the paper -------------------------------------------------------------


def departures(config: Config) -> dict[str, tuple[Any, Any, str]]:
    """Returns the settings that differ from the paper: our value, the paper's, its section.

    The paper's are those of the run's row of Table 3. A head size that is not set counts as
    d_model / num_heads.
    """
    paper, values = _resolved(TABLE3[_row(config)]), _resolved(config)
    if config.model.decoder_layers:
        paper["model.decoder_layers"] = paper["model.num_layers"]
    return {
        name: (values[name], paper[name], setting.paper)
        for name, setting in SETTINGS.items()
        if setting.paper and values[name] != paper[name]
    }


def _row(config: Config) -> str:
    """Returns the row of Table 3 to compare a run with: its preset's, or base."""
    return config.preset if config.preset in TABLE3 else "base"


def _resolved(config: Config) -> dict[str, Any]:
    """Returns all settings, with numbers for the head sizes."""
    key_dim, value_dim = config.model.head_sizes
    return config.flat() | {"model.key_dim": key_dim, "model.value_dim": value_dim}


def additions(config: Config, measured: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns settings in effect that the paper lacks, such as precision and filters.

    `measured` holds settings read from the run's files, which override those of `config`.
    """
    values = config.flat() | dict(measured or {})
    always, changed = (settings_with(paper="", card=when) for when in ("always", "changed"))
    return {
        name: value
        for name, value in values.items()
        if name in always or (name in changed and value != changed[name].default)
    }


def _departures(run: Run) -> list[ReportPart]:
    """Tabulates departures, then the settings that the paper lacks."""
    differing = departures(run.config)
    rows = [
        [setting, _text(ours), _text(paper), section]
        for setting, (ours, paper, section) in differing.items()
    ]
    added = additions(run.config, tokenizer_settings(run.tokenizer))
    rows += [[setting, _text(value), "", ""] for setting, value in added.items()]
    text = (
        f"{len(differing)} departures from the paper's {_row(run.config)} recipe, then "
        "settings that the paper lacks."
    )
    return [text, Table(["setting", "run", "paper", "section"], rows)]


def _text(value: Any) -> str:
    return f"{value:,}" if type(value) is int else str(value)
