"""Tags and symbols: kept whole, chosen by key, and refused where they cannot work."""

import logging
import re
from pathlib import Path

import pytest
import tensorflow as tf

from tf_transformer.config import DataConfig
from tf_transformer.data.text import always_tagged, corpus_tag
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import (
    check_tags,
    require_known,
    require_whole,
    symbol_pieces,
    symbols_of,
    train_tokenizer,
    usable_tag,
)
from tf_transformer.errors import UserError

TAGS = ("de=<2de>", "fr=<2fr>", "made=<made>", "en=translate to English:")
DATA = DataConfig(train=("x/real", "x/made:en-fr"), source="en", target="de", tag=TAGS)


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(tmp_path_factory, request) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    lines = ["a small text", "that repeats a little", "a small text that repeats"] * 20
    options = {"vocab_size": 280, "kind": request.param, "normalization": "nmt_nfkc"}
    train_tokenizer(lines, path, **options, symbols=symbol_pieces(["<2de>", "<…>"]))
    return path


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    ids = tokenizer.tokenize(tf.constant([text]))
    return [piece.decode() for piece in tokenizer.pieces(ids[0]).numpy()]


def test_a_symbol_is_never_split(tokenizer):
    """Not even within a word, or by a rule that rewrites its characters."""
    for symbol in ("<2de>", "<…>"):
        for text in (f"{symbol} a text", f"text{symbol}text", f"a ({symbol}), {symbol * 2}"):
            words = [piece.lstrip("\u2581") for piece in pieces(Tokenizer(tokenizer), text)]
            assert words.count(symbol) == text.count(symbol)
        assert pieces(Tokenizer(tokenizer), f"{symbol} a")[0] == f"\u2581{symbol}"


def test_a_tagged_tokenizer_puts_the_tag_before_visible_sources(tokenizer):
    tagged, plain = Tokenizer(tokenizer, "<2de>"), Tokenizer(tokenizer)
    texts = ["a text", "", "\u200b", " that "]
    expected = plain.ids(["<2de> a text", "", "", "<2de> that "])
    assert tagged.tokenize(tf.constant(texts)).to_list() == tagged.ids(texts) == expected
    targets = tagged.tokenize_target(tf.constant(texts)).to_list()
    assert targets == tagged.ids(texts, "target") == plain.ids(texts)


def test_a_corpus_has_the_tags_of_its_language_and_its_name():
    assert corpus_tag("x/real", DATA) == "<2de>"
    assert corpus_tag("x/made:en-fr", DATA) == "<2fr>"
    assert corpus_tag("x/made", DATA) == "<2de> <made>"
    assert corpus_tag("x/real:de-en", DATA) == "translate to English:"
    assert corpus_tag("x/real:de-it", DATA) == ""
    assert symbols_of(DATA) == ["<2de>", "<2fr>", "<made>"]
    assert always_tagged(DATA)
    assert not always_tagged(DataConfig(train=("a", "made"), tag=("made=<made>",)))


def written(folder: Path, line: str = "a text") -> str:
    for language in ("en", "de"):
        (folder / f"t.{language}").write_text(f"one\n{line}\n", "utf-8")
    return str(folder / "t")


def test_a_tag_for_no_corpus_is_refused(tmp_path):
    data = DataConfig(train=(written(tmp_path),), source="en", target="de", tag=("ed=<2de>",))
    with pytest.raises(UserError, match="Received: 'ed'. There are: de, .*t, t"):
        check_tags(data)


def test_a_tag_that_occurs_in_the_text_is_refused_with_its_line(tmp_path):
    name = written(tmp_path, "so <2de> it")
    data = DataConfig(train=(name,), source="en", target="de", tag=("de=<2de>",))
    with pytest.raises(UserError, match=r"contain the tag <2de>. Received: line 2 of .*/t\."):
        check_tags(data)


def test_symbols_are_counted_in_the_text(tmp_path, caplog):
    name = written(tmp_path, "so <2de> it")
    symbols = ("<2de>", "<2fr>")
    with caplog.at_level(logging.INFO):
        check_tags(DataConfig(train=(name,), source="en", target="de", symbols=symbols))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "symbol <2de>: in 2 lines of the text"),
        ("WARNING", "symbol <2fr>: in 0 lines of the text"),
    ]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        *(
            ({"tag": (tag,)}, "`data.tag` must be KEY=TAG")
            for tag in ("de", "=a", "de=", "de= ")
        ),
        ({"tag": ("de=<a>", "de=<b>")}, "`data.tag` must be KEY=TAG"),
        ({"symbols": ("a b",)}, "`data.symbols` must be words without blanks"),
    ],
)
def test_malformed_tags_and_symbols_are_refused(settings, expected):
    with pytest.raises(UserError, match=expected):
        DataConfig(**settings)


def test_a_tokenizer_that_splits_a_tag_is_refused(tokenizer):
    require_whole(["<2de>", "<…>"], tokenizer)
    with pytest.raises(UserError, match=r"keep <2fr> whole.*--symbols '<2fr>'"):
        require_whole(["<2de>", "<2fr>"], tokenizer)


def test_a_tag_must_be_known_from_the_training_or_the_tokenizer(tokenizer):
    assert require_known(" <made>  <2fr> ", DATA, tokenizer) == "<made> <2fr>"
    assert require_known("translate to English:", DATA, tokenizer)
    assert require_known(None, DATA, tokenizer) == ""
    assert require_known("<2de>", DataConfig(), tokenizer) == "<2de>"
    for tag, data, known in (
        ("<2de> <2it>", DATA, "<2de>, <2fr>, <made>, translate to English:"),
        ("<2it>", DataConfig(), "<2de>, <…>"),
    ):
        with pytest.raises(UserError, match=f"with: {re.escape(known)}. Received: '<2it>'"):
            require_known(tag, data, tokenizer)


def test_a_run_without_tags_uses_none_and_says_so(tokenizer, trained_run, caplog):
    assert usable_tag("<2de>", DATA, tokenizer) == "<2de>"
    assert usable_tag(None, DATA, tokenizer) is None and not caplog.messages
    plain = trained_run.path / "tokenizer.model"
    assert usable_tag("<2de>", DataConfig(), plain) is None
    assert "was trained without tags: --tag has no effect on it" in caplog.text
