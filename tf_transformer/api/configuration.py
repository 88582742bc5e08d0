"""The configuration of a run, from a preset, a recipe, a file and single settings."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tf_transformer.config import SETTINGS, Config, presets, recipes
from tf_transformer.config.config import read_settings_file
from tf_transformer.config.settings import nearest, parse_assignments
from tf_transformer.errors import UserError, quoted
from tf_transformer.run import Run
from tf_transformer.tasks.registry import task_named
from tf_transformer.tasks.transfer import take_over

logger = logging.getLogger(__name__)


def configure(
    model: str | None = None,
    *,
    task: str | None = None,
    recipe: str | None = None,
    file: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
) -> Config:
    """Returns a preset, to which a file, a recipe and then single settings are applied.

    With the setting "training.init_from", the model and tokenizer of that run replace those of
    the preset before the settings are applied. Its training settings do so too, if neither a
    preset nor a recipe is named.

    Args:
        model: name of a preset; None for that of `file`, or "tiny".
        task: name of a task; None for that of `file`, of the preset or, if neither is named, of
            the run that training begins from. A preset of another task gets this task's score
            and limits.
        recipe: name of a recipe, which takes precedence over `file`.
        file: settings in YAML, or the config.json of a run.
        settings: values by "section.field", which take precedence over those of `file`.
        overrides: assignments "section.field=value" as text, which take precedence over all.

    Raises:
        UserError: if a name is unknown, a value is out of bounds, `file` cannot be used, or it
            is a config.json of another preset than `model`.
    """
    settings = dict(settings or {}) | parse_assignments(overrides, SETTINGS)
    values = _from_file(file, model)
    preset, named = values.pop("preset", None), values.pop("task", None)
    model, task = model or preset, task or named
    source = (values | settings).get("training.init_from")
    if source and not (model or task):
        task = Run.open(source).config.task
    config = presets.preset(model or "tiny")
    if task not in (None, config.task):
        config = dataclasses.replace(config, task=task).replace(task_named(task).settings)
    if recipe:
        chosen = recipes.recipe(recipe)
        config = chosen.apply(config)
        values = {name: value for name, value in values.items() if name not in chosen.settings}
    configured = config.replace(values | settings)
    if _is_complete(file) and source != values["training.init_from"]:
        del values["data.tokenizer"]  # that of `source` takes precedence
    if source:
        recipe_too = not (model or recipe)
        config = take_over(config, source, recipe_too=recipe_too).replace(values | settings)
        rate, expected = config.data.subword_sampling, configured.data.subword_sampling
        if rate != expected and not recipe_too:
            text = "data.subword_sampling is %g as in %s, not %g: rates depend on the tokenizer"
            logger.info(text, rate, source, expected)
        return config
    return configured


def full_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values by "section.field", from arguments of `train` by "field" alone.

    Raises:
        UserError: if there is no such field, or several sections have it.
    """
    by_name: dict[str, list[str]] = {}
    for dotted in SETTINGS:
        by_name.setdefault(dotted.partition(".")[2], []).append(dotted)
    by_name["batch_tokens"] = ["training.batch_tokens"]  # like the option of `train`
    for name in fields:
        if name not in by_name:
            raise UserError(f"There is no setting {quoted(name)}.{nearest(name, by_name)}")
        if len(by_name[name]) > 1:
            raise UserError(
                f"`{name}` is a setting of several sections: give one of them, such as "
                f"settings={{{by_name[name][0]!r}: {quoted(fields[name])}}}. There are: "
                f"{', '.join(by_name[name])}."
            )
    return {by_name[name][0]: value for name, value in fields.items()}


def _from_file(file: str | Path | None, model: str | None) -> dict[str, Any]:
    """Returns the file's settings, perhaps with `preset` and `task`."""
    values = read_settings_file(Path(file)) if file else {}
    if _is_complete(file) and model not in (None, values["preset"]):
        raise UserError(
            f"A config.json has every setting, so a preset would change nothing. Received: "
            f"--config {file} and --model {model}. Give one of them."
        )
    return values


def _is_complete(file: str | Path | None) -> bool:
    """Tells whether a file has every setting, as the config.json of a run does."""
    return bool(file) and Path(str(file)).suffix == ".json"
