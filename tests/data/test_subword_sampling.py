"""Random segmentations: the same text, SentencePiece's distribution, a function of the step."""

import io
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random

import numpy as np
import pytest
import sentencepiece

from tf_transformer.base.errors import UserError
from tf_transformer.config import EOS_ID, PAD_ID
from tf_transformer.data import builtin
from tf_transformer.data.batches import make_dataset
from tf_transformer.data.encoded_corpus import EncodedCorpus, encode_corpus
from tf_transformer.data.plan import BatchPlan
from tf_transformer.data.subword_sampling import Segmenter, SubwordSampler
from tf_transformer.data.subwords import target_model_path
from tf_transformer.data.text import SIDES
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import train_tokenizer

PAIRS = [(f"{source} 漢", target) for source, target in builtin.pairs(300)]
RATES = {"bpe": 0.1, "unigram": 0.2}
LENGTH = 64
ROWS = np.arange(len(PAIRS))
LINES = [target for _, target in PAIRS]
TEXTS = [*LINES[:60], "日本語 Straße ☃", "", "<2de> Das <2de>Haus"]


@pytest.fixture(scope="module", params=list(RATES))
def kind(request) -> str:
    return request.param


# --- Words -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory, kind) -> bytes:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    train_tokenizer(iter(LINES), path, vocab_size=500, kind=kind, symbols=["<2de>"])
    return path.read_bytes()


@pytest.fixture(scope="module")
def library(model) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def test_segmentations_keep_the_text_and_its_symbols(model, kind, library):
    segmenter, random = Segmenter(model, RATES[kind]), Random(1)
    usual = library.encode(TEXTS)
    drawn = [segmenter.draw(ids, random) for ids in usual]
    assert library.decode(drawn) == library.decode(usual)
    assert sum(map(len, drawn)) > 1.05 * sum(map(len, usual))
    symbol = library.piece_to_id("<2de>")
    assert [ids.count(symbol) for ids in drawn] == [ids.count(symbol) for ids in usual]


@pytest.mark.parametrize("kind", ["bpe"], indirect=True)
def test_bpe_that_skips_no_merge_is_the_usual_segmentation(model, library):
    usual = library.encode(TEXTS)
    assert [Segmenter(model, 0.0).draw(ids, Random(1)) for ids in usual] == usual


def test_segmentations_are_as_frequent_as_in_sentencepiece(model, kind, library):
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


def test_a_model_of_another_kind_is_refused():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b a b"] * 9), model_writer=model, model_type="word",
        vocab_size=5, minloglevel=2, hard_vocab_limit=False,
    )  # fmt: skip
    with pytest.raises(UserError, match="bpe or unigram. Received: SentencePiece's kind 3"):
        Segmenter(model.getvalue(), 0.1)


# --- A corpus ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory, kind) -> Tokenizer:
    """A model for each side, with different pieces; both spell 漢 in bytes."""
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    for side, file in enumerate((path, target_model_path(path))):
        lines = (pair[side].removesuffix("漢") for pair in PAIRS)
        train_tokenizer(lines, file, vocab_size=400, kind=kind)
    return Tokenizer(path)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, tokenizer) -> EncodedCorpus:
    folder = tmp_path_factory.mktemp("corpus") / "c"
    return encode_corpus([PAIRS], tokenizer, folder, max_length=LENGTH, max_ratio=9.0)


@pytest.fixture(scope="module")
def sampler(corpus, tokenizer, kind) -> SubwordSampler:
    return SubwordSampler(corpus, tokenizer, RATES[kind], seed=5)


@pytest.fixture
def plan(sampler) -> BatchPlan:
    lengths = [sampler.lengths(side, LENGTH) for side in SIDES]
    return BatchPlan(*lengths, batch_tokens=512, max_length=LENGTH, seed=1)


def test_a_corpus_keeps_its_text_and_changes_its_pieces(corpus, sampler, tokenizer):
    for number, side in enumerate(SIDES):
        models = tokenizer.models
        library = sentencepiece.SentencePieceProcessor(model_proto=models[side])
        usual = corpus.padded(side, ROWS, LENGTH)
        drawn = sampler.segmented(side, usual, (7, 0))
        ends = np.argmax(drawn == EOS_ID, axis=1)
        texts = [
            library.decode(ids[:end].tolist()) for ids, end in zip(drawn, ends, strict=True)
        ]
        assert texts == [pair[number] for pair in PAIRS]
        assert np.mean(np.any(drawn != usual, axis=1)) > 0.5
        assert all(
            (ids[end + 1 :] == PAD_ID).all() for ids, end in zip(drawn, ends, strict=True)
        )


def test_pieces_are_a_pure_function_of_seed_step_and_replica(corpus, sampler, tokenizer, kind):
    def drawn(key, one=sampler):
        return np.stack(
            [one.segmented(side, corpus.padded(side, ROWS, LENGTH), key) for side in SIDES]
        )

    again = SubwordSampler(corpus, tokenizer, RATES[kind], seed=5)
    other = SubwordSampler(corpus, tokenizer, RATES[kind], seed=6)
    first = drawn((3, 0))
    for key in ((4, 0), (3, 1)):
        assert not np.array_equal(drawn(key), first)
    assert not np.array_equal(drawn((3, 0), other), first)
    with ThreadPoolExecutor(1) as threads:
        in_a_thread = threads.submit(drawn, (3, 0), again).result()
    for ids in (drawn((3, 0)), drawn((3, 0), again), in_a_thread):
        np.testing.assert_array_equal(ids, first)


def test_a_sentence_without_room_keeps_its_usual_pieces(corpus, sampler):
    longest = int(corpus.source_lengths.max())
    usual = corpus.padded("source", ROWS, longest)
    drawn = sampler.segmented("source", usual, (1, 0))
    whole = corpus.source_lengths == longest
    assert np.any(drawn[~whole] != usual[~whole])
    for ids, plain in zip(drawn, usual, strict=True):
        ended = np.count_nonzero(ids == EOS_ID) == 1
        assert ended and (np.count_nonzero(ids) <= longest or np.array_equal(ids, plain))


def test_batches_have_room_for_most_sentences(corpus, sampler, plan):
    assert 1 < sampler.stretch < 3
    changed = []
    batches = make_dataset(corpus, plan, sampler, num_steps=plan.steps_per_epoch)
    for step, (inputs, _) in enumerate(batches.as_numpy_iterator()):
        rows = plan.batch(step).indices
        usual = corpus.padded("source", rows, plan.batch(step).length)
        changed += np.any(inputs["source"][: len(rows)] != usual, axis=1).tolist()
    wide = sampler.segmented("source", corpus.padded("source", ROWS, 4 * LENGTH), (0, 0))
    free = np.any(wide[:, :LENGTH] != corpus.padded("source", ROWS, LENGTH), axis=1)
    assert np.mean(changed) > 0.9 * np.mean(free)
