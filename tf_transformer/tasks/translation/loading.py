"""Loading a translator from a run or a .keras file."""

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
    litert: bool = False,
    threads: int | None = None,
    **options: Any,
) -> Translator:
    """Loads the translator of a run.

    See `tasks.models.load_translator` for arguments and errors. `name` describes the weights in
    the card; by default the checkpoint does.
    """
    batches = load_translator(
        run, checkpoint, decoding, litert=litert, threads=threads, **options
    )
    card = card_of(run, checkpoint, name, **options)
    return Translator(
        batches.model,
        batches.tokenizer,
        batches.decoding,
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
