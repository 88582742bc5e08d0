"""Text in, text out, with a trained model: what a translation depends on, and its options."""

import copy
import inspect
import io
import json
import os
import pickle
import signal
from typing import Unpack, get_overloads, get_type_hints

import numpy as np
import pytest
import tensorflow as tf
from trained import (
    DECODING,
    assert_same,
    quick_export,
    small_model,
    traces_of,
    with_settings,
)

from tf_transformer import load
from tf_transformer.base.errors import UserError
from tf_transformer.config import EOS_ID, DecodingConfig
from tf_transformer.config.config import SearchOptions
from tf_transformer.decoding.hypotheses import length_penalty
from tf_transformer.decoding.interface import LONG, SearchPlan, Translation, looks_wrong
from tf_transformer.loading.exports import load_exported_translator
from tf_transformer.models.cached_decoding import StepProgram
from tf_transformer.translation.translator import TranslationOptions, Translator


@pytest.fixture(scope="module")
def expected(translator, texts) -> list[list[Translation]]:
    return translator.translate(texts, n_best=4)


def test_batches_computed_at_the_same_time_give_the_same_results(
    translator, texts, expected, monkeypatch
):
    pairs = texts, [ranked[0] for ranked in expected]
    scores = translator.score(*pairs)
    monkeypatch.setattr("tf_transformer.decoding.streams.most_streams", lambda: 3)
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


def test_xla_gives_the_same_translations_and_compiles_a_step_once(translator, texts):
    plain, compiled = (with_settings(translator, jit_compile=jit) for jit in (False, True))
    some = texts[2:4]
    program = translator.model._step_program._program
    for options in (
        {"n_best": 4},
        {"n_best": 4, "sample": True, "seed": 2},
        {"prefix": ["Ein", ""], "no_repeat_ngram": 2},
    ):
        found, expected = (each.translate(some, **options) for each in (compiled, plain))
        if "n_best" not in options:
            found, expected = ([[one] for one in ranked] for ranked in (found, expected))
        assert_same(found, expected)
    assert program.experimental_get_tracing_count() == 1


def test_a_search_goes_on_without_xla_where_it_cannot_compile(
    translator, texts, monkeypatch, caplog
):
    def fail(*_: object) -> None:
        raise tf.errors.InternalError(None, None, "libdevice not found at ./libdevice.10.bc")

    monkeypatch.setattr(StepProgram, "_compute", fail)
    model = small_model(translator.tokenizer.vocab_size)
    plain, other = (
        Translator(model, translator.tokenizer, DecodingConfig(jit_compile=jit))
        for jit in (False, True)
    )
    for beam_size in (1, 3):
        found = other.translate(texts[:3], beam_size=beam_size)
        assert found == plain.translate(texts[:3], beam_size=beam_size)
    line = "XLA cannot compile (libdevice not found at ./libdevice.10.bc): the search goes on"
    assert caplog.text.count(line) == caplog.text.count("goes on") == 1


def test_blank_text_has_blank_translations(translator):
    for (blank,) in translator.translate(["", " ", "\t\r", "\u3000"], n_best=4):
        assert (blank, blank.score, blank.log_prob, blank.num_tokens) == ("", 0, 0, 0)


@pytest.fixture(scope="module")
def terse(translator) -> Translator:
    """Ends every hypothesis as soon as it may."""
    model = small_model(translator.tokenizer.vocab_size, output_bias=True)
    bias = np.zeros(model.vocab_size)
    bias[EOS_ID] = 20
    model.projection.output_bias.assign(bias)
    return Translator(model, translator.tokenizer, DECODING)


@pytest.mark.parametrize(
    "options", [{}, {"beam_size": 1, "lookahead": 3}, {"sample": True}], ids=str
)
def test_only_blank_text_and_a_limit_of_one_token_have_blank_translations(terse, options):
    texts, prefixes = ["A dog runs.", "", "Two men."], ["", "", "Zwei"]
    found = terse.translate(texts, max_length=1, **options)
    assert [(one, one.num_tokens) for one in found] == [("", 1), ("", 0), ("", 1)]
    found = terse.translate(texts, prefix=prefixes, **options)
    assert [one.num_tokens for one in found[:2]] == [2, 0]
    assert terse.score("A dog runs.", "").log_prob > found[0].log_prob
    assert found[2] == "Zwei"  # a prefix may be the whole translation
    assert terse.translate("Two\udc00", prefix="Zwei\udc00") == "Zwei" + 3 * "\ufffd"


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


def test_progress_counts_up_to_all_sentences(translator, texts):
    done: list[int] = []
    best = translator.translate(texts, progress=done.append)
    assert done == sorted(set(done)) and done[-1] == len(texts)
    done.clear()
    translator.score(texts, best, progress=done.append)
    assert done == sorted(set(done)) and done[-1] == len(texts)


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


