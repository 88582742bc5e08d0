"""Fixtures for the tests of text and batches."""

import pytest

from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import train_tokenizer


@pytest.fixture(scope="session")
def letters(tmp_path_factory) -> Tokenizer:
    """A tokenizer of the letters a to j: the length of "a b c" is 3, 4 with EOS."""
    path = tmp_path_factory.mktemp("tokenizer") / "letters.model"
    train_tokenizer(
        ["a b c d e f g h i j", "j i h g f e d c b a"], path, vocab_size=280, kind="bpe"
    )
    return Tokenizer(path)
