"""The signatures give the same answers as the Python translator, whatever the request."""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.config import EOS_ID
from tf_transformer.export.session import BadRequestError

AWKWARD = [
    "",
    " \t ",
    "\n\r",
    ".",
    "</s>",
    "<s> The dog. </s> The cat. <pad> <unk>",
    "UPPER lower 3.50 €",
    "中文 🙂 👩‍👧 Ωμέγα",
    "zero\x00byte and line\u2028separator",
    "\u202eright to left\u202c ﬁ ①",
    "\x01\x02\x1b[31m control",
    "word " * 80,
    "x" * 300,
]
BAD = [b"\xff\xfe not UTF-8 \xc3", "", "x" * 2_000, "</s>", "\x00"]


def strings(texts: list[str | bytes]) -> np.ndarray:
    return np.array(texts, object)


def served(session, texts: list[str | bytes]) -> list[tuple[str, float]]:
    answer = session.run("serving_default", {"text": strings(texts)})
    translations = [text.decode() for text in answer["translation"]]
    return list(zip(translations, answer["score"].tolist(), strict=True))


def assert_same(found: list[tuple[str, float]], expected: list[tuple[str, float]]) -> None:
    assert [text for text, _ in found] == [text for text, _ in expected]
    assert [score for _, score in found] == pytest.approx([s for _, s in expected], abs=1e-4)


@pytest.fixture(scope="module")
def texts(trained_run) -> list[str]:
    return [*AWKWARD, *trained_run.lines("train.en")[:20]]


@pytest.fixture(scope="module")
def in_python(exported):
    model = tf.saved_model.load(str(exported))  # holds the variables
    yield model.signatures["serving_default"]


# --- serving_default ---------------------------------------------------------------------


def test_the_saved_model_translates_as_python_does(translator, session, texts):
    expected = [(found, found.score) for found in translator.translate(texts)]
    assert_same(served(session, texts), expected)
    assert len({text for text, _ in expected}) > 15


def test_the_python_loader_gives_the_same_answers(session, in_python, texts):
    answer = in_python(text=tf.constant(texts))
    translations = [text.decode() for text in answer["translation"].numpy()]
    pairs = list(zip(translations, answer["score"].numpy().tolist(), strict=True))
    assert_same(served(session, texts), pairs)


def test_awkward_texts_do_not_change_other_translations(session, trained_run):
    good = trained_run.lines("train.en")[: len(BAD)]
    mixed = [text for pair in zip(good, BAD, strict=True) for text in pair]
    assert_same(served(session, mixed)[::2], served(session, good))


@pytest.mark.parametrize("size", [0, 1, 3])
def test_an_answer_has_a_row_for_each_text(session, size):
    texts = ["one", "", "three"][:size]
    text, ids = strings(texts), np.full((size, 2), EOS_ID, "int32")
    inputs = {
        "with_options": options(texts, alpha=0.0, max_length=0, prefix=texts),
        "serving_default": {"text": text},
        "nbest": {"text": text},
        "tokens": {"tokens": ids},
        "score": {"source": text, "target": text},
        "attention": {"text": text},
    }
    assert set(inputs) == set(session.signatures)
    for signature, columns in inputs.items():
        for name, values in session.run(signature, columns).items():
            assert len(values) == size, (signature, name)


def test_blank_text_is_not_translated(session):
    assert served(session, ["", "  ", "\t\n"]) == [("", 0.0)] * 3


def test_a_megabyte_of_text_is_cut_and_reported(session):
    text = strings(["word " * 200_000, "short"])
    answer = session.run("serving_default", {"text": text})
    assert answer["source_cut"].tolist() == [True, False]
    assert_same(served(session, ["short"]), [served(session, [*text])[1]])


# --- nbest -------------------------------------------------------------------------------


def test_the_n_best_are_those_of_python(translator, session, texts):
    answer = session.run("nbest", {"text": strings(texts)})
    for row, found in enumerate(translator.translate(texts, n_best=4)):
        assert answer["translations"][row][0].decode() == found[0]
        blank = not texts[row].strip()
        count = 1 if blank else 4
        assert answer["count"][row] == count == len(found)
        assert answer["scores"][row][:count].tolist() == pytest.approx(
            [one.score for one in found], abs=1e-4
        )
        assert not answer["scores"][row][count:].any()


# --- with_options ------------------------------------------------------------------------


def options(texts, alpha=-1.0, max_length=-1, prefix="") -> dict[str, np.ndarray]:
    values = {"alpha": alpha, "max_length": max_length, "prefix": prefix}
    columns = {
        name: np.array(value if isinstance(value, list) else [value] * len(texts))
        for name, value in values.items()
    }
    return {"text": strings(texts)} | columns


def test_without_options_the_answer_is_that_of_nbest(session, texts):
    answer = session.run("with_options", options(texts, alpha=float("nan"), max_length=0))
    assert answer["scores"] == pytest.approx(
        session.run("nbest", {"text": strings(texts)})["scores"], abs=1e-4
    )


def test_each_text_has_its_own_alpha(translator, session, trained_run):
    lines = trained_run.lines("train.en")[:3]
    alphas = [0.0, 0.6, 2.0]
    answer = session.run("with_options", options(lines, alpha=alphas))
    for row, alpha in enumerate(alphas):
        found = translator.translate(lines[row], alpha=alpha)
        assert answer["translations"][row][0].decode() == found
        assert answer["scores"][row][0] == pytest.approx(found.score, abs=1e-4)


