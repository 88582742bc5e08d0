"""Options of a translator with a trained model: prefixes, limits, samples."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from trained import DECODING, assert_same, small_model, traces_of, with_settings

from tf_transformer.tasks.translation.translator import Translator

# Settings other than the defaults, alone and together.
OPTIONS = {
    "alpha 0": {"alpha": 0.0},
    "greedy": {"beam_size": 1},
    "minimum length": {"min_length": 25},
    "maximum length": {"max_length": 7},
    "no repeats": {"no_repeat_ngram": 2},
    "all": {"alpha": 2.0, "min_length": 12, "max_length": 30, "no_repeat_ngram": 3},
}


def scores_of(translations) -> list[list[float]]:
    return [[round(one.score, 3) for one in ranked] for ranked in translations]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("prefixed", [False, True])
def test_options_apply_to_a_sentence_alike_in_any_batch(translator, texts, options, prefixed):
    other = with_settings(translator, **options)
    texts = texts[:12]
    prefixes = [("", "Wir", "Um fünf vor halb acht")[row % 3] for row in range(12)]
    prefixes = prefixes if prefixed else None
    number = other.decoding.beam_size
    together = other.translate(texts, prefix=prefixes, n_best=number)
    assert scores_of(together) != scores_of(translator.translate(texts, n_best=number))
    order = np.random.default_rng(1).permutation(12)
    permuted = other.translate(
        [texts[row] for row in order],
        prefix=prefixes and [prefixes[row] for row in order],
        n_best=1,
    )
    assert_same(permuted, [together[row] for row in order])
    for row in range(0, 12, 2):
        alone = other.translate([texts[row]], prefix=prefixes and [prefixes[row]], n_best=1)
        assert_same(alone, [together[row]])


def test_every_hypothesis_begins_with_its_prefix(translator, texts):
    texts = [text for text in texts if text.strip()]
    prefixes = [("", "Der Hund", "Am 3. Mai ")[row % 3] for row in range(len(texts))]
    found = translator.translate(texts, prefix=prefixes, n_best=4)
    for prefix, hypotheses in zip(prefixes, found, strict=True):
        assert all(one.startswith(prefix.strip()) for one in hypotheses)


@pytest.mark.parametrize("size", [1, 3])
def test_a_prefix_of_a_greedy_translation_changes_nothing(translator, trained_run, size):
    """As ids, since a text may be spelled in other pieces; greedy, since beams would differ."""
    engine, decoding = translator.engine, dataclasses.replace(DECODING, beam_size=1)
    source = translator.codec.encode(tf.constant(trained_run.lines("dev.en")))[0].to_tensor()
    search = tf.function(engine.search_ids, autograph=False)
    found = search(source, decoding)
    again = search(source, decoding, prefix=found.tokens[:, 0, :size])
    np.testing.assert_array_equal(again.tokens, found.tokens)
    np.testing.assert_allclose(again.log_probs, found.log_probs, rtol=0, atol=1e-5)


def test_a_search_with_a_prefix_scores_as_forced_decoding_does(translator, trained_run):
    source = translator.codec.encode(tf.constant(trained_run.lines("dev.en")))[0].to_tensor()
    search = tf.function(translator.engine.search_ids, autograph=False)
    prefix = search(source, DECODING, 4).tokens[:, 0, :3]
    found = search(source, DECODING, 4, prefix=prefix)
    for beam in range(4):
        assert tf.reduce_all(found.tokens[:, beam, :3] == prefix)
        forced = translator.engine.log_probs(source, found.tokens[:, beam])
        np.testing.assert_allclose(found.log_probs[:, beam], forced, rtol=1e-6, atol=1e-5)


def prefix_warnings(caplog) -> list[str]:
    return [message for message in caplog.messages if "prefixes" in message]


def test_a_prefix_longer_than_the_limit_is_cut_to_leave_room_for_the_end(translator, caplog):
    sizes = {"positions": "learned", "max_length": 12}
    learned = Translator(
        small_model(translator.tokenizer.vocab_size, **sizes), translator.tokenizer, DECODING
    )
    found = learned.translate("Hello.", prefix="eins zwei drei " * 20)
    assert found.num_tokens == 12
    assert ("eins zwei drei " * 20).startswith(found)
    limited = with_settings(translator, max_length=3)
    caplog.clear()
    prefixes = ["Guten Morgen, mein Freund", "", "wort " * 1_200]
    cut, free, cut_too = limited.translate(["Hello."] * 3, prefix=prefixes)
    assert "Guten Morgen, mein Freund".startswith(cut) and cut
    assert (cut.num_tokens, cut_too.num_tokens) == (3, 3)
    assert free == limited.translate("Hello.")
    assert prefix_warnings(caplog) == [
        "prefixes cut at the length limit of their translation: 2"
    ]


def test_a_prefix_may_fill_its_limit_and_no_more(translator, caplog):
    """If the prefix with EOS reaches the limit, nothing is cut."""
    ids, _ = translator.codec.encode(tf.constant(["Guten Morgen, mein Freund"]), target=True)
    for limit, is_cut in ((len(ids[0]), False), (len(ids[0]) - 1, True)):
        caplog.clear()
        limited = with_settings(translator, max_length=limit)
        found = limited.translate("Hello.", prefix="Guten Morgen, mein Freund")
        assert found.num_tokens == limit
        assert (found == "Guten Morgen, mein Freund") is not is_cut
        assert bool(prefix_warnings(caplog)) is is_cut


def test_each_text_needs_a_prefix(translator):
    with pytest.raises(ValueError, match="`texts` and `prefix` must have .* Received: 2 and 1"):
        translator.translate(["a", "b"], prefix=["c"])


@pytest.mark.parametrize(
    "sampling", [{}, {"seed": 2**32 - 1, "temperature": 0.7, "top_k": 20, "top_p": 0.9}]
)
def test_samples_depend_on_seed_and_sentence_only(translator, texts, sampling):
    texts, sampling = texts[:10], {"sample": True, "n_best": 4} | sampling
    together = translator.translate(texts, **sampling)
    order = np.random.default_rng(1).permutation(10)
    permuted = translator.translate([texts[row] for row in order], **sampling)
    for row, found in zip(order, permuted, strict=True):
        assert found == together[row]
    for row in range(0, 10, 3):
        alone = translator.translate(texts[row], **sampling)
        assert alone == together[row]
        log_probs = [one.log_prob for one in alone]
        assert log_probs == sorted(log_probs, reverse=True) == [one.score for one in alone]
    assert translator.translate(texts, **sampling | {"seed": 5}) != together


def test_another_seed_compiles_nothing(translator, texts, monkeypatch):
    other = with_settings(translator)
    traces = traces_of(monkeypatch, other.engine, "sample_ids")
    drawn = {other.translate(texts[5], sample=True, seed=seed) for seed in range(5)}
    assert len(drawn) > 1
    assert len(traces) == 1


def test_sampling_the_most_probable_token_is_greedy_search(translator, texts):
    greedy = with_settings(translator, beam_size=1)
    drawn = greedy.translate(texts, sample=True, top_k=1)
    for one, other in zip(drawn, greedy.translate(texts), strict=True):
        assert one == other
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)


def test_samples_follow_rules_and_prefix(translator, trained_run):
    other = with_settings(translator, min_length=20, max_length=22)
    texts = trained_run.lines("dev.en")[:6]
    found = other.translate(texts, prefix=["Wir"] * 6, sample=True, n_best=8)
    for hypotheses in found:
        assert len({*hypotheses}) > 4
        for one in hypotheses:
            assert one.startswith("Wir")
            assert 20 <= one.num_tokens <= 22


def test_a_penalty_for_each_sentence_and_lengths_within_the_limits(translator, trained_run):
    ids = translator.codec.encode(tf.constant(trained_run.lines("dev.en")[:6]))[0].to_tensor()
    alphas = tf.constant([0.0, 0.6, 2.0, 0.0, 1.0, 0.6])
    limits = tf.constant([100, 100, 9, 100, 100, 0])
    found = translator.engine.search_ids(ids, DECODING, 4, alpha=alphas, max_lengths=limits)
    lengths = found.lengths.numpy()
    assert np.all(lengths[:, 0] > 0)
    assert np.all(lengths <= limits.numpy().clip(1)[:, np.newaxis])
    penalties = ((5 + lengths[:, 0]) / 6) ** alphas.numpy()
    np.testing.assert_allclose(
        found.scores[:, 0], found.log_probs[:, 0].numpy() / penalties, rtol=1e-5
    )
    plain = translator.engine.search_ids(ids, DECODING, 4)
    np.testing.assert_allclose(found.scores[1], plain.scores[1], rtol=1e-5)
