"""Loading a parser from a run."""

from collections.abc import Sequence
from pathlib import Path

from tf_transformer.config import DecodingConfig
from tf_transformer.run import Run
from tf_transformer.tasks.models import card_of, load_translator
from tf_transformer.tasks.parsing.parser import Parser
from tf_transformer.tasks.parsing.tree_grammar import load_grammar


def load_parser(
    run: Run,
    checkpoint: str | Path | None = None,
    *,
    name: str = "",
    decoding: DecodingConfig | None = None,
    ensemble: Sequence[Run] = (),
    precision: str = "float32",
) -> Parser:
    """Loads a parser whose search is constrained to trees.

    See `tasks.translation.loading.load_run` for the arguments.

    Raises:
        UserError: if a run lacks the checkpoint, a tokenizer or the lexicon.
    """
    decoding = decoding or run.config.decoding
    batches = load_translator(run, checkpoint, decoding, others=ensemble, precision=precision)
    card = card_of(run, checkpoint, name, ensemble, precision=precision)
    return Parser(batches, load_grammar(run, batches.tokenizer), card=card)
