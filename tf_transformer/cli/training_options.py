"""Training options, which `train`, `doctor` and `ablate` share."""

import argparse
from typing import Any

from tf_transformer.api.configuration import configure
from tf_transformer.cli.parser import assignment, given, int_from, value_of
from tf_transformer.config import Config
from tf_transformer.config.presets import PRESETS
from tf_transformer.config.recipes import RECIPES
from tf_transformer.errors import UserError, quoted
from tf_transformer.tasks.registry import TASKS
from tf_transformer.training.interruption import Budget

# The options, other than --set, that name a setting.
_SETTINGS = {
    "data": ("train", "valid", "mix", "tag", "source", "target"),
    "training": ("batch_tokens", "max_tokens_per_device", "init_from", "freeze", "lora_rank"),
}


def add_run_settings(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `train`; `model` is None without --model."""
    add = parser.add_argument
    tasks = ", ".join(TASKS)
    add("--task", choices=TASKS, metavar="TASK", help=f"{tasks} (default: the model's)")
    add("--model", metavar="NAME", help=f"{', '.join(PRESETS)} (default: tiny)")
    text = f"training recipe for any model: {', '.join(RECIPES)}; other options override it"
    add("--recipe", metavar="NAME", help=text)
    add(
        "--init-from",
        metavar="RUN",
        help="start from the weights and tokenizer of a run, and from its training settings "
        "unless --model or --recipe is given",
    )
    text = "layers to freeze, such as encoder or '!*norm' (all but norms); repeatable"
    add("--freeze", action="append", metavar="PATTERN", help=text)
    rank = value_of("training.lora_rank")
    text = "train only LoRA adapters of this rank, on the weights of --init-from"
    add("--lora", dest="lora_rank", type=rank, metavar="RANK", help=text)
    text = "settings in YAML, or the config.json of a run; other options override them"
    add("--config", metavar="FILE", help=text)
    add("--output", metavar="DIR", help="run directory (default: runs/NAME)")
    text = "resume a run even if its training text has changed"
    add("--accept-new-data", action="store_true", help=text)
    add_training_options(parser)


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Adds options for data, batches, devices, the session's length and any setting."""
    add = parser.add_argument
    add(
        "--train",
        action="append",
        metavar="PREFIX",
        help="training text PREFIX.LANG[.gz] or a table FILE.tsv[.gz]; for other tasks, a file "
        "of trees or labelled sentences; repeatable",
    )
    text = "shares of the --train texts, such as 1:4, or temperature=5 (default: by size)"
    add("--mix", metavar="W:W", help=text)
    text = "dev text, in the same form as --train; repeatable"
    add("--valid", action="append", metavar="PREFIX", help=text)
    add(
        "--tag",
        action="append",
        metavar="KEY=TAG",
        help="text to put before each source sentence, by target language or corpus name, such "
        "as 'de=<2de>'; a one-word tag gets a piece of its own; repeatable",
    )
    add("--source", metavar="LANG", help="source language, such as en")
    add("--target", metavar="LANG", help="target language, such as de")
    size = value_of("training.batch_tokens")
    text = "tokens per side in one update, summed over all devices (paper: 25000)"
    add("--batch-tokens", type=size, metavar="N", help=text)
    add(
        "--max-tokens-per-device",
        type=value_of("training.max_tokens_per_device"),
        metavar="N",
        help="tokens per side that a device processes at once; larger batches accumulate "
        "gradients, with the same result (default: 4096 on a CPU, 0 on a GPU; 0: no limit)",
    )
    text = "number of devices (default: all GPUs, or the CPU)"
    add("--devices", type=int_from(1, 128), metavar="N", help=text)
    text = "end this session after 2h, 90m, 45s or '500 steps', saving as on Ctrl-C"
    add("--stop-after", metavar="TIME", help=text)
    text = "any setting, such as model.dropout=0.3; repeatable"
    add(
        "--set",
        action="append",
        type=assignment,
        default=[],
        metavar="SECTION.FIELD=VALUE",
        help=text,
    )


def given_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the values of the options that name a setting, by "section.field"."""
    return {
        f"{section}.{name}": value
        for section, names in _SETTINGS.items()
        for name, value in given(options, *names).items()
    }


def seconds_of(stop_after: str | None, subject: str) -> float:
    """Returns --stop-after in seconds, 0 if absent; raises UserError for a number of steps."""
    budget = Budget.parse(stop_after) if stop_after else Budget()
    if budget.steps:
        raise UserError(
            f"{subject} stops after a time, such as --stop-after 2h. Received: "
            f"{quoted(stop_after)}."
        )
    return budget.seconds


def config_of(options: argparse.Namespace) -> Config:
    """Returns the configuration that the options of `add_run_settings` describe."""
    return configure(
        options.model,
        task=options.task,
        recipe=options.recipe,
        file=options.config,
        settings=given_settings(options),
        overrides=options.set,
    )
