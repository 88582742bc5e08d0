"""Random segmentations: SentencePiece's distribution, and the same in every process."""

import io
import os
import subprocess
import sys
from collections import Counter
from random import Random

import pytest
import sentencepiece

from tf_transformer.data import builtin
from tf_transformer.data.subword_sampling import Segmenter
from tf_transformer.data.tokenizer_training import train_tokenizer
from tf_transformer.errors import UserError

LINES = [target for _, target in builtin.pairs(300)]
TEXTS = [*LINES[:60], "日本語 Straße ☃", "", "<2de> Das <2de>Haus"]
RATES = {"bpe": 0.3, "unigram": 0.1}


@pytest.fixture(scope="module", params=list(RATES))
def kind(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def model(tmp_path_factory, kind) -> bytes:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    train_tokenizer(iter(LINES), path, vocab_size=500, kind=kind, symbols=["<2de>"])
    return path.read_bytes()


@pytest.fixture(scope="module")
def library(model) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def test_the_text_stays(model, kind, library):
    segmenter, random = Segmenter(model, RATES[kind]), Random(1)
    usual = library.encode(TEXTS)
    drawn = [segmenter.draw(ids, random) for ids in usual]
    assert library.decode(drawn) == library.decode(usual)
    assert sum(map(len, drawn)) > 1.05 * sum(map(len, usual))
    symbol = library.piece_to_id("<2de>")
    assert [ids.count(symbol) for ids in drawn] == [ids.count(symbol) for ids in usual]


def test_without_skipped_merges_bpe_is_as_usual(model, kind, library):
    if kind == "bpe":
        usual = library.encode(TEXTS)
        assert [Segmenter(model, 0.0).draw(ids, Random(1)) for ids in usual] == usual


def test_segmentations_are_as_frequent_as_sentencepieces(model, kind, library):
    rate, number, word = RATES[kind], 4_000, "geschrieben"
    segmenter, random, usual = Segmenter(model, rate), Random(2), library.encode(word)
    ours = Counter(tuple(segmenter.draw(usual, random)) for _ in range(number))
    options = {"enable_sampling": True, "alpha": rate, "nbest_size": -1}
    theirs = Counter(tuple(library.encode(word, **options)) for _ in range(number))
    assert len(ours) > 15
    for segmentation in {*ours, *theirs}:
        counts = ours[segmentation], theirs[segmentation]
        # Two counts of equal expectation differ by less than 5 standard deviations.
        assert abs(counts[0] - counts[1]) < 5 * (sum(counts) + 4) ** 0.5, segmentation


def test_another_process_draws_the_same(model, kind, library, tmp_path):
    (tmp_path / "model").write_bytes(model)
    usual = library.encode(LINES[:20])
    segmenter, random = Segmenter(model, RATES[kind]), Random(7)
    expected = [segmenter.draw(ids, random) for ids in usual]
    program = f"""
from pathlib import Path
from random import Random
from tf_transformer.data.subword_sampling import Segmenter
segmenter, random = Segmenter(Path("model").read_bytes(), {RATES[kind]}), Random(7)
print([segmenter.draw(ids, random) for ids in {usual}])
"""
    environment = os.environ | {"PYTHONHASHSEED": "3"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == str(expected)


def test_a_model_of_another_kind_is_refused():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b a b"] * 9), model_writer=model, model_type="word",
        vocab_size=5, minloglevel=2, hard_vocab_limit=False,
    )  # fmt: skip
    with pytest.raises(UserError, match="bpe or unigram. Received: SentencePiece's kind 3"):
        Segmenter(model.getvalue(), 0.1)
