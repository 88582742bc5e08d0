"""Training in one call, like `tf-transformer train`."""

import logging
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from tf_transformer.api.configuration import configure, full_names
from tf_transformer.api.load import load_run
from tf_transformer.config import Config
from tf_transformer.quiet import import_tensorflow
from tf_transformer.run import Run
from tf_transformer.strings import Strings
from tf_transformer.training.sessions import Budget, Interrupted

if TYPE_CHECKING:  # they import TensorFlow
    from tf_transformer.tasks.classification.predictor import SentenceClassifier
    from tf_transformer.tasks.parsing.parser import Parser
    from tf_transformer.tasks.translation.translator import Translator

logger = logging.getLogger("tf_transformer")


# fmt: off
@overload
def train(model: str | None = None, *, task: Literal["translation"] | None = None,
          train: str | Path | Strings = (), valid: str | Path | Strings = (),
          source: str = "", target: str = "", recipe: str | None = None,
          config: str | Path | None = None, output: str | Path | None = None,
          devices: int | None = None, stop_after: str | None = None,
          accept_new_data: bool = False, settings: Mapping[str, Any] | None = None,
          **fields: Any) -> "Translator": ...
@overload
def train(model: str | None = None, *, task: Literal["parsing"],
          **options: Any) -> "Parser": ...
@overload
def train(model: str | None = None, *, task: Literal["classification"],
          **options: Any) -> "SentenceClassifier": ...
# fmt: on
def train(
    model: str | None = None,
    *,
    task: str | None = None,
    train: str | Path | Strings = (),
    valid: str | Path | Strings = (),
    source: str = "",
    target: str = "",
    recipe: str | None = None,
    config: str | Path | None = None,
    output: str | Path | None = None,
    devices: int | None = None,
    stop_after: str | None = None,
    accept_new_data: bool = False,
    settings: Mapping[str, Any] | None = None,
    **fields: Any,
) -> "Translator | Parser | SentenceClassifier":
    """Trains a model, or resumes its training, and loads the best weights.

    Without `train` it learns from the built-in English-German corpus. When interrupted, it
    saves everything, and the same call resumes. After `stop_after`, or Ctrl-C in an interactive
    session, it returns the best weights so far, if there are any.

    Args:
        model: name of a preset, such as "small" or "base"; by default the one in `config` or in
            the run `init_from`, else "tiny".
        task: "translation", "parsing" or "classification"; None for that of the preset.
        train: training text, one or a list: PREFIX for PREFIX.LANG or PREFIX.LANG.gz, or a
            table FILE.tsv[.gz]; for other tasks a file of trees or labelled sentences.
        valid: dev text, in the same form.
        source: language to translate from, such as "en".
        target: language to translate to.
        recipe: name of a training recipe.
        config: file of settings in YAML, or the config.json of a run; arguments override it.
        output: run directory; "runs/MODEL" by default, with the name of the preset.
        devices: number of devices; all GPUs, or the CPU, by default.
        stop_after: length of this session: "2h", "90m", "45s" or "500 steps".
        accept_new_data: resume although the content of the training text has changed.
        settings: values by "section.field", such as {"data.max_length": 100}.
        **fields: settings by their field alone, such as `dropout=0.3`, `steps=3000` or
            `init_from="runs/base"`; `batch_tokens` means training.batch_tokens.

    Returns:
        What `load` returns for the run.

    Raises:
        UserError: if a setting, the data or the run directory is invalid.
        KeyboardInterrupt: after Ctrl-C in a script or another signal, or if there are no best
            weights yet.
    """
    text = {"train": _listed(train), "valid": _listed(valid), "source": source}
    text["target"] = target
    named = full_names({name: value for name, value in text.items() if value} | fields)
    named |= dict(settings or {})
    resolved = configure(model, task=task, recipe=recipe, file=config, settings=named)
    folder = Path(output or f"runs/{resolved.preset or 'tiny'}")
    _train(
        resolved,
        folder,
        Budget.parse(stop_after) if stop_after else None,
        num_devices=devices,
        accept_new_data=accept_new_data,
        fixed_vocabulary="model.vocab_size" in named,
    )
    return load_run(Run.open(folder))


def _train(config: Config, folder: Path, budget: Budget | None, **how: Any) -> None:
    """Trains to the end, or until an interruption after which `train` may return."""
    import_tensorflow()

    from tf_transformer.api.training import train_and_report

    with _shown_log():
        try:
            train_and_report(config, folder, budget, bars=True, **how)
        except Interrupted as stop:
            logger.info("%s; call again to resume", stop)
            if not (_may_return(stop) and Run.open(folder).checkpoints.best.exists()):
                raise
            logger.info("the best weights so far are returned")


def _listed(text: str | Path | Strings) -> list[str]:
    return [str(text)] if isinstance(text, (str, Path)) else [str(name) for name in text]


def _may_return(stop: Interrupted) -> bool:
    """Returns whether `train` may return: a script must not continue after Ctrl-C."""
    interactive = hasattr(sys, "ps1")
    return stop.status == 0 or (interactive and stop.status == 128 + signal.SIGINT)


@contextmanager
def _shown_log() -> Iterator[None]:
    """Prints log messages, as the command does, unless the caller has configured logging."""
    if logger.isEnabledFor(logging.INFO):
        yield
        return
    handler, before = logging.StreamHandler(sys.stdout), (logger.level, logger.propagate)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
