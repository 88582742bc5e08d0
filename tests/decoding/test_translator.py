"""Text in, text out, with a trained model: what a translation depends on."""

import numpy as np
import pytest
import tensorflow as tf
from trained import DECODING, assert_same, small_model, traces_of, with_settings

from tf_transformer.config import EOS_ID
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding import batches
from tf_transformer.decoding.beam_search import length_penalty
from tf_transformer.decoding.text_codec import Translation
from tf_transformer.tasks.translation.translator import Translator


@pytest.fixture(scope="module")
def expected(translator, texts) -> list[list[Translation]]:
    return translator.translate(texts, n_best=4)


def test_translations_follow_their_sentences_in_any_order(translator, texts, expected):
    order = np.random.default_rng(1).permutation(len(texts))
    found = translator.translate([texts[row] for row in order], n_best=4)
    assert_same(found, [expected[row] for row in order])


@pytest.mark.parametrize("batch_tokens", [1, 300, 1_000_000])  # 1: each sentence alone
def test_the_size_of_batches_does_not_change_translations(
    translator, texts, expected, batch_tokens
):
    found = translator.translate(texts, n_best=4, batch_tokens=batch_tokens)
    assert_same(found, expected)


def test_batches_computed_at_the_same_time_give_the_same_results(
    translator, texts, expected, monkeypatch
):
    pairs = texts, [ranked[0] for ranked in expected]
    scores = translator.score(*pairs)
    monkeypatch.setattr(batches, "most_streams", lambda: 3)
    assert_same(translator.translate(texts, n_best=4), expected)
    fresh = with_settings(translator)
    assert_same(fresh.translate(texts, n_best=4), expected)  # traced in the threads
    assert_same([[one] for one in fresh.score(*pairs)], [[one] for one in scores])


def test_the_search_is_traced_once_for_batches_of_every_shape(translator, texts, monkeypatch):
    other = with_settings(translator)
    traces = traces_of(monkeypatch, other.engine, "search_ids")
    for batch in (texts[:1], texts, texts[3:5], texts[6:]):
        other.translate(batch, batch_tokens=100 * len(batch))
    assert len(traces) == 1


def test_seeding_between_calls_changes_nothing(translator, texts, expected):
    tf.random.set_seed(7)
    assert_same(translator.translate(texts, n_best=4), expected)


def test_blank_text_has_blank_translations(translator):
    for (blank,) in translator.translate(["", " ", "\t\r", "\u3000"], n_best=4):
        assert blank == "" and vars(blank) == {"score": 0, "log_prob": 0, "num_tokens": 0}


def test_nothing_gives_nothing(translator):
    assert translator.translate([]) == []


@pytest.mark.parametrize("max_length", [0, 7])
def test_length_limits_are_those_of_the_search(translator, texts, max_length):
    other = with_settings(translator, max_extra_length=5, max_length=max_length)
    pieces = [len(ids) for ids in translator.tokenizer.tokenize(tf.constant(texts)).numpy()]
    limits = [length + 1 + 5 for length in pieces]  # EOS counts in both
    assert other.codec.length_limits(texts) == [min(n, max_length or n) for n in limits]
    assert other.codec.length_limits([]) == []


def test_hypotheses_are_ordered_distinct_and_scored_by_their_length(texts, expected):
    for text, found in zip(texts, expected, strict=True):
        assert len(found) == (4 if text.strip() else 1)
        if text.strip():
            scores = [hypothesis.score for hypothesis in found]
            assert scores == sorted(scores, reverse=True)
            assert scores == pytest.approx(
                [h.log_prob / float(length_penalty(h.num_tokens, 0.6)) for h in found]
            )
            assert len({(h, h.num_tokens) for h in found}) > 1


def test_output_exceeds_the_input_by_at_most_the_limit(translator, texts):
    limited = with_settings(translator, max_extra_length=1)
    sources, _ = translator.codec.encode(tf.constant(texts))
    for ids, best in zip(sources.numpy(), limited.translate(texts), strict=True):
        assert best.num_tokens <= len(ids) + 1


def test_progress_counts_up_to_all_sentences(translator, texts):
    counts: list[int] = []
    translator.translate(texts, progress=counts.append)
    assert counts == sorted(set(counts))
    assert counts[-1] == len(texts)


def test_ids_end_in_eos_and_are_cut_before_it(translator, texts):
    limited = with_settings(translator, max_source_length=6)
    whole, none_cut = translator.codec.encode(tf.constant(texts))
    ids, cut = limited.codec.encode(tf.constant(texts))
    assert max(whole.row_lengths()) > 6
    assert not any(none_cut)
    for long, short, was_cut in zip(whole.numpy(), ids.numpy(), cut.numpy(), strict=True):
        assert len(short) == min(len(long), 6)
        assert was_cut == (len(long) > 6)
        assert short[-1] == EOS_ID
        assert short[:-1].tolist() == long[:-1][:5].tolist()


def test_learned_positions_cut_longer_sources(translator, texts):
    tokenizer: Tokenizer = translator.tokenizer
    model = small_model(tokenizer.vocab_size, positions="learned", max_length=12)
    learned = Translator(model, tokenizer, DECODING)
    long = max(texts, key=len)
    ids, _ = learned.codec.encode(tf.constant([long]))
    assert ids.row_lengths().numpy().tolist() == [12]
    beginning = tokenizer.detokenize(ids).numpy()[0].decode()
    assert long.startswith(beginning)
    found, of_beginning = learned.translate([long, beginning])
    assert found == of_beginning
    assert found.num_tokens <= 12


def test_a_tokenizer_of_another_vocabulary_is_refused(translator):
    model = small_model(translator.tokenizer.vocab_size + 1)
    with pytest.raises(ValueError, match="Received: tokenizer 600, model 601"):
        Translator(model, translator.tokenizer, DECODING)