def test_a_tokenizer_of_another_vocabulary_is_refused(translator):
    model = small_model(translator.tokenizer.vocab_size + 1)
    with pytest.raises(ValueError, match="Received: tokenizer 600, model 601"):
        Translator(model, translator.tokenizer, DECODING)


# Settings other than the defaults, alone and together.
OPTIONS = {
    "greedy": {"beam_size": 1},
    "no repeats": {"no_repeat_ngram": 2},
    "all": {"alpha": 2.0, "min_length": 12, "max_length": 30, "no_repeat_ngram": 3},
}


def scores_of(translations) -> list[list[float]]:
    return [[round(one.score, 3) for one in ranked] for ranked in translations]


@pytest.mark.parametrize("name", OPTIONS)
def test_options_apply_to_a_sentence_alike_in_any_batch(translator, texts, expected, name):
    other = with_settings(translator, **OPTIONS[name])
    decoding, texts, prefixes = other.decoding, texts[:12], None
    if name == "all":
        prefixes = [("", "Wir", "Um fünf vor halb acht")[row % 3] for row in range(12)]

    def found(rows) -> list[list[Translation]]:
        given = prefixes and [prefixes[row] for row in rows]
        number = decoding.beam_size
        return other.translate([texts[row] for row in rows], prefix=given, n_best=number)

    together = found(range(12))
    assert scores_of(together) != scores_of(expected[:12])
    for prefix, ranked in zip(prefixes or [""] * 12, together, strict=True):
        assert all(one.startswith(prefix) for one in ranked if one.num_tokens)
    for one in (one for ranked in together for one in ranked if one.num_tokens):
        assert decoding.min_length <= one.num_tokens <= (decoding.max_length or 999)
        penalty = float(length_penalty(one.num_tokens, decoding.alpha))
        assert one.score == pytest.approx(one.log_prob / penalty)
    order = np.random.default_rng(1).permutation(12)
    assert_same(found(order), [together[row] for row in order])
    for row in range(0, 12, 2):
        assert_same(found([row]), [together[row]])


def test_a_search_with_a_prefix_scores_as_forced_decoding_does(translator, trained_run):
    source, prefix = (
        translator.codec.encode(tf.constant(trained_run.lines(name)), target=target)[0]
        for name, target in (("dev.en", False), ("dev.de", True))
    )
    source, prefix = source.to_tensor(), prefix[:, :3].to_tensor()
    search = tf.function(translator.engine.search_ids, autograph=False)
    found = search(source, SearchPlan(DECODING, 4), prefix=prefix)
    for beam in range(4):
        assert tf.reduce_all(found.tokens[:, beam, :3] == prefix)
        forced = translator.engine.score_ids(source, found.tokens[:, beam])["log_prob"]
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


def test_a_translator_takes_its_tokenizers_path_and_names_its_parts(translator):
    path = translator.tokenizer.path
    other = Translator(translator.model, str(path), DECODING)
    assert other.tokenizer.model_bytes == translator.tokenizer.model_bytes
    weights, size = translator.model.count_params(), translator.tokenizer.vocab_size
    engine = f"GraphEngine(Transformer, {weights:,} weights, {size:,} subwords)"
    assert repr(other) == f"<Translator: {engine}, beam_size=4, alpha=0.6>"
    with pytest.raises(UserError, match="missing.model"):
        Translator(translator.model, path.with_name("missing.model"))


def test_each_text_needs_a_prefix(translator):
    with pytest.raises(ValueError, match="`texts` and `prefix` must have .* Received: 2 and 1"):
        translator.translate(["a", "b"], prefix=["c"])


def test_samples_depend_on_seed_and_sentence_only(translator, texts):
    sampling = {"seed": 2**32 - 1, "temperature": 0.7, "top_k": 20, "top_p": 0.9}
    texts, sampling = texts[:10], sampling | {"sample": True, "n_best": 4}
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


