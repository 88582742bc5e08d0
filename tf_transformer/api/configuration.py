"""The configuration of a training from a preset, a recipe and single settings."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tf_transformer.config import Config, presets, recipes
from tf_transformer.tasks.registry import task_named
from tf_transformer.tasks.transfer import take_over


def configure(
    model: str | None = None,
    *,
    task: str | None = None,
    recipe: str | None = None,
    settings: Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
) -> Config:
    """Returns a preset with a recipe applied, then with single settings.

    With the setting "training.init_from", the model and the tokenizer of that run replace
    those of the preset before the settings are applied; without a preset and a recipe, those of
    its training do so too.

    Args:
        model: name of a preset; None for "tiny".
        task: name of a task; None for the preset's own.
        recipe: name of a recipe of training.
        settings: values by "section.field".
        overrides: assignments "section.field=value" as text, which take precedence.

    Raises:
        UserError: if there is no such name, or a value is out of bounds.
    """
    config = presets.preset(model or "tiny")
    if task not in (None, config.task):
        best_by = {"training.best_by": task_named(task).main_score}
        config = dataclasses.replace(config, task=task).replace(best_by)
    if recipe:
        config = recipes.recipe(recipe).apply(config)
    configured = config.replace(settings or {}).override(overrides)
    if source := configured.training.init_from:
        config = take_over(config, source, recipe_too=not (model or recipe))
        return config.replace(settings or {}).override(overrides)
    return configured