def test_each_text_has_its_own_prefix_and_limit(translator, session, trained_run):
    lines = [trained_run.lines("train.en")[0]] * 4
    inputs = options(lines, max_length=[-1, 3, 10**9, 1], prefix=["", "", "Zwei", "Zwei"])
    answer = session.run("with_options", inputs)
    sizes = [
        [len(ids) + 1 for ids in translator.tokenizer.tokenize(row).numpy()]
        for row in answer["translations"]
    ]
    assert max(sizes[1]) <= 3 < max(sizes[0])
    assert all(text.startswith(b"Zwei") for text in answer["translations"][2])
    assert not answer["translations"][0][0].startswith(b"Zwei")
    assert answer["translations"][3][0] == b""  # the limit overrides the prefix
    assert answer["prefix_cut"].tolist() == [False, False, False, True]
    assert answer["count"].tolist() == [4, 4, 4, 1]
    for row in range(4):
        alone = session.run("with_options", {k: v[row : row + 1] for k, v in inputs.items()})
        assert alone["translations"][0][0] == answer["translations"][row][0]
        assert alone["scores"][0] == pytest.approx(answer["scores"][row], abs=1e-4)


@pytest.mark.parametrize("alpha", [float("inf"), float("-inf"), 1e38, float("nan")])
def test_an_extreme_alpha_does_not_change_other_translations(session, trained_run, alpha):
    lines = trained_run.lines("train.en")[:2]
    answer = session.run("with_options", options(lines, alpha=[alpha, 0.6]))
    expected = session.run("with_options", options(lines[1:], alpha=0.6))
    assert np.isfinite(answer["scores"]).all()
    assert answer["translations"][1][0] == expected["translations"][0][0]


def test_alpha_is_at_most_10(session, trained_run):
    lines = trained_run.lines("train.en")[:2]
    most = session.run("with_options", options(lines, alpha=10.0))
    for alpha in (10.5, 1000.0):
        answer = session.run("with_options", options(lines, alpha=alpha))
        np.testing.assert_allclose(answer["scores"], most["scores"], rtol=1e-4)
    less = session.run("with_options", options(lines, alpha=9.5))
    assert not np.allclose(less["scores"], most["scores"], rtol=1e-2, atol=0)


def test_a_long_prefix_is_cut_and_reported(session):
    prefixes = ["wort " * 5_000, "x"]
    for limit in (-1, 5):
        inputs = options(["a", "b"], max_length=limit, prefix=prefixes)
        answer = session.run("with_options", inputs)
        assert answer["prefix_cut"].tolist() == [True, False]
        assert prefixes[0].encode().startswith(answer["translations"][0][0])
        alone = session.run("with_options", {k: v[1:] for k, v in inputs.items()})
        assert answer["translations"][1][0] == alone["translations"][0][0]


# --- score -------------------------------------------------------------------------------


def test_a_source_without_its_target_is_refused(session):
    with pytest.raises(BadRequestError, match="equal lengths"):
        session.run("score", {"source": strings(["a", "b"]), "target": strings(["a"])})


# --- attention ---------------------------------------------------------------------------


def test_attention_is_that_of_the_translation(translator, session, trained_run):
    lines = trained_run.lines("dev.en")[:4]
    answer = session.run("attention", {"text": strings(lines)})
    translations = [text.decode() for text in answer["translation"]]
    assert translations == translator.translate(lines)
    same = 0
    for row, seen in enumerate(translator.attention(lines, translations)):
        pieces = [piece.decode() for piece in answer["target_pieces"][row] if piece]
        if pieces != seen.target:  # the search may spell a text in other pieces
            continue
        same += 1
        s, t = len(seen.source), len(seen.target)
        assert [piece.decode() for piece in answer["source_pieces"][row][:s]] == seen.source
        assert not any(answer["source_pieces"][row][s:])
        heads = seen.cross[0]  # the model's only layer
        np.testing.assert_allclose(answer["heads"][row, :, :t, :s], heads, atol=1e-5)
        assert not answer["heads"][row, :, t:].any()
        assert not answer["heads"][row, ..., s:].any()
        expected = heads.mean(axis=0)
        np.testing.assert_allclose(answer["attention"][row, :t, :s], expected, atol=1e-5)
        assert not answer["attention"][row, t:].any()
        assert not answer["attention"][row, :, s:].any()
        nearest = expected[:-1, :-1].argmax(axis=1)  # not the end
        assert answer["alignment"][row, : t - 1].tolist() == nearest.tolist()
        assert set(answer["alignment"][row, t - 1 :]) == {-1}
    assert same >= 2


def test_blank_text_attends_to_nothing(session):
    answer = session.run("attention", {"text": strings(["", "a"])})
    assert answer["translation"][0] == b""
    assert not any(answer["target_pieces"][0])
    assert not answer["attention"][0].any()
    assert not answer["heads"][0].any()
    assert set(answer["alignment"][0]) == {-1}


# --- Malformed requests ------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["a scalar", [["rank", "two"]], [1, 2], tf.zeros([0, 1], tf.string)]
)
def test_anything_but_a_list_of_strings_is_refused(in_python, text):
    with pytest.raises((ValueError, TypeError, tf.errors.InvalidArgumentError)):
        in_python(text=tf.convert_to_tensor(text))
