"""Options and steps that several commands share."""

import argparse
import dataclasses
import gzip
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.base.files import replacing
from tf_transformer.base.output import ProgressBars
from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.parser import (
    add_setting,
    assignment,
    given_options,
    int_from,
    options_of,
)
from tf_transformer.config import SETTINGS, Config, DecodingConfig, SamplingConfig
from tf_transformer.config.config import DECODING_PRECISIONS
from tf_transformer.config.presets import PRESETS, RECIPES
from tf_transformer.data.text import arriving_lines, in_chunks, read_lines
from tf_transformer.decoding.streams import use_threads
from tf_transformer.export.versions import find_export, is_lite
from tf_transformer.loading.load import Source, of_export, of_run
from tf_transformer.run import Run
from tf_transformer.terms.protection import Protection, protection, require_slots

if TYPE_CHECKING:  # it imports TensorFlow
    from tf_transformer.translation.translator import Translator

logger = logging.getLogger(__name__)

RUN_HELP = "run directory, the --output of `train`"
MODEL_HELP = f"{RUN_HELP}, or an export"
WORD_PROBS_HELP = "add the probability of each word between spaces, in a last column"

_MODEL: dict[str, dict[str, Any]] = {
    "--checkpoint": {
        "metavar": "WHICH",
        "help": "best, average, last or a step (default: best, or what `tune` chose)",
    },
    "--ensemble": {
        "nargs": "+",
        "action": "extend",
        "default": [],
        "metavar": "RUN",
        "help": "more runs with the same tokenizer; their probabilities and RUN's are averaged",
    },
    "--precision": {
        "default": "float32",
        "choices": DECODING_PRECISIONS,
        "help": "numeric precision (default: float32); for batches int8 is the fastest on x86 "
        "with VNNI or AMX, with --litert on other processors",
    },
    "--litert": {
        "action": "store_true",
        "help": "decode with LiteRT, which is faster for one sentence at a time",
    },
    "--tag": {
        "metavar": "TAG",
        "help": "tag to put before each sentence, such as '<2de>'; the run must have been "
        "trained with it",
    },
    "--threads": {
        "type": int_from(1, 1_024),
        "metavar": "N",
        "help": "threads per operation; the other cores work on other batches, at most four at "
        "a time (default: the cores divided by these batches)",
    },
}

_WIDE = 512  # d_model
_SEARCH = options_of("search")
_SAMPLING = options_of("sampling")


# --- Declaring options -------------------------------------------------------------------


def add_run_options(
    parser: argparse.ArgumentParser,
    *names: str,
    nargs: str | None = None,
    metavar: str = "RUN",
    help: str = RUN_HELP,
) -> None:
    """Adds RUN, --checkpoint and the model options `names`."""
    parser.add_argument("run", metavar=metavar, nargs=nargs, help=help)
    add_model_options(parser, "--checkpoint", *names)


def add_model_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Adds options of which model to use and how to compute."""
    group = parser.add_argument_group("model")
    for name in names:
        group.add_argument(name, **_MODEL[name])


def add_search_options(
    parser: argparse.ArgumentParser, fields: Iterable[str] = _SEARCH
) -> None:
    """Adds the options that `decoding_config` reads, or only those of `fields`."""
    group = parser.add_argument_group("search")
    for field in fields:
        add_setting(group, field, _SEARCH[field], " (default: the run's)")


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `sampling_config` reads."""
    group = parser.add_argument_group("sampling")
    text = "sample translations instead of searching for the best"
    group.add_argument("--sample", action="store_true", help=text)
    for field, setting in _SAMPLING.items():
        add_setting(group, field, setting, f" (default: {setting.default:g})")


def add_protection_options(parser: argparse.ArgumentParser) -> None:
    """Adds --protect and --glossary, which `open_model` reads."""
    group = parser.add_argument_group("spans to keep, for a run with data.slots")
    text = "none; default: addresses, placeholders, tags, code, @names and numbers; or a FILE "
    text += "of regular expressions, one a line, where the line `default` stands for these"
    group.add_argument("--protect", metavar="none|default|FILE", help=text)
    text = "table of terms and their translations: FILE.tsv or FILE.csv, two columns"
    group.add_argument("--glossary", metavar="FILE", help=text)


def add_line_buffered_option(parser: argparse.ArgumentParser) -> None:
    """Adds --line-buffered."""
    text = "answer each line as it arrives, without waiting for more, as in a coprocess; "
    text += "slower when many lines are available at once"
    parser.add_argument("--line-buffered", action="store_true", help=text)


# --- Reading options ---------------------------------------------------------------------


def decoding_config(options: argparse.Namespace, run: Run) -> DecodingConfig:
    """Returns the run's search settings, overridden by options of the command line."""
    return dataclasses.replace(run.config.decoding, **decoding_options(options))