@pytest.mark.parametrize("options", [{"n_best": 4}, {"n_best": 8, "sample": True}], ids=str)
def test_a_score_is_that_of_the_tokens_that_the_search_returned(texts, translator, options):
    """An untrained model spells words as the tokenizer never does."""
    vocab_size, tokenizer = translator.tokenizer.vocab_size, translator.tokenizer
    untrained = Translator(small_model(vocab_size), tokenizer, DECODING)
    ranked = untrained.translate(texts, word_probs=True, **options)
    found = [one for each in ranked for one in each if one.num_tokens]
    sources = [text for text, each in zip(texts, ranked, strict=True) for _ in each]
    sources = [text for text in sources if text.strip()]
    spelt = [[*ids, EOS_ID] for ids in tokenizer.ids(found, "target")]
    assert [*map(list, (one.tokens for one in found))] != spelt
    for scored in (untrained.score(sources, found), copy.deepcopy(found)):
        assert [one.tokens for one in scored] == [one.tokens for one in found]
        log_probs = [one.log_prob for one in scored]
        np.testing.assert_allclose(log_probs, [one.log_prob for one in found], atol=1e-3)
    shown = untrained.attention(sources[0], found[0])
    assert shown.target == untrained.codec.pieces(np.array(found[0].tokens), "target")
    other = Translator(small_model(vocab_size, d_ff=32), tokenizer, DECODING)
    foreign = Translation(str(found[0]), 0.0, 0.0, 3, tokens=(vocab_size + 5, EOS_ID))
    assert other.score(sources[0], foreign).tokens == tuple(spelt[0])
    plain = untrained.score(sources, [*map(str, found)])
    assert [one.tokens for one in plain] == [*map(tuple, spelt)]


def test_words_that_an_export_spells_otherwise_are_counted(texts, translator, tmp_path, caplog):
    """It gives no tokens, and its signature `score` takes text."""
    tokenizer = translator.tokenizer
    untrained = Translator(small_model(tokenizer.vocab_size), tokenizer, DECODING)
    names = ("serving_default", "with_options", "score")
    exported = load_exported_translator(quick_export(untrained, tmp_path / "x", *names))
    found = untrained.translate(texts[5:15])
    plain = untrained.score(texts[5:15], [*map(str, found)])
    pairs = zip(found, plain, strict=True)
    other = sum(one.log_prob != pytest.approx(same.log_prob, abs=0.05) for one, same in pairs)
    exported.translate(texts[5:15], word_probs=True)
    (message,) = [one for one in caplog.messages if "other pieces" in one]
    assert other and f": {other} translations" in message


def test_another_seed_compiles_nothing(translator, texts, monkeypatch):
    other = with_settings(translator)
    traces = traces_of(monkeypatch, other.engine, "search_ids")
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
    texts = trained_run.lines("dev.en")[:6]
    ids = translator.codec.encode(tf.constant(texts))[0].to_tensor()
    alphas = tf.constant([0.0, 0.6, 2.0, 0.0, 1.0, 0.6])
    limits = tf.constant([100, 100, 9, 100, 100, 0])
    plan = SearchPlan(DECODING, 4)
    found = translator.engine.search_ids(ids, plan, alpha=alphas, max_lengths=limits)
    lengths = found.lengths.numpy()
    assert np.all(lengths[:, 0] > 0)
    assert np.all(lengths <= limits.numpy().clip(1)[:, np.newaxis])
    penalties = ((5 + lengths[:, 0]) / 6) ** alphas.numpy()
    np.testing.assert_allclose(
        found.scores[:, 0], found.log_probs[:, 0].numpy() / penalties, rtol=1e-5
    )
    plain = [one.score for one in translator.translate(texts[1], n_best=4)]
    np.testing.assert_allclose(found.scores[1], plain, rtol=1e-5)


HELLO = Translation("Hallo Welt.", -0.5, -1.25, 4)
TEXTS = {
    "Hallo Welt.": HELLO,
    "": Translation("", 0.0, 0.0, 0),
}


@pytest.mark.parametrize("text", TEXTS)
def test_it_is_used_as_the_text(text):
    found = TEXTS[text]
    assert isinstance(found, str) and found == text and hash(found) == hash(text)
    assert found in [text] and text in {found} and text[1:3] in found
    assert "\n".join([found, found]) == f"{found}\n{text}" and repr(found) == repr(text)
    assert f"{found:>30}|{found!s}" == f"{text:>30}|{text}"
    assert json.loads(json.dumps([found])) == [text]
    assert type(str(found)) is str
    assert tf.constant([found]).numpy().tolist() == [text.encode()]


def test_pandas_keeps_translations_as_texts(translator, texts):
    """Without pandas: numpy arrays and generators are lists of texts, tables are not."""
    expected = translator.translate(texts)
    for same in (tuple(texts), iter(texts), np.array(texts), np.array(texts, object)):
        assert translator.translate(same) == expected
    for wrong in (np.array([texts]), np.array("a"), dict.fromkeys(texts), {*texts}, b"a", [1]):
        with pytest.raises(
            TypeError, match="must be a string or a list of strings|must be a list of strings"
        ):
            translator.translate(wrong)
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"en": texts})
    table["de"] = translator.translate(table["en"])
    assert table["de"].tolist() == expected and (table["de"] == expected).all()
    assert table["de"].str.len().tolist() == [len(text) for text in expected]
    assert json.loads(table["de"].to_json(orient="values")) == expected
    assert pandas.read_csv(io.StringIO(table.to_csv()), keep_default_na=False).shape[1] == 3
    with pytest.raises(TypeError, match="a string or a list of strings"):
        translator.translate(table)


