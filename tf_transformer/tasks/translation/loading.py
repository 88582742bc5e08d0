"""Loading a translator from a run or a .keras file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from tf_transformer.config import DecodingConfig
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.errors import UserError
from tf_transformer.models.transformer import Transformer
from tf_transformer.run import Run
from tf_transformer.tasks.models import card_of, load_translator
from tf_transformer.tasks.translation.translator import Translator


def load_run(
    run: Run,
    checkpoint: str | Path | None = None,
    *,
    name: str = "",
    decoding: DecodingConfig | None = None,
    ensemble: Sequence[Run] = (),
    precision: str = "float32",
    shortlist: bool = False,
    threads: int | None = None,
    tag: str | None = None,
) -> Translator:
    """Loads the translator of a run.

    Args:
        run: the run.
        checkpoint: one of its checkpoints, or a file; None for the run's configured choice.
        name: description of the weights in the card; the checkpoint by default.
        decoding: settings of the search; None for those of the run.
        ensemble: further runs with the same tokenizer; the mean of all probabilities decides.
        precision: float32, bfloat16 or int8; see `tasks.models.load_translator`.
        shortlist: whether to search with the run's shortlist.
        threads: number of LiteRT threads; None for the fastest number.
        tag: text to put before each source.

    Raises:
        UserError: if a run lacks the checkpoint, a tokenizer or the shortlist.
    """
    decoding = decoding or run.config.decoding
    options: dict[str, Any] = {"precision": precision, "shortlist": shortlist, "tag": tag}
    batches = load_translator(
        run, checkpoint, decoding, others=ensemble, threads=threads, **options
    )
    card = card_of(run, checkpoint, name, ensemble, **options)
    return Translator(
        batches.model,
        batches.tokenizer,
        decoding,
        shortlist=batches.shortlist,
        lite=batches.lite,
        card=card,
    )


def load_keras_file(path: Path, tokenizer: str | Path | None = None) -> Translator:
    """Loads a .keras file of a `Transformer`.

    Args:
        path: the file.
        tokenizer: its SentencePiece model, or the run that has it; by default tokenizer.model
            beside the file.

    Raises:
        UserError: if the file does not hold such a model, or there is no tokenizer.
    """
    try:
        model = keras.saving.load_model(path, compile=False)
    except (ValueError, TypeError, OSError) as error:
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
    return Translator(model, Tokenizer(file))
