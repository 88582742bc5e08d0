"""Training options, which `train` and `doctor` share."""

import argparse
from typing import Any

from tf_transformer.api.train import configure
from tf_transformer.base.errors import UserError, quoted
from tf_transformer.cli.parser import (
    add_setting,
    assignment,
    given_options,
    int_from,
    options_of,
)
from tf_transformer.config import SETTINGS, Config
from tf_transformer.config.presets import PRESETS, RECIPES
from tf_transformer.training.sessions import Budget


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
