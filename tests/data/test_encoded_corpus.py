"""The tokenised corpus on disk: content, filters, atomic writing."""

import dataclasses
import functools
import json
import shutil
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.base.errors import UserError
from tf_transformer.config import EOS_ID
from tf_transformer.data.encoded_corpus import (
    CHUNK_PAIRS,
    EncodedCorpus,
    FilterReport,
    encode_corpus,
)
from tf_transformer.data.tokenizer import Tokenizer

PAIRS = [("a b c", "d e"), ("f", "g h"), ("a b c d e f", "a b c d e"), ("b", "b")]


@pytest.fixture
def encode(letters, tmp_path) -> Callable[..., EncodedCorpus]:
    """Encodes texts in the folder "c"."""
    limits = {"max_length": 16, "max_ratio": 4.0}
    return functools.partial(
        encode_corpus, tokenizer=letters, directory=tmp_path / "c", **limits
    )


@pytest.fixture
def corpus(encode) -> EncodedCorpus:
    return encode([PAIRS])


def expected_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return [*tokenizer.tokenize(tf.constant([text])).to_list()[0], EOS_ID]


def test_sentences_are_their_ids_with_eos(corpus, letters):
    assert len(corpus) == len(PAIRS)
    for index, (source, target) in enumerate(PAIRS):
        assert corpus.source(index).tolist() == expected_ids(letters, source)
        assert corpus.target(index).tolist() == expected_ids(letters, target)
        assert corpus.source_lengths[index] == len(corpus.source(index))
        assert corpus.target_lengths[index] == len(corpus.target(index))


def test_reopened_corpus_is_the_written_one(encode, tmp_path):
    written = encode([PAIRS], fingerprint="abc")
    reopened = EncodedCorpus.open(tmp_path / "c")
    assert (reopened.fingerprint, reopened.report) == ("abc", written.report)
    np.testing.assert_array_equal(reopened.source_lengths, written.source_lengths)
    for index in range(len(PAIRS)):
        np.testing.assert_array_equal(reopened.target(index), written.target(index))


def test_pairs_keep_their_order_across_chunks(encode, letters):
    count = CHUNK_PAIRS * 2 + 1
    pairs = [(" ".join("abcdefghij"[int(d)] for d in f"{i:05}"), "a b") for i in range(count)]
    done: list[int] = []
    corpus = encode([iter(pairs)], progress=done.append)
    assert done == [CHUNK_PAIRS, 2 * CHUNK_PAIRS, count]
    for index in (0, 1, CHUNK_PAIRS - 1, CHUNK_PAIRS, count - 1):
        assert corpus.source(index).tolist() == expected_ids(letters, pairs[index][0])


@pytest.mark.parametrize("big", [False, True])
def test_ids_are_stored_in_two_bytes_where_they_fit(encode, letters, tmp_path, big):
    tokenizer = Tokenizer(letters.path)
    if big:
        tokenizer.vocab_size = 2**16 + 1
    corpus = encode([PAIRS], tokenizer=tokenizer)
    size = (tmp_path / "c" / "source_ids.bin").stat().st_size
    assert size == corpus.source_lengths.sum() * (4 if big else 2)
    assert corpus.source(0).tolist() == expected_ids(letters, PAIRS[0][0])


def test_padded_gathers_rows_in_any_order(corpus):
    rows = np.array([2, 0, 3, 2])
    for side, sentence in (("source", corpus.source), ("target", corpus.target)):
        padded = corpus.padded(side, rows, 9)
        assert padded.dtype == np.int32
        expected = [sentence(i).tolist() + [0] * (9 - len(sentence(i))) for i in rows]
        assert padded.tolist() == expected


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("a", "", "empty"),
        ("  ", "b", "empty"),
        ("", "", "empty"),
        ("a " * 15, "b " * 15, "kept"),  # 16 with EOS: just fits
        ("a " * 16, "b " * 15, "too_long"),
        ("a " * 15, "b " * 16, "too_long"),
        ("a " * 99, "b", "too_long"),  # counted once, not under its ratio as well
        ("a " * 99, "", "empty"),
        ("a", "b " * 7, "kept"),  # 8 to 2 with EOS: just fits
        ("a", "b " * 8, "ratio"),
        ("a " * 8, "b", "ratio"),
    ],
)
def test_filters_count_each_pair_once(encode, source, target, reason):
    pairs = [("a", "b"), (source, target)]
    report = encode([pairs]).report
    counts = dataclasses.asdict(report)
    expected = dict.fromkeys(["empty", "too_long", "ratio"], 0) | {"read": 2, "kept": 1}
    expected[reason] += 1
    assert {name: counts[name] for name in expected} == expected


def test_summary_names_only_the_reasons_that_occurred():
    report = FilterReport(29_000, 28_990, 3, 5, 2, max_length=256, max_ratio=3.0)
    assert report.summary() == (
        "29,000 pairs read, 28,990 kept; dropped: 3 empty, 5 longer than 256 tokens, "
        "2 with a length ratio above 3"
    )
    report = FilterReport(3, 3, 0, 0, 0, max_length=256, max_ratio=3.0)
    assert report.summary() == "3 pairs read, 3 kept"


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], "0 pairs read, 0 kept"),
        ([("", "a"), ("b", "")], "2 pairs read, 0 kept; dropped: 2 empty"),
    ],
)
def test_corpus_without_a_usable_pair_is_refused(encode, tmp_path, pairs, expected):
    with pytest.raises(UserError, match=f"no usable pair: {expected}"):
        encode([pairs])
    assert not list(tmp_path.iterdir())


def test_interrupted_encoding_leaves_the_old_corpus(encode, tmp_path):
    encode([PAIRS], fingerprint="old")

    def broken():
        yield from PAIRS * CHUNK_PAIRS
        raise UserError("text.en:9: text must be UTF-8")

    with pytest.raises(UserError, match="text.en:9"):
        encode([broken()], fingerprint="new")
    assert EncodedCorpus.open(tmp_path / "c").fingerprint == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_encoding_replaces_an_old_corpus_and_leftovers(encode, tmp_path):
    encode([PAIRS], fingerprint="old")
    shutil.copytree(tmp_path / "c", tmp_path / ".c.4242.tmp")  # as after a kill
    corpus = encode([PAIRS[:2]], fingerprint="new")
    assert (len(corpus), corpus.fingerprint) == (2, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_directory_with_other_content_is_never_replaced(encode, tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UserError, match="must be new or an encoded corpus"):
        encode([PAIRS], directory=tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def truncate(path):
    path.write_bytes(path.read_bytes()[:-2])


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def swap_ends(path):
    lengths = np.load(path)
    lengths[[0, -1]] = lengths[[-1, 0]]
    np.save(path, lengths)


def change_info(path, **changes):
    """Changes values in corpus.json; None removes one."""
    info = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: info[key] for key in info if info[key] is not None}))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("source_ids.bin", truncate),
        ("corpus.json", truncate),
        ("corpus.json", functools.partial(change_info, dtype=None)),
        ("target_ids.bin", lambda path: path.unlink()),
        ("source_ids.bin", flip),
        ("target_lengths.npy", swap_ends),
        ("corpus.json", functools.partial(change_info, sizes=[3])),
        ("", shutil.rmtree),
    ],
)
def test_damaged_corpus_is_refused(corpus, tmp_path, name, damage):
    damage(tmp_path / "c" / name)
    with pytest.raises(UserError, match="is not a complete encoded corpus"):
        EncodedCorpus.open(tmp_path / "c")
