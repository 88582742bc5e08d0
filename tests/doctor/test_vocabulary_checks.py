"""Mismatches of tokenizer, model and text are found."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import sentencepiece

from tf_transformer.data import builtin
from tf_transformer.data.encoded import EncodedCorpus, FilterReport
from tf_transformer.data.encoding import encode_corpus
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.tokenizer_training import SPECIAL_IDS, train_tokenizer
from tf_transformer.doctor.vocabulary_checks import (
    check_filters,
    check_round_trip,
    check_size,
    check_unknown,
    check_unused,
)

PAIRS = builtin.pairs(600)
TRAIN, DEV = PAIRS[:500], PAIRS[500:]
LINES = [line for pair in TRAIN for line in pair]
LIMITS = {"max_length": 64, "max_ratio": 4.0}


def trained(folder: Path, **options: str) -> Tokenizer:
    path = folder / "tokenizer.model"
    train_tokenizer(LINES, path, vocab_size=600, kind="bpe", **options)
    return Tokenizer(path)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    return trained(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def rewriting(tmp_path_factory) -> Tokenizer:
    """A tokenizer with the normalisation rule of earlier versions."""
    return trained(tmp_path_factory.mktemp("tokenizer"), normalization="nmt_nfkc")


@pytest.fixture(scope="module")
def byteless(tmp_path_factory) -> Tokenizer:
    """A tokenizer made elsewhere, with <unk> instead of byte pieces."""
    path = tmp_path_factory.mktemp("tokenizer") / "unknown.model"
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(LINES),
            model_writer=file,
            vocab_size=300,
            character_coverage=1.0,
            minloglevel=2,
            **SPECIAL_IDS,
        )
    return Tokenizer(path)


@pytest.fixture
def encode(tokenizer, tmp_path):
    def encode(pairs, name="train", **limits) -> EncodedCorpus:
        return encode_corpus([pairs], tokenizer, tmp_path / name, **LIMITS | limits)

    return encode


def test_the_text_that_the_tokenizer_was_trained_on_passes(tokenizer, survey, encode):
    corpora = {"train": encode(TRAIN), "dev": encode(DEV, "dev")}
    findings = [
        *check_size(tokenizer, 600),
        *check_unknown(tokenizer, [survey(TRAIN), survey(DEV, "dev")]),
        *check_round_trip(tokenizer, [survey(TRAIN), survey(DEV, "dev")]),
        *check_unused(tokenizer, corpora["train"]),
        *check_filters(corpora),
    ]
    assert [finding.check for finding in findings] == [
        "vocabulary", "unknown characters", "round trip", "unused pieces", "filters",
    ]  # fmt: skip
    assert not any(finding.warning for finding in findings)


@pytest.mark.parametrize(("vocab_size", "word"), [(599, "only 599"), (601, "wastes memory")])
def test_a_model_of_another_size_is_found(tokenizer, vocab_size, word):
    (finding,) = check_size(tokenizer, vocab_size)
    assert finding.warning and word in finding.text
    assert finding.text.endswith("Use --set model.vocab_size=600.")


@pytest.mark.parametrize("kind", ["tokenizer", "byteless"])
def test_lines_with_unknown_characters_are_found(request, survey, kind):
    """Whether they become bytes or <unk>."""
    foreign = [(source, f"{target} Łódź 你") for source, target in TRAIN[:5]]
    surveys = [survey(TRAIN), survey(TRAIN[5:100] + foreign, "dev")]
    (finding,) = check_unknown(request.getfixturevalue(kind), surveys)
    assert finding.warning
    assert "5 of 100 target lines of dev (5%)" in finding.text
    assert "(ó Ł ź 你)" in finding.text  # but no known letters
    assert finding.text.endswith("dev.de:96.")


def test_invisible_unknown_characters_are_shown_as_code_points(tokenizer, survey):
    (finding,) = check_unknown(tokenizer, [survey([("a", "10\u00a0000\u200c e\u0301")])])
    assert "(U+00A0 U+0301 U+200C)" in finding.text


def test_lines_that_tokenising_changes_are_found_with_examples(rewriting, tokenizer, survey):
    changed = ["你好，世界！", "你好，朋友。", "می\u200cخواهم", "10\u00a0000 …"]
    dev = [
        *TRAIN[5:100],
        *((source, f"  {new} ") for (source, _), new in zip(TRAIN, changed, strict=False)),
    ]
    surveys = [survey(TRAIN), survey(dev, "dev")]
    (finding,) = check_round_trip(rewriting, surveys)
    assert finding.warning and finding.text.endswith("dev.de:96.")
    assert "4 of 99 target lines of dev (4%) are rewritten by the tokenizer" in finding.text
    assert "('，' becomes ','," in finding.text  # the most frequent first
    (finding,) = check_round_trip(tokenizer, surveys)
    assert str(finding) == "ok       round trip: none"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("می\u200cخواهم", "U+200C becomes a blank"),
        ("\u200fa", "U+200F becomes nothing"),
        ("x²", "'²' becomes '2'"),
        ("cafe\u0301", "U+0065 U+0301 becomes 'é'"),
        ("a\u2581b", "'\u2581' becomes a blank"),
    ],
)
def test_invisible_characters_are_shown_as_code_points(rewriting, survey, line, shown):
    (finding,) = check_round_trip(rewriting, [survey([("a", line)])])
    assert f"({shown})" in finding.text


def test_labels_of_sentences_need_no_round_trip(rewriting, survey):
    surveys = [survey([("a", "x²")])]
    assert not check_round_trip(rewriting, surveys, ("source",))[0].warning
    assert check_round_trip(rewriting, surveys)[0].warning


def test_a_tokenizer_of_other_text_has_unused_pieces(tokenizer, encode):
    (finding,) = check_unused(tokenizer, encode([TRAIN[0]] * 9))
    assert finding.warning
    used = {int(i) for side in ("source", "target")
            for i in getattr(encode([TRAIN[0]]), side)(0)}  # fmt: skip
    # The 4 special pieces and the 256 bytes do not count.
    expected = 600 - 4 - 256 - len({i for i in used if i >= 260})
    assert f"{expected} of 600 pieces" in finding.text


def test_pairs_that_the_filters_drop_are_counted_with_the_reason(encode):
    pairs = TRAIN[:90] + [("", "leer")] * 4 + [(TRAIN[0][0] * 20, TRAIN[0][1] * 20)] * 6
    (finding,) = check_filters({"train": encode(pairs), "dev": encode(DEV, "dev")})
    assert finding.warning and finding.text.startswith("10% of train is not used")
    assert "4 empty, 6 longer than 64 tokens" in finding.text


def test_an_empty_corpus_is_a_warning():
    report = FilterReport(0, 0, 0, 0, 0, max_length=64, max_ratio=4.0)
    (finding,) = check_filters({"dev": SimpleNamespace(report=report)})
    assert finding.warning and "0 pairs read" in finding.text


def test_lengths_after_the_filters_are_those_of_the_corpus(encode):
    corpus = encode(TRAIN)
    longer = np.maximum(corpus.source_lengths, corpus.target_lengths)
    (finding,) = check_filters({"train": corpus})
    assert not finding.warning
    assert finding.text.endswith(f"the longest {longer.max()}")
    usual = int(finding.text.split(" up to ")[1].split()[0])
    assert 0.98 <= np.mean(longer <= usual) <= 1
