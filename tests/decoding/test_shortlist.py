"""Search restricted to a shortlist: its results, alone and in a batch, and its file."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from test_ensemble import SOURCE, VOCAB_SIZE, random_model
from test_ensemble import found_by as found_without
from trained import assert_same, with_settings

from tf_transformer.config import EOS_ID, PAD_ID, SamplingConfig
from tf_transformer.decoding.beam_search import beam_search
from tf_transformer.decoding.candidates import least_tokens
from tf_transformer.decoding.ensemble import Ensemble
from tf_transformer.decoding.shortlist import Shortlist, restricted
from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.errors import UserError
from tf_transformer.models.transformer import Transformer

PREFIX = np.array([[17, 4], [0, 0], [18, 0]], "int32")


def whole(vocab_size: int) -> Shortlist:
    """A shortlist of all tokens."""
    return Shortlist(np.zeros((vocab_size, 1)), np.arange(vocab_size))


def random_shortlist(vocab_size: int, translations: int = 2, frequent: int = 3) -> Shortlist:
    rng = np.random.default_rng(0)
    table = rng.integers(4, vocab_size, (vocab_size, translations))
    table[PAD_ID] = PAD_ID
    return Shortlist(table, rng.integers(4, vocab_size, frequent))


def found_by(model, shortlist, rows=slice(None), prefix=None, **options):
    """[tokens, lengths, log_probs, scores] of these rows of `SOURCE`."""
    source = tf.constant(SOURCE[rows])
    prefix = None if prefix is None else prefix[rows]
    choice = shortlist.choose(source, prefix, least_tokens(4))
    among = restricted(model, choice)
    found = beam_search(
        among.step_function(),
        among.initial_cache(source),
        tf.constant([12, 7, 9])[rows],
        beam_size=4,
        num_hypotheses=3,
        prefix=None if prefix is None else tf.gather(choice.indices, prefix),
        **{name: value[rows] for name, value in options.items()},
    )
    return [tf.gather(choice.ids, found.tokens).numpy(), *(one.numpy() for one in found[1:])]


MODELS = {
    "tied": lambda: random_model(1),
    "untied, biased": lambda: random_model(1, tie_embeddings=False, output_bias=True),
    "bfloat16": lambda: random_model(1, dtype="bfloat16"),
    "ensemble": lambda: Ensemble([random_model(1), random_model(2, d_model=24)]),
}
OPTIONS = {"min_lengths": np.array([3, 5, 1], "int32"), "alpha": np.float32([0.0, 0.6, 2.0])}


@functools.cache
def made(name: str) -> Transformer | Ensemble:
    return MODELS[name]()


@pytest.mark.parametrize(
    ("options", "prefix"), [({}, None), (OPTIONS, PREFIX)], ids=["free", "options and prefix"]
)
@pytest.mark.parametrize("name", MODELS)
def test_the_whole_vocabulary_changes_nothing(name, options, prefix):
    model = made(name)
    expected = found_without(model, **options, prefix=prefix)
    found = found_by(model, whole(VOCAB_SIZE), **options, prefix=prefix)
    for actual, desired in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, desired, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "prefix"), [("tied", None), *((name, PREFIX) for name in MODELS)]
)
def test_a_sentence_keeps_to_its_shortlist_and_to_its_result_in_any_batch(name, prefix):
    model, shortlist = made(name), random_shortlist(VOCAB_SIZE)
    together = found_by(model, shortlist, prefix=prefix)
    members = shortlist.members(SOURCE, prefix).numpy()
    assert not members.all(axis=1).any()
    tolerance = 0.05 if name == "bfloat16" else 1e-4
    for row in range(3):
        alone = found_by(model, shortlist, slice(row, row + 1), prefix=prefix)
        length = alone[0].shape[-1]
        np.testing.assert_array_equal(together[0][row, :, :length], alone[0][0])
        np.testing.assert_allclose(together[2][row], alone[2][0], atol=tolerance)
        assert members[row][together[0][row]].all()
        if prefix is not None:
            begun = prefix[row][prefix[row] != PAD_ID]
            np.testing.assert_array_equal(together[0][row][:, : len(begun)], [begun] * 3)


def test_log_probabilities_are_those_of_the_model_over_the_shortlist():
    model, shortlist = made("tied"), random_shortlist(VOCAB_SIZE)
    tokens, _, log_probs, _ = found_by(model, shortlist)
    target = np.pad(tokens[:, 0, :-1], ((0, 0), (1, 0)), constant_values=2)
    logits = model({"source": SOURCE, "target": target})
    members = shortlist.members(SOURCE)[:, tf.newaxis]
    own = tf.nn.log_softmax(tf.where(members, logits, -np.inf)).numpy()
    chosen = np.take_along_axis(own, tokens[:, 0, :, np.newaxis], axis=-1)[..., 0]
    expected = np.where(tokens[:, 0] == PAD_ID, 0.0, chosen).sum(axis=1)
    np.testing.assert_allclose(log_probs[:, 0], expected, atol=1e-4)


def test_members_are_special_and_frequent_tokens_translations_source_and_prefix():
    table = np.zeros((VOCAB_SIZE, 2), "int32")
    table[5], table[3], table[9] = (12, 13), (0, 14), (15, 15)
    shortlist = Shortlist(table, np.array([7]))
    source = np.array([[5, 3, 0], [9, 10, 3]], "int32")
    rows = shortlist.members(source, np.array([[18], [0]], "int32")).numpy()
    assert np.flatnonzero(rows[0]).tolist() == [0, 1, 2, 3, 5, 7, 12, 13, 14, 18]
    assert np.flatnonzero(rows[1]).tolist() == [0, 1, 2, 3, 7, 9, 10, 14, 15]
    choice = shortlist.choose(source, least=20)
    ids = choice.ids.numpy()
    assert ids.tolist() == [0, 1, 2, 3, 5, 7, 9, 10, 12, 13, 14, 15, *[PAD_ID] * 8]
    assert not choice.allowed.numpy()[:, 12:].any()
    for token in ids[:12]:
        assert ids[choice.indices.numpy()[token]] == token
    assert choice.indices.numpy()[19] == 1  # UNK, as it is in no shortlist


def test_a_sentence_can_always_end():
    shortlist = Shortlist(np.zeros((VOCAB_SIZE, 1)), np.zeros(0))
    assert shortlist.members(SOURCE).numpy()[:, EOS_ID].all()
    tokens, lengths, _, _ = found_by(made("tied"), shortlist)
    for row, length in zip(tokens[:, 0], lengths[:, 0], strict=True):
        assert row[length - 1] == EOS_ID


# --- Through a translator ----------------------------------------------------------------


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_shortlist_of_the_whole_vocabulary_changes_no_translation(
    translator, texts, beam_size
):
    settings = {"beam_size": beam_size, "no_repeat_ngram": 3}
    plain = with_settings(translator, **settings)
    listed = with_settings(translator, shortlist=whole(plain.model.vocab_size), **settings)
    assert_same(listed.translate(texts), plain.translate(texts))


@pytest.fixture
def listed(translator) -> BatchTranslator:
    return with_settings(
        translator, 4, shortlist=random_shortlist(translator.model.vocab_size, 5, 50)
    )


def test_a_text_is_translated_alone_as_in_a_batch(translator, listed, texts):
    together = listed.translate(texts)
    assert together != translator.translate(texts)
    for row in range(0, len(texts), 4):
        assert_same(listed.translate([texts[row]]), [together[row]])


def test_a_prefix_outside_the_shortlist_is_followed(listed, texts):
    texts = [text for text in texts if text.strip()][:6]
    found = listed.translate(texts, prefixes=["Zebra Üxküll"] * len(texts))
    assert all(hypotheses[0].text.startswith("Zebra Üxküll") for hypotheses in found)


def test_sampling_and_grammars_are_refused(listed):
    class AnyGrammar:
        def context(self, sentences):
            return np.ones((len(sentences), 1, 1), bool)

    for options in ({"sampling": SamplingConfig()}, {"grammar": AnyGrammar()}):
        with pytest.raises(ValueError, match="the whole vocabulary. Received: a shortlist"):
            listed.translate(["Hello."], **options)


def test_a_shortlist_of_another_vocabulary_is_refused(translator):
    with pytest.raises(
        ValueError, match="`shortlist` must have .* Received: shortlist 7, model"
    ):
        with_settings(translator, shortlist=whole(7))


# --- The file ----------------------------------------------------------------------------


def test_a_file_is_read_as_it_was_written(tmp_path):
    file = tmp_path / "shortlist.npz"
    shortlist = random_shortlist(VOCAB_SIZE)
    shortlist.write(file)
    read = Shortlist.read(file, VOCAB_SIZE)
    np.testing.assert_array_equal(read.table, shortlist.table)
    np.testing.assert_array_equal(read.frequent, shortlist.frequent)
    assert [path.name for path in tmp_path.iterdir()] == ["shortlist.npz"]
    with pytest.raises(UserError, match="vocabulary of 21 tokens. Received: one for 20 tokens"):
        Shortlist.read(file, 21)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:60] + bytes([content[60] ^ 255]) + content[61:],
        lambda content: b"no archive at all",
    ],
)
def test_a_damaged_file_is_refused(tmp_path, damage):
    file = tmp_path / "shortlist.npz"
    random_shortlist(VOCAB_SIZE).write(file)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(
        UserError, match="is damaged .* Make it again: tf-transformer shortlist"
    ):
        Shortlist.read(file, VOCAB_SIZE)


@pytest.mark.parametrize(
    ("table", "frequent"),
    [
        (np.full((20, 2), 20), [4]),
        (np.zeros((20, 2)), [-1]),
        (np.ones((20, 2)), [4]),
        (np.zeros(20), [4]),
    ],
)
def test_a_file_of_invalid_arrays_is_refused(tmp_path, table, frequent):
    file = tmp_path / "shortlist.npz"
    np.savez(file, table=table, frequent=frequent)
    with pytest.raises(UserError, match="is damaged"):
        Shortlist.read(file, VOCAB_SIZE)


def test_a_missing_file_says_how_to_make_it(tmp_path):
    with pytest.raises(UserError, match="Make it first: tf-transformer shortlist"):
        Shortlist.read(tmp_path / "shortlist.npz", VOCAB_SIZE)