def decoding_options(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the search settings that the command line gives, by field."""
    return given_options(options, *_SEARCH)


def sampling_config(options: argparse.Namespace) -> SamplingConfig | None:
    """Returns the sampling options; None without --sample."""
    return SamplingConfig(**given_options(options, *_SAMPLING)) if options.sample else None


def _protection(options: argparse.Namespace, run: Run | None) -> Protection | None:
    """Reads the files of --protect and --glossary; None without these options.

    Raises UserError if one cannot be used, or the run has no slots.
    """
    if options.protect is None and options.glossary is None:
        return None
    if options.protect not in (None, "none", "default") and not Path(options.protect).exists():
        raise UserError(
            "--protect must be none, default or a file of regular expressions. Received: "
            f"{options.protect}, which does not exist."
        )
    chosen = protection(options.protect, options.glossary)
    if run:
        from tf_transformer.data.vocabulary import pieces_of, read_model, slot_ids

        there = len(slot_ids(pieces_of(read_model(run.require_tokenizer())))) > 0
        require_slots(there, options.protect, options.glossary)
    return chosen


def open_source(path: str) -> Source:
    """Returns the run or the export at a path."""
    export = find_export(Path(path))
    if not export and not (Path(path) / "config.json").exists():
        raise UserError(
            f"{path} is not a run directory or an export, the --output of `train` or `export`."
        )
    return of_export(export) if export else of_run(Run.open(path))


def open_model(options: argparse.Namespace) -> "Translator":
    """Loads the model of a run or an export, with the options of the command.

    Of these it reads run, checkpoint and those of model, search and protection.
    """
    source = open_source(options.run)
    refuse_unsuited(options, source)
    loading = given_options(options, "precision", "litert", "threads", "tag", "ensemble")
    if paths := loading.get("ensemble"):
        loading["ensemble"] = [Run.open(path) for path in paths]
    source.require_files(options.checkpoint, loading.get("tag"))
    has_protection = "glossary" in options
    chosen = _protection(options, source.run) if has_protection else None
    light = is_lite(source.path)
    if not light:
        import_tensorflow_quietly()
        use_threads(loading.get("threads"))
    if source.run:
        decoding = decoding_config(options, source.run)
        loading |= {"checkpoint": options.checkpoint, "decoding": decoding}
    else:
        threads = {"threads": loading.get("threads")} if light else {}
        loading = {"decoding": decoding_options(options), **threads}
    translator = source.translator(**loading, protection=chosen)
    if has_protection:
        engine = translator.engine
        require_slots(engine.has_slots, options.protect, options.glossary, engine.aligns)
    return translator


def advise_litert(options: argparse.Namespace, run: Run | None) -> None:
    """Says that LiteRT is faster, where a wide model takes single sentences on a CPU."""
    names = ("litert", "ensemble", "sample")
    chosen = any(getattr(options, name, None) for name in names)
    if chosen or options.precision not in (None, "float32") or not run:
        return

    import tensorflow as tf

    if run.config.model.d_model >= _WIDE and not tf.config.list_physical_devices("GPU"):
        message = "one sentence at a time is faster with %s: evaluate it on your text"
        logger.info(message, "--litert --precision int8")


def refuse_unsuited(options: argparse.Namespace, source: Source, *names: str) -> None:
    """Raises UserError for an option, one of `names` if given, that does not suit `source`."""
    source.refuse(given_options(options, *names))


def picture(output: str) -> Path:
    """Returns the path of a picture after checking that it can be drawn and written.

    Raises UserError if it is not a .png, .svg or .pdf in a writable folder, or matplotlib is
    missing.
    """
    from tf_transformer.plots import SUFFIXES, new_figure

    path = Path(output)
    if path.suffix not in SUFFIXES:
        raise UserError(f"--output must end in .png, .svg or .pdf. Received: {output}.")
    require_writable("--output", path)
    new_figure(1, 1)  # fails early without matplotlib
    return path


def require_new(name: str, path: Path) -> None:
    """Raises UserError if `path`, the value of option `name`, exists or cannot be written."""
    if path.exists():
        raise UserError(f"{path} exists already. Remove it, or choose another {name}.")
    require_writable(name, path)


def require_writable(name: str, path: Path, *, folder: bool = False) -> None:
    """Raises UserError if `path`, of option `name`, is no file, or folder, to be written."""
    if path.exists() and not (path.is_dir() if folder else path.is_file()):
        kind = "be a folder" if folder else "not be a folder or a device"
        raise UserError(f"{name} must {kind}. Received: {path}.")
    inside = path / "new" if folder else path
    nearest = next(folder for folder in inside.absolute().parents if folder.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        raise UserError(f"{name} must be in a writable folder. Received: {path}.")


# --- Options of training, for `train` and `doctor` ---------------------------------------


def add_run_settings(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `train`; `model` is None without --model."""
    group = parser.add_argument_group("run")
    add = group.add_argument
    add("--task", help=argparse.SUPPRESS)  # of 1.1.0
    add("--model", metavar="NAME", help=f"{', '.join(PRESETS)} (default: tiny)")
    text = f"training recipe for any model: {', '.join(RECIPES)}; other options override it"
    add("--recipe", metavar="NAME", help=text)
    text = "settings in YAML, or the config.json of a run; other options override them"
    add("--config", metavar="FILE", help=text)
    add("--output", metavar="DIR", help="run directory (default: runs/NAME)")
    text = "resume a run even if its training text has changed"
    add("--accept-new-data", action="store_true", help=text)
    for name, setting in options_of("run").items():
        add_setting(group, name, setting)
    add_training_options(parser)


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Adds options for data, batches, devices, the session's length and any setting."""
    group = parser.add_argument_group("training")
    add = group.add_argument
    for name, setting in options_of("training").items():
        add_setting(group, name, setting)
    text = "number of devices (default: all GPUs, or the CPU)"
    add("--devices", type=int_from(1, 128), metavar="N", help=text)
    text = "end this session after 2h, 90m, 45s or '500 steps', saving as on Ctrl-C"
    add("--stop-after", metavar="TIME", help=text)
    text = "any setting, such as model.dropout=0.3; repeatable"
    form = "SECTION.FIELD=VALUE"
    add("--set", action="append", type=assignment, default=[], metavar=form, help=text)


def given_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the values of the options that name a setting, by "section.field"."""
    return {name: value for name, value in given_options(options).items() if name in SETTINGS}


def sets(options: argparse.Namespace, name: str) -> bool:
    """Tells whether --set gives a setting."""
    return any(each.partition("=")[0].strip() == name for each in options.set)


def options_of_rows(options: argparse.Namespace) -> list[str]:
    """Returns the options that a command passes on to each `train` that it runs."""
    words = ["--devices", str(options.devices)] if options.devices is not None else []
    return words + ["--traceback"] * options.traceback


def seconds_of(stop_after: str | None, subject: str) -> float:
    """Returns --stop-after in seconds, 0 if absent; raises UserError for a number of steps."""
    from tf_transformer.training.sessions import Budget

    budget = Budget.parse(stop_after) if stop_after else Budget()
    if budget.steps:
        raise UserError(
            f"{subject} stops after a time, such as --stop-after 2h. Received: "
            f"{quoted(stop_after)}."
        )
    return budget.seconds


def config_of(options: argparse.Namespace) -> Config:
    """Returns the configuration that the options of `add_run_settings` describe."""
    from tf_transformer.api.train import configure

    return configure(
        options.model,
        task=options.task,
        recipe=options.recipe,
        file=options.config,
        settings=given_settings(options),
        overrides=options.set,
    )


# --- Lines of text -----------------------------------------------------------------------

# Sentences per chunk. A chunk is batched by length, so large ones are faster, but the first are
# small so that output starts soon. The last size is repeated, which bounds memory.
SIZES = (100, 1_000, 10_000)


def stdin_chunks(line_buffered: bool) -> Iterator[list[str]]:
    """Returns the lines of stdin in chunks of `SIZES`, or as they arrive if `line_buffered`.

    On a terminal, the user is prompted for a line at a time.
    """
    if _is_conversation():
        return _typed_lines()
    return arriving_lines(0) if line_buffered else in_chunks(read_lines(0), *SIZES)


def stdin_bars() -> ProgressBars:
    """Returns the progress bars of a command that reads stdin; hidden in a conversation."""
    return ProgressBars(shown=False if _is_conversation() else None)


def _is_conversation() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _typed_lines() -> Iterator[list[str]]:
    """Prompts for a line at a time, until Ctrl-D."""
    with suppress(ImportError):
        import readline  # noqa: F401  # makes lines editable
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    print("Type a sentence, then Enter; Ctrl-D ends.", file=sys.stderr)
    while True:
        try:
            yield [input("> ")]
        except EOFError:
            print()
            return


def spaced_probs(translation) -> str:
    """Returns the column of the probabilities of a translation's words, with its tab."""
    return "\t" + " ".join(f"{prob:.4f}" for prob in translation.word_probs)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes lines to a file, compressed if its name ends in .gz."""
    text = "".join(f"{line}\n" for line in lines).encode()
    with replacing(path) as temporary:
        # No timestamp in the header, so that the same lines give the same bytes.
        temporary.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def require_equal_lengths(
    name: str | Path, lines: Sequence[str], other: str | Path, other_lines: Sequence[str]
) -> None:
    """Raises UserError if two files have different numbers of lines, or none."""
    if len(lines) != len(other_lines) or not lines:
        raise UserError(
            "Both files must have the same number of lines, at least one. Received: "
            f"{name} with {len(lines):,}, {other} with {len(other_lines):,}."
        )


def seen_before(
    runs: Sequence[str],
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    tag: str | None = None,
) -> dict[str, Any]:
    """Logs and returns how many test sentences each run has seen; None if it cannot be told."""
    counts: dict[str, Any] = {}
    for path in runs:
        try:
            if find_export(Path(path)):
                raise UserError("an export does not have its training text")

            from tf_transformer.translation.task import describe_overlaps, overlaps

            counts[path] = overlaps(Run.open(path), sources, references, tag)
        except UserError as error:
            text = "caution  %s may have seen these lines; not checked: %s"
            logger.warning(text, path, error)
            counts[path] = None
            continue
        if text := describe_overlaps(counts[path], len(sources)):
            logger.warning("caution  %s has seen these lines: %s", path, text)
    return counts
