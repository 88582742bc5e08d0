"""The configuration of a run, from a preset, a recipe, a file and single settings."""

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
from tf_transformer.tasks.transfer import settings_from

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
    """Returns the configuration of a run: each of these takes precedence over those before it.

    1. the preset, 2. a task other than the preset's: its score and limits, 3. the recipe,
    4. the run "training.init_from": its model and tokenizer, and its training too if neither a
    preset nor a recipe is named, 5. the file, except what the recipe names, 6. single settings.

    Args:
        model: name of a preset; None for that of `file`, or "tiny".
        task: name of a task; None for that of `file`, of the preset or, if neither is named, of
            the run that training begins from.
        recipe: name of a recipe.
        file: settings in YAML, or the config.json of a run.
        settings: values by "section.field".
        overrides: assignments "section.field=value" as text, which take precedence over all.

    Raises:
        UserError: if a name is unknown, a value is out of bounds, `file` cannot be used, or it
            is a config.json of another preset than `model`.
    """
    single = dict(settings or {}) | parse_assignments(overrides, SETTINGS)
    from_file = _from_file(file, model)
    preset, file_task = from_file.pop("preset", ""), from_file.pop("task", "")
    model, task = model or preset, task or file_task
    path = (from_file | single).get("training.init_from")
    source = Run.open(path) if path else None
    if source and not (model or task):
        task = source.config.task
    start = presets.preset(model or "tiny")
    from_task = task_named(task).settings if task not in ("", start.task) else {}
    from_recipe = recipes.recipe(recipe).values if recipe else {}
    values = start.flat() | {"task": task or start.task} | from_task | from_recipe
    from_source = settings_from(source, values, model or recipe) if source else {}
    from_file = {name: value for name, value in from_file.items() if name not in from_recipe}
    if source and _is_complete(file) and from_file["training.init_from"] != path:
        del from_file["data.tokenizer"]  # a config.json has every setting; the source's counts
    config = Config.from_flat(values | from_source | from_file | single)
    sampling = (values | from_file | single)["data.subword_sampling"]
    if (model or recipe) and config.data.subword_sampling != sampling:
        text = "data.subword_sampling is %g as in %s, not %g: rates depend on the tokenizer"
        logger.info(text, config.data.subword_sampling, path, sampling)
    return config


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
