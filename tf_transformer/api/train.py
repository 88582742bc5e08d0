"""Training in one call, like `tf-transformer train`, and the configuration of a run."""

import hashlib
import inspect
import logging
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tf_transformer.base.errors import UserError, pairs, quoted
from tf_transformer.base.system import import_tensorflow
from tf_transformer.config import SETTINGS, Config, presets, settings_with
from tf_transformer.config.config import TASK, WITHOUT_BLANKS, read_settings_file
from tf_transformer.config.settings import nearest, parse_assignments
from tf_transformer.data.text import ROLES, SIDES, well_formed, write_pairs
from tf_transformer.run import Run
from tf_transformer.run.run import BLEU_TOKENIZER, PAIRS_FOLDER, require_created_by
from tf_transformer.training.sessions import Budget, Interrupted
from tf_transformer.translation.checks import check_training

if TYPE_CHECKING:
    import keras

    from tf_transformer.decoding.rules import Rule
    from tf_transformer.translation.task import Score

logger = logging.getLogger("tf_transformer")


def train(
    model: str | None = None,
    *,
    task: str | None = None,
    train: Any = None,
    valid: Any = None,
    source: str = "",
    target: str = "",
    recipe: str | None = None,
    config: str | Path | None = None,
    output: str | Path | None = None,
    devices: int | None = None,
    stop_after: str | None = None,
    accept_new_data: bool = False,
    callbacks: "keras.callbacks.Callback | Sequence[keras.callbacks.Callback]" = (),
    score: "Score | None" = None,
    rules: Sequence["Rule"] = (),
    settings: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Any:
    """Trains a model, or resumes its training, and loads the best weights.

    Without `train` it learns from the built-in English-German corpus. When interrupted, it
    saves everything, and the same call resumes. After `stop_after`, or Ctrl-C in an interactive
    session, it returns the best weights so far, if there are any.

    Args:
        model: name of a preset, such as "small" or "base"; by default the one in `config` or in
            the run `init_from`, else "tiny".
        task: "translation" or None: what 1.1.0 could choose from.
        train: training text, one name or a list of names: PREFIX for PREFIX.LANG or
            PREFIX.LANG.gz, or a table FILE.tsv[.gz]. Or sentence pairs in memory: a tuple
            `(sources, targets)` of lists of strings, an iterable of pairs, or a DataFrame of
            two columns. They are written into the run's folder.
        valid: dev text, in any of these forms.
        source: language to translate from, such as "en"; "source" by default for pairs.
        target: language to translate to; "target" by default for pairs.
        recipe: name of a training recipe.
        config: file of settings in YAML, or the config.json of a run; arguments override it.
        output: run directory; "runs/MODEL" by default, with the name of the preset.
        devices: number of devices; all GPUs, or the CPU, by default.
        stop_after: length of this session: "2h", "90m", "45s" or "500 steps".
        accept_new_data: resume although the content of the training text has changed.
        callbacks: Keras callbacks, or one, called as by one `fit` whose epochs are the periods
            between evaluations. `on_epoch_end` follows the evaluation; its logs are the numbers
            of the record in metrics.jsonl, such as valid_bleu, which is val_bleu as well.
            `model.stop_training` ends training. Hooks of evaluation and prediction are not
            called, and nothing that a callback keeps is saved for the next session. Those that
            set the learning rate or restore weights of their own are refused.
        score: function of your own that chooses the best weights and ends training with
            `patience`: it takes the dev sources, their translations and the references, three
            lists, and returns a number; higher is better. The run records its name.
        rules: rules of the search for the dev text, as in `translate`; the run records their
            names, and goes on only with the same ones, and the same score.
        settings: values by "section.field", such as {"data.max_length": 100}.
        **fields: settings by their field alone, such as `dropout=0.3`, `steps=3000` or
            `init_from="runs/base"`; `batch_tokens` means training.batch_tokens.

    Returns:
        What `load` returns for the run.

    Raises:
        UserError: if a setting, the data or the run directory is invalid.
        TypeError: if `train` or `valid` is neither names nor pairs of strings.
        KeyboardInterrupt: after Ctrl-C in a script or another signal, or if there are no best
            weights yet.

    Example:
        >>> import tf_transformer
        >>> pairs = [("a b", "b a"), ("a c d", "d c a")]
        >>> translator = tf_transformer.train(
        ...     train=pairs, valid=pairs, output="runs/reversed", vocab_size=268, steps=1,
        ...     num_layers=1, d_model=16, d_ff=16, num_heads=2, max_extra_length=4,
        ... )
        training a tokenizer of 268 pieces
        ...
        >>> isinstance(translator.translate("a b"), str)
        True
    """
    from tf_transformer.decoding.rules import as_rules  # imports NumPy

    text, own_rules = {"train": train, "valid": valid}, tuple(as_rules(rules))
    given = {name: _names_or_sides(name, it) for name, it in text.items() if it is not None}
    sides = {name: value for name, value in given.items() if isinstance(value, tuple)}
    given |= {"source": source, "target": target}
    names = {name: value for name, value in given.items() if value and name not in sides}
    callbacks = _usable(callbacks) if callbacks else ()
    named = full_names(names | fields)
    named |= dict(settings or {})
    if score and named.setdefault("training.best_by", "score") != "score":
        raise UserError(
            "`score` decides which weights are best: leave out `best_by`. Received: "
            f"{quoted(named['training.best_by'])}."
        )
    resolved = configure(model, task=task, recipe=recipe, file=config, settings=named)
    folder = Path(output or f"runs/{resolved.preset or 'tiny'}")
    if sides:
        resolved = _with_pairs(resolved, folder, sides)
    budget = Budget.parse(stop_after) if stop_after else None
    with _shown_log():
        check_training(resolved, has_score=score is not None)
    import_tensorflow()

    from tf_transformer.api.training_session import train_run
    from tf_transformer.loading.translators import load_translator
    from tf_transformer.translation.task import Functions

    with _shown_log():
        try:
            train_run(
                resolved,
                folder,
                budget,
                num_devices=devices,
                accept_new_data=accept_new_data,
                bars=True,
                callbacks=callbacks,
                functions=Functions(score, own_rules),
            )
        except Interrupted as stop:
            logger.info("%s; call again to resume", stop)
            # A script must not continue after Ctrl-C.
            may_return = {0, 128 + signal.SIGINT} if hasattr(sys, "ps1") else {0}
            if stop.status not in may_return or not Run.open(folder).checkpoints.best.exists():
                raise
            logger.info("the best weights so far are returned")
    return load_translator(Run.open(folder))


def _usable(given: Any) -> Sequence["keras.callbacks.Callback"]:
    """Returns one or several callbacks as a list, all of which `train` can call.

    Raises TypeError for what is no callback, and UserError for one that cannot work here.
    """
    import keras

    callbacks = [given] if isinstance(given, keras.callbacks.Callback) else list(given)
    schedule = "the learning rate follows the schedule in the settings"
    refused = {
        "BackupAndRestore": "a run saves its states itself, and resumes from the last",
        "ReduceLROnPlateau": schedule,
        "LearningRateScheduler": schedule,
    }
    for callback in callbacks:
        if not isinstance(callback, keras.callbacks.Callback):
            raise TypeError(
                f"`callbacks` must be Keras callbacks. Received: {quoted(callback)}."
            )
        for name, reason in refused.items():
            if isinstance(callback, getattr(keras.callbacks, name)):
                raise UserError(f"`callbacks` cannot have a {name}: {reason}.")
    return callbacks


def _names_or_sides(name: str, text: Any) -> Any:
    """Returns a list of names; or of text in memory the sources and targets, as a tuple."""
    if isinstance(text, (str, Path)):
        return [str(text)]
    if hasattr(text, "itertuples"):  # a DataFrame, which would yield the names of its columns
        text = list(text.itertuples(index=False, name=None))
    rows = list(text) if isinstance(text, Iterable) and not isinstance(text, Mapping) else []
    if rows and all(isinstance(row, (str, Path)) for row in rows):
        return [str(row) for row in rows]
    if not (isinstance(text, tuple) and len(text) == 2):
        for row in rows or [text]:
            if not (isinstance(row, (list, tuple)) and len(row) == 2):
                raise TypeError(
                    f"`{name}` must be names of files, a tuple (sources, targets), pairs or a "
                    f"DataFrame of two columns. Received: {quoted(row)}."
                )
        rows = [*zip(*rows, strict=True)]
    elif all(isinstance(row, tuple) and len(row) == 2 for row in rows):
        raise TypeError(
            f"`{name}` must be a list of pairs, or a tuple of two lists, (sources, targets): "
            f"two tuples of two strings may mean either. Received: {quoted(text)}."
        )
    _, sources, targets = pairs(**{f"{name}[{i}]": side for i, side in enumerate(rows)})
    for line in (*sources, *targets):
        if not {"\n", "\r"}.isdisjoint(line):
            raise UserError(f"`{name}` must have no line breaks. Received: {quoted(line)}.")
    whole = tuple([*map(well_formed, side)] for side in (sources, targets))
    if whole != (sources, targets):
        logger.warning("`%s` has lone surrogates: they become U+FFFD", name)
    return whole


def _with_pairs(config: Config, folder: Path, sides: Mapping[str, Any]) -> Config:
    """Writes pairs into the run's folder, and returns the configuration with their names."""
    has = [role for role in ROLES if role in sides or getattr(config.data, role)]
    if len(has) < 2:
        raise UserError(
            f"Pairs in memory need both `train` and `valid`. Received: {' and '.join(has)}."
        )
    require_created_by("tf-transformer train", folder)
    languages = {f"data.{side}": getattr(config.data, side) or side for side in SIDES}
    texts = {}
    for role, both in sides.items():
        # Other pairs get another name, so they replace none that the run was trained on.
        name = f"{role}-{hashlib.sha256(repr(both).encode()).hexdigest()[:8]}"
        rows = zip(*both, strict=True)
        prefix = write_pairs(folder / PAIRS_FOLDER / name, [*languages.values()], rows)
        texts[f"data.{role}"] = [prefix]
    return config.replace(languages | texts)


@contextmanager
def _shown_log() -> Iterator[None]:
    """Prints log messages, as the command does, unless the caller has configured logging."""
    if logger.isEnabledFor(logging.INFO):
        yield
        return
    handler, before = logging.StreamHandler(sys.stdout), (logger.level, logger.propagate)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


# --- The configuration ------------------------------------------------------------------------


def configure(
    model: str | None = None,
    *,
    task: str | None = None,
    recipe: str | None = None,
    file: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
) -> Config:
    """Returns the configuration of a run, from seven sources, some of which may be absent.

    `sources` below is the table of them: each takes precedence over those above it. `settings`
    are by "section.field", `overrides` assignments "section.field=value". The preset is
    `model`, or that of the file, or "tiny". The file has settings in YAML, or is the
    config.json of a run. The run is that of "training.init_from".

    Raises UserError if a name is unknown, a value is out of bounds, the file cannot be used, or
    it is a config.json of another preset.
    """
    if task is not None:
        TASK.check("task", task)
    single, last = dict(settings or {}), parse_assignments(overrides, SETTINGS)
    in_file = read_settings_file(Path(file)) if file else {}
    preset, is_complete = in_file.pop("preset", ""), Path(file or "").suffix == ".json"
    if is_complete and model not in (None, preset):
        raise UserError(
            f"A config.json has every setting, so a preset would change nothing. Received: "
            f"`config` {file} and `model` {model}. Give one of them."
        )
    model = model or preset
    path = (in_file | single | last).get("training.init_from")
    run = Run.open(path) if path else None
    # A config.json has every setting, whatever has become of the preset that it names.
    start = Config(preset=model or "tiny") if is_complete else presets.preset(model or "tiny")
    in_recipe = presets.recipe(recipe) if recipe else {}
    if run and is_complete and in_file["training.init_from"] != path:
        del in_file["data.tokenizer"]  # that of the run counts, which the file does not know
    sources: dict[str, dict[str, Any]] = {
        "preset": start.flat(),
        "recipe": in_recipe,
        "model of the run": _model_of(run, start) if run else {},
        # A preset or recipe that is named says how to train; otherwise the run does.
        "training of the run": {} if model or recipe or not run else _training_of(run),
        # Like every option, a recipe that is named overrides the file.
        "file": {name: value for name, value in in_file.items() if name not in in_recipe},
        "settings": single,
        "overrides": last,
    }
    config = Config.from_flat(_merged(sources.values()))
    if run:
        _say_what_differs(config, run, sources)
    return config


def _merged(sources: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for source in sources for name, value in source.items()}


def _model_of(run: Run, start: Config) -> dict[str, Any]:
    """Returns what training that begins with a run's weights always takes from it.

    That is its model, except dropout rates and trained positions, and its tokenizer. Subwords
    are sampled at the run's rate, if `start` samples them at all.
    """
    theirs = run.config.flat()
    names = (*settings_with(init_from="same"), *settings_with(init_from="taken"))
    rate = start.data.subword_sampling and theirs["data.subword_sampling"]
    taken = {"data.tokenizer": str(run.tokenizer), "data.subword_sampling": rate}
    return taken | {name: theirs[name] for name in names}


def _training_of(run: Run) -> dict[str, Any]:
    """Returns a run's recipe, such as dropout, training, search, languages, length limits."""
    theirs = {name: run.config.flat()[name] for name in settings_with(init_from="recipe")}
    if theirs["training.best_by"] == "score":  # of a function, which the run has not
        del theirs["training.best_by"]
    if theirs[BLEU_TOKENIZER] in WITHOUT_BLANKS:  # the new text may have some
        del theirs[BLEU_TOKENIZER]
    return theirs


def _say_what_differs(config: Config, run: Run, sources: Mapping[str, dict[str, Any]]) -> None:
    """Logs a rate that is the run's because of its tokenizer, and a tokeniser that is not."""
    rate, path = config.data.subword_sampling, config.training.init_from
    if sources["training of the run"]:
        given = (source for name, source in sources.items() if name != "preset")
        if not any(BLEU_TOKENIZER in source for source in given):
            text = "%s is chosen for the new text: that of %s, %s, is for text without blanks"
            logger.info(text, BLEU_TOKENIZER, path, run.config.data.bleu_tokenizer)
        return
    own = _merged(source for name, source in sources.items() if "of the run" not in name)
    if rate != (own_rate := own["data.subword_sampling"]):
        text = "data.subword_sampling is %g as in %s, not %g: rates depend on the tokenizer"
        logger.info(text, rate, path, own_rate)


def full_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values by "section.field", from arguments of `train` by "field" alone.

    Raises UserError if there is no such field, or several sections have it.
    """
    by_name: dict[str, list[str]] = {}
    for dotted in SETTINGS:
        by_name.setdefault(dotted.partition(".")[2], []).append(dotted)
    by_name["batch_tokens"] = ["training.batch_tokens"]  # like the option of `train`
    for name in fields:
        if name not in by_name:
            known = [*inspect.signature(train).parameters, *by_name]
            raise UserError(f"There is no setting {quoted(name)}.{nearest(name, known)}")
        if len(by_name[name]) > 1:
            raise UserError(
                f"`{name}` is a setting of several sections: give one of them, such as "
                f"settings={{{by_name[name][0]!r}: {quoted(fields[name])}}}. There are: "
                f"{', '.join(by_name[name])}."
            )
    return {by_name[name][0]: value for name, value in fields.items()}