@pytest.mark.parametrize("text", TEXTS)
def test_copies_keep_text_and_figures(text):
    found = TEXTS[text]
    for other in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert other == found and type(other) is type(found) and vars(other) == vars(found)


@pytest.mark.parametrize(
    ("source", "target", "log_prob", "reasons"),
    [
        ("word " * 20, "Wort " * 20, -1.4, []),
        ("word " * 20, "Wort " * 10, -0.1, ["too short"]),
        ("word " * 20, "Wort " * 50, -0.1, ["too long"]),
        ("word " * 20, "\u4f60" * 30, -0.1, []),  # a letter of Chinese counts as three
        ("word " * 20, "word " * 20, -1.6, ["copied", "improbable"]),
        ("Frankfurt am Main", "Frankfurt am Main", -0.1, []),
        ("A dog.", "Ein Hund.", -1.6, ["improbable"]),
        ("A dog.", " \0", -0.1, ["blank"]),
        (
            "Order 4711 {x}",
            "4711 4711 @x",
            0.0,
            ["placeholder missing", "number doubled", "@name new"],
        ),
        ("", "", 0.0, []),
    ],
)
def test_translations_that_look_wrong(source, target, log_prob, reasons):
    found = Translation(target, 0.0, 10 * log_prob, 10)
    assert looks_wrong(source, found) == (*reasons,)
    assert looks_wrong(source, found, True) == (LONG, *reasons)


def test_an_untrained_model_has_blank_translations_that_look_wrong(translator, texts):
    """A piece before the end may be no more than a space."""
    model = small_model(translator.tokenizer.vocab_size, output_bias=True)
    bias = np.zeros(model.vocab_size)
    bias[translator.tokenizer.vocabulary("target").index("▁")] = 20
    bias[EOS_ID] = 10
    model.projection.output_bias.assign(bias)
    blank = Translator(model, translator.tokenizer, DECODING)
    for text, found in zip(texts, blank.translate(texts, max_length=2), strict=True):
        assert found == "" and ("blank" in found.warnings) is bool(text.strip())


def test_a_context_for_a_model_of_single_sentences_is_remarked(translator, caplog):
    translator.translate_text("42\n", context=2)
    assert "without data.join" in caplog.text


def test_translate_text_translates_all_sentences_of_all_documents(translator, texts):
    first, second = texts[2], texts[3]
    found = [str(one) for one in translator.translate([first, second])]
    document = f"- {first}\n\n  {second} \r\n"
    expected = f"- {found[0]}\n\n  {found[1]} \r\n"
    whole = translator.translate_text(document)
    assert whole == expected and pickle.loads(pickle.dumps(whole)).sentences == whole.sentences
    assert [(source, str(one)) for source, one in whole.sentences] == [
        (first, found[0]), (second, found[1])
    ]  # fmt: skip
    assert translator.translate_text([document, "42\n"]) == [expected, "42\n"]
    with pytest.raises(UserError, match="`context` must be"):
        translator.translate_text(document, context=0)


def test_a_model_is_used_only_in_its_process(translator, exported):
    """TensorFlow would wait forever in a fork, and its objects cannot be pickled."""
    for one in (translator, load(exported)):
        for copied in (pickle.dumps, copy.deepcopy):
            with pytest.raises(UserError, match="cannot be pickled or copied: load"):
                copied(one)
    calls = [
        lambda: translator.translate("A dog."), lambda: translator.score("A dog.", "Ein Hund."),
        lambda: load(exported),
    ]  # fmt: skip
    reading, writing = os.pipe()
    if not (child := os.fork()):
        signal.alarm(60)
        for each in calls:
            try:
                each()
            except UserError as error:
                os.write(writing, f"{error}\n".encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as found:
        lines = found.read().splitlines()
    assert os.waitpid(child, 0)[1] == 0 and len(lines) == 3
    assert all(line.endswith("load only after the fork.") for line in lines)


@pytest.mark.parametrize(
    ("method", "others"),
    [(Translator.translate, get_type_hints(SearchOptions)), (Translator.translate_text, {})],
)
def test_editors_know_every_argument_of_a_method(method, others):
    taken = {*inspect.signature(method).parameters, *others}
    for overload in get_overloads(method):
        named = inspect.signature(overload).parameters
        assert named["options"].annotation == Unpack[TranslationOptions]
        assert taken == {*named, *(get_type_hints(TranslationOptions) if others else ())}
