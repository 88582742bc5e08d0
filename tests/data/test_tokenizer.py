"""SentencePiece inside the graph and outside it, and the training of its models."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from tf_transformer.base.errors import UserError
from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import LINE_BYTES, train_tokenizer

ENGLISH = [
    f"the {adjective} {animal} {verb} near the {place}"
    for adjective in ("small", "brown", "lazy", "quick", "happy")
    for animal in ("dog", "cat", "fox", "horse", "children")
    for verb in ("sleeps", "jumps", "running", "walked")
    for place in ("house", "river", "mountain")
]
TEXTS = [
    ENGLISH[0],
    "the fox sleeps.  Twice",
    "你好，世界 😀",
    "Füße ﬁne ①",
    "</s> <s> <pad> x",
    "",
    "  ",
    "tab\there\x00and there",
]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request, tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp(request.param) / "tokenizer.model"
    train_tokenizer(ENGLISH, path, vocab_size=290, kind=request.param)
    return Tokenizer(path)


def test_vocabulary_has_the_requested_size_and_special_ids(tokenizer):
    assert tokenizer.vocab_size == 290
    special = tokenizer.pieces(tf.constant([PAD_ID, UNK_ID, BOS_ID, EOS_ID]))
    assert special.numpy().tolist() == [b"<pad>", b"<unk>", b"<s>", b"</s>"]


def test_ids_and_texts_are_the_same_inside_and_outside_the_graph(tokenizer):
    texts = [*TEXTS, "\u200b\u00ad ", "a\u2028b", "half \ud83d of a pair"]
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts] + [b"not \xff UTF-8"]
    graph = tokenizer.tokenize(tf.constant(encoded)).to_list()
    assert tokenizer.ids([*texts, encoded[-1]]) == tokenizer.ids(encoded) == graph
    assert tokenizer.tokenize(texts).to_list() == graph[:-1]
    rows = np.array(
        [[BOS_ID, 9, UNK_ID, 20, EOS_ID, 11, EOS_ID], [270, 5, 9, PAD_ID, 7, 8, 60]]
    )
    decoded = tokenizer.detokenize(tf.constant(rows, tf.int32)).numpy()
    assert tokenizer.texts(rows) == [text.decode() for text in decoded]


def test_detokenize_stops_at_eos_and_drops_padding_and_bos(tokenizer):
    fox, dog = tokenizer.tokenize(tf.constant(["fox", "dog"])).to_list()
    rows = [
        [BOS_ID, *fox, EOS_ID, *dog],
        [*fox, EOS_ID, EOS_ID, *dog, EOS_ID],
        [PAD_ID, *dog, PAD_ID],
        [EOS_ID, *dog],
        [],
    ]
    ragged = tf.ragged.constant(rows, dtype=tf.int32)
    expected = [b"fox", b"fox", b"dog", b"", b""]
    assert tokenizer.detokenize(ragged).numpy().tolist() == expected
    assert tokenizer.detokenize(ragged.to_tensor(PAD_ID)).numpy().tolist() == expected
    assert tokenizer.detokenize(tf.zeros([2, 0], tf.int32)).numpy().tolist() == [b"", b""]


@pytest.mark.parametrize("call", ["pieces", "detokenize", "texts"])
def test_unknown_ids_do_not_reach_the_library(tokenizer, monkeypatch, call):
    monkeypatch.setattr(tokenizer, "vocab_size", 281)  # so that the library knows 281, and
    monkeypatch.setattr(tokenizer, "_call", print)  # never sees -1, which may end the process
    for wrong in (-1, 281):
        ids = [np.array([5, wrong])] if call == "texts" else tf.ragged.constant([[3], [wrong]])
        with pytest.raises(ValueError, match=f"must be from 0 to 280, .* Received: {wrong}."):
            getattr(tokenizer, call)(ids)


def test_functions_and_datasets_give_the_ids_of_eager_calls(tokenizer):
    expected = tokenizer.tokenize(tf.constant(TEXTS)).to_list()
    in_function = tf.function(tokenizer.tokenize)(tf.constant(TEXTS))
    assert in_function.to_list() == expected
    batches = tf.data.Dataset.from_tensor_slices(TEXTS).batch(3).map(tokenizer.tokenize)
    assert [row for batch in batches for row in batch.to_list()] == expected


def test_seeding_tensorflow_does_not_destroy_a_tokenizer(tokenizer):
    ids = tokenizer.tokenize(tf.constant(TEXTS))
    texts = tokenizer.detokenize(ids).numpy().tolist()
    pieces = tokenizer.pieces(ids).to_list()
    tf.random.set_seed(1)
    assert tokenizer.tokenize(tf.constant(TEXTS)).to_list() == ids.to_list()
    tf.random.set_seed(2)
    assert tokenizer.detokenize(ids).numpy().tolist() == texts
    tf.random.set_seed(3)
    assert tokenizer.pieces(ids).to_list() == pieces
    assert tf.function(tokenizer.tokenize)(tf.constant(TEXTS)).to_list() == ids.to_list()


def test_training_is_deterministic_even_on_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr("tf_transformer.data.vocabulary.TRAINING_BYTES", 60_000)
    rng = np.random.default_rng(0)
    lines = ["".join(rng.choice(list("abcde "), 40)) for _ in range(500)]
    paths = [tmp_path / "sub" / "1.model", tmp_path / "2.model"]
    for path in paths:
        train_tokenizer(iter(lines), path, vocab_size=400, kind="bpe")
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2.model", "sub"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], "every line is empty"),
        (["", " "], "every line is empty"),
        (["x" * 5_000], "every line is empty or longer than 4,192 bytes"),
    ],
)
def test_without_a_usable_line_there_is_no_training(tmp_path, lines, expected):
    with pytest.raises(UserError, match=expected):
        train_tokenizer(lines, tmp_path / "m.model", vocab_size=300, kind="bpe")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_lines_that_sentencepiece_skips_are_counted(tmp_path, caplog, kind):
    """The limit is SentencePiece's: it learns from a line that is one byte shorter."""
    models = {}
    for name, more in {
        "none": [],
        "longest": ["zö " * (LINE_BYTES // 4)],
        "longer": ["zö " * (LINE_BYTES // 4) + "z", "x" * 9_999],
        "reserved": ["zö \u2585 zö"],
    }.items():
        caplog.clear()
        train_tokenizer([*ENGLISH, *more], tmp_path / name, vocab_size=295, kind=kind)
        models[name] = (tmp_path / name).read_bytes()
        expected = {"longer": ["of more than 4,192 bytes: 2"], "reserved": ["with '\u2585': 1"]}
        beginning = "the tokenizer learns nothing from lines"
        assert caplog.messages == [f"{beginning} {end}" for end in expected.get(name, [])]
    assert models["longest"] != models["none"] == models["longer"] == models["reserved"]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_symbols_are_single_pieces_and_decode_to_themselves(tmp_path, kind):
    symbols, text = ["(S", "(SBAR", ")S", "XX", "."], "(SBAR (S XX . )S XX"
    lines = ["a small text", "that repeats a little", "a small text that repeats"] * 20
    path = tmp_path / "tokenizer.model"
    pieces = [f"\u2581{symbol}" for symbol in symbols]
    train_tokenizer(lines, path, vocab_size=281, kind=kind, symbols=pieces)
    tokenizer = Tokenizer(path)
    ids = tokenizer.tokenize(tf.constant([text, "a text"]))
    pieces = [piece.decode() for piece in tokenizer.pieces(ids[0]).numpy()]
    assert pieces == [f"\u2581{word}" for word in text.split()]
    assert [line.decode() for line in tokenizer.detokenize(ids).numpy()] == [text, "a text"]


@pytest.mark.parametrize(("vocab_size", "limit"), [(100, "at least"), (5000, "at most")])
def test_impossible_training_is_refused_with_a_bound_that_works(tmp_path, vocab_size, limit):
    path = tmp_path / "m.model"
    with pytest.raises(
        UserError, match=f"`vocab_size` must be {limit} .*={vocab_size}"
    ) as error:
        train_tokenizer(ENGLISH, path, vocab_size=vocab_size, kind="bpe")
    assert not list(tmp_path.iterdir())
    bound = int(re.search(rf"{limit} (\d+),", str(error.value))[1])
    train_tokenizer(ENGLISH, path, vocab_size=bound, kind="bpe")
    assert Tokenizer(path).vocab_size == bound


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        ("one text", {}, "`lines` must be a list of strings. Received: 'one text'"),
        (["a", None], {}, "`lines` must be a list of strings. Received: None"),
        (ENGLISH, {"kind": "word"}, "`kind` must be one of .'bpe', .*. Received: 'word'"),
    ],
)
def test_a_notebook_gives_lines_and_a_known_kind(tmp_path, lines, options, message):
    with pytest.raises((TypeError, UserError), match=message):
        train_tokenizer(lines, tmp_path / "m.model", vocab_size=290, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"no model", b"\x00" * 99])
def test_a_file_that_is_not_a_model_is_refused(tmp_path, content):
    path = tmp_path / "m.model"
    path.write_bytes(content)
    with pytest.raises(UserError, match="m.model is not a SentencePiece model"):
        Tokenizer(path)


def test_model_with_other_special_ids_is_refused(tmp_path):
    # The defaults of SentencePiece: unk 0, bos 1, eos 2, no pad.
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(ENGLISH),
        model_prefix=str(tmp_path / "m"),
        vocab_size=30,
        minloglevel=2,
    )
    with pytest.raises(UserError, match=r"must be \{'pad_id': 0.*Received: \{'pad_id': -1"):
        Tokenizer(tmp_path / "m.model")


def test_a_target_model_beside_the_source_model_segments_targets(tokenizer, tmp_path):
    one, other = tmp_path / "tokenizer.model", tmp_path / "tokenizer.target.model"
    shutil.copy(tokenizer.path, one)
    text = tf.constant(["the big dog"])
    alone = Tokenizer(one)
    assert alone.tokenize_target(text).to_list() == alone.tokenize(text).to_list()
    train_tokenizer(["the big dog"] * 20, other, vocab_size=272, kind="bpe")
    with pytest.raises(UserError, match="target.model must have as many pieces as tokenizer"):
        Tokenizer(one)
    train_tokenizer(["gid bot he go be tig hot"] * 20, one, vocab_size=272, kind="bpe")
    both = Tokenizer(one)
    assert both.tokenize(text).to_list() == Tokenizer(one).tokenize(text).to_list()
    alone = Tokenizer(Path(shutil.copy(other, tmp_path / "alone.model")))
    assert both.tokenize_target(text).to_list() == alone.tokenize(text).to_list()
    assert both.tokenize_target(text).to_list() != both.tokenize(text).to_list()
