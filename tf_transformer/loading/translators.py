"""Translators from runs, exports and .keras files: models, tokenizers and weights."""

import functools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import watched
from tf_transformer.base.former import CLASSES, gone
from tf_transformer.config import DecodingConfig
from tf_transformer.config.settings import split_tags
from tf_transformer.data.text import always_tagged
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import require_known
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.decoding.streams import lite_threads
from tf_transformer.decoding.text_codec import TextEngine
from tf_transformer.export.card import card_of
from tf_transformer.export.saved_model import require_int8
from tf_transformer.fast.int8 import to_int8
from tf_transformer.litert.engine import LiteEngine
from tf_transformer.litert.file import cached_lite_file
from tf_transformer.litert.interpreter import InterpreterPool
from tf_transformer.loading.exports import facts_of
from tf_transformer.models.ensemble import Ensemble
from tf_transformer.models.transformer import Transformer, build_model
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import load_weights
from tf_transformer.run.run_tokenizer import trained_pieces
from tf_transformer.terms.protection import Protection
from tf_transformer.translation.translator import Translator

logger = logging.getLogger(__name__)

# --- Translators -------------------------------------------------------------------------


def load_translator(
    run: Run,
    checkpoint: str | None = None,
    *,
    decoding: DecodingConfig | None = None,
    protection: Protection | None = None,
    **options: Any,
) -> Translator:
    """Loads the translator of a run.

    The options are `decoding`, settings of the search instead of the run's; `protection` of
    `Translator`; and those of `load_engine`. Raises UserError if the run lacks the checkpoint,
    by default that of its own setting, its tokenizer or another of its files.
    """
    card = card_of(run, checkpoint, **options)
    return Translator(
        decoding=decoding or run.config.decoding,
        engine=load_engine(run, checkpoint, **options),
        card=card,
        protection=protection,
        history=run.history,
        **facts_of(run.config),
    )


def load_keras_translator(path: Path, tokenizer: str | Path | None = None) -> Translator:
    """Loads a .keras file of a `Transformer`; UserError if it holds none, or has no tokenizer.

    The tokenizer is a SentencePiece model, or the run that has it; by default tokenizer.model
    beside the file.
    """
    try:
        model = keras.saving.load_model(path, compile=False)
    except (ValueError, TypeError, OSError) as error:
        if "tf_transformer>Classifier" in str(error):
            raise UserError(gone(f"{path}, a Classifier,", CLASSES["Classifier"])) from None
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} does not hold a model that Keras can load: {reason}") from None
    if not isinstance(model, Transformer):
        raise UserError(
            f"{path} must hold a Transformer. Received: a {type(model).__name__}, which only "
            "Keras can use."
        )
    file = Path(tokenizer or path.parent)
    file = file / "tokenizer.model" if file.is_dir() else file
    if not file.exists():
        raise UserError(
            f"{path} has no tokenizer beside it: expected {file}. Give `tokenizer`, a "
            "SentencePiece model or the run that has it."
        )
    return Translator(model, file)


# --- Models, tokenizers and weights ------------------------------------------------------


def load_engine(
    run: Run,
    checkpoint: str | None,
    *,
    ensemble: Sequence[Run] = (),
    precision: str = "float32",
    litert: bool = False,
    threads: int | None = None,
    tag: str | None = None,
) -> TextEngine:
    """Builds the model and the tokenizer of a run, and loads the weights of a checkpoint.

    The checkpoint is best, average, last or a step; None for each run's own setting. The mean
    of the probabilities of an ensemble decides. The precision is that of computation and
    weights, regardless of training; `litert` searches in float32 or int8, and scores in
    float32. The number of LiteRT threads is by default by the model's width. The tag stands
    before each source; "" if the sources already have their tags; see `data.vocabulary`.

    Raises UserError if a run lacks the checkpoint or a tokenizer; if the tokenizers differ; if
    a run was not trained with the tag; if TensorFlow cannot multiply int8 here; or if training
    replaces the weights meanwhile.
    """
    file = run.weights(checkpoint)
    require_kept = watched(file)
    in_graph = "float32" if litert else precision
    models = [_load_model(member, checkpoint, in_graph) for member in (run, *ensemble)]
    tokenizer, longest = _shared_tokenizer(run, ensemble, tag), run.longest_source
    if litert:
        require_kept()  # the LiteRT file is found by the hash of the weights
        content = cached_lite_file(models[0], precision, file)
        threads = threads or lite_threads(run.config.model.d_model)
        pool = InterpreterPool(content, threads, precision)
        return LiteEngine.beside(
            GraphEngine(models[0], tokenizer, longest_trained=longest), pool
        )
    return GraphEngine(
        Ensemble(models) if ensemble else models[0],
        tokenizer,
        longest_trained=longest,
        drawable=functools.partial(trained_pieces, run, tokenizer),
    )


def _load_model(run: Run, checkpoint: str | None, precision: str) -> Transformer:
    """Builds the model of a run and loads its weights; UserError if int8 is not possible."""
    file, in_int8 = run.weights(checkpoint), precision == "int8"
    run.require_tokenizer()
    if in_int8:
        require_int8("Precision int8")
    model = build_model(run.config, "float32" if in_int8 else precision)
    load_weights(file, model)
    if in_int8:
        to_int8(model)
    return model


def _shared_tokenizer(run: Run, others: Sequence[Run], tag: str | None) -> Tokenizer:
    """Returns the tokenizer of a run, which all runs of an ensemble must share."""
    for member in (run, *others):
        tags = dict.fromkeys(split_tags(member.config.data.tag).values())
        if tag is None and always_tagged(member.config.data):
            logger.warning(
                "%s was trained only on sources that begin with a tag: begin each line with "
                "one of %s, or give one as `tag`",
                member.path, ", ".join(tags),
            )  # fmt: skip
    file = run.require_tokenizer()
    tokenizer = Tokenizer(file, require_known(tag, run.config.data, file))
    for other in others:
        require_known(tag, other.config.data, other.require_tokenizer())
        if Tokenizer(other.require_tokenizer()).models != tokenizer.models:
            raise UserError(
                "The runs of an ensemble must have the same tokenizer. Received: different "
                f"ones in {run.path} and {other.path}. Train the latter with "
                f"`data.tokenizer={run.tokenizer}`."
            )
    return tokenizer
