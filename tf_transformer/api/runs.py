"""Loaders of runs and of .keras files."""

from collections.abc import Sequence
from pathlib import Path

import keras

from tf_transformer.api.translator import Translator
from tf_transformer.config import DecodingConfig
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.errors import UserError
from tf_transformer.models.transformer import Transformer
from tf_transformer.run import Run
from tf_transformer.serving.card import model_card
from tf_transformer.tasks.classification.predictor import SentenceClassifier
from tf_transformer.tasks.classification.task import load_classifier
from tf_transformer.tasks.models import load_translator
from tf_transformer.tasks.parsing.parser import Parser
from tf_transformer.tasks.parsing.tree_grammar import load_grammar


def load_run(
    run: Run,
    checkpoint: str | None = None,
    others: Sequence[Run] = (),
    *,
    precision: str = "float32",
    shortlist: bool = False,
) -> Translator | Parser | SentenceClassifier:
    """Loads a run of any task; arguments and errors are those of `tasks.models`."""
    if run.config.task == "classification":
        return load_classifier(run, checkpoint)
    if run.config.task == "parsing":
        batches = load_translator(run, checkpoint, run.config.decoding, others=others)
        return Parser(batches, load_grammar(run, batches.tokenizer))
    return translator_of(
        run, checkpoint, others=others, precision=precision, shortlist=shortlist
    )


def translator_of(
    run: Run,
    checkpoint: str | Path | None,
    decoding: DecodingConfig | None = None,
    *,
    name: str = "",
    others: Sequence[Run] = (),
    precision: str = "float32",
    shortlist: bool = False,
    tag: str | None = None,
) -> Translator:
    """Loads a run of text to text, with the model card of its exports.

    Args:
        run: the run.
        checkpoint: one of its checkpoints, or a file; None for the run's own choice.
        decoding: options of the search; None for the run's own.
        name: description of the weights in the card; the checkpoint by default.
        others: runs with the same tokenizer, to decode with as an ensemble.
        precision: float32 or bfloat16, for weights and computation.
        shortlist: whether to search with the run's shortlist.
        tag: text before each source.

    Raises:
        UserError: if a run lacks the checkpoint, a tokenizer or the shortlist.
    """
    file = run.weights(checkpoint)
    name = name or str(checkpoint or run.config.decoding.checkpoint)
    decoding = decoding or run.config.decoding
    batches = load_translator(
        run, file, decoding, others=others, precision=precision, shortlist=shortlist, tag=tag
    )
    return Translator(
        batches.model,
        batches.tokenizer,
        decoding,
        shortlist=batches.shortlist,
        card=lambda search: model_card(
            run,
            name or str(checkpoint or run.config.decoding.checkpoint),
            file,
            search,
            precision,
            shortlist,
            tag,
        ),
    )


def load_keras_file(path: Path, tokenizer: str | Path | None = None) -> Translator:
    """Loads a .keras file of a `Transformer`.

    Args:
        path: the file.
        tokenizer: its SentencePiece model, or a run that has it; tokenizer.model beside the
            file by default.

    Raises:
        UserError: if the file holds no such model, or there is no tokenizer.
    """
    try:
        model = keras.saving.load_model(path, compile=False)
    except (ValueError, TypeError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} holds no model that Keras can load: {reason}") from None
    if not isinstance(model, Transformer):
        raise UserError(
            f"{path} must hold a Transformer. Received: a {type(model).__name__}, which Keras "
            "alone can use."
        )
    file = Path(tokenizer or path.parent)
    file = file / "tokenizer.model" if file.is_dir() else file
    if not file.exists():
        raise UserError(
            f"{path} has no tokenizer beside it: expected {file}. Give `tokenizer`, a "
            "SentencePiece model or the run that has it."
        )
    return Translator(model, Tokenizer(file))
