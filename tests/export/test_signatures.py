"""The signatures give the same answers as the Python translator, whatever the request."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers import snippets
from test_publishing import graph_nodes
from test_warm_up import records

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from tf_transformer.export.card import CARD
from tf_transformer.export.publishing import TOKENIZER
from tf_transformer.export.saved_model import ExportEngine
from tf_transformer.export.signatures import in_groups, source_ids

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


def options(texts, alpha=-1.0, max_length=-1, prefix="") -> dict[str, np.ndarray]:
    values = {"alpha": alpha, "max_length": max_length, "prefix": prefix}
    columns = {
        name: np.array(value if isinstance(value, list) else [value] * len(texts))
        for name, value in values.items()
    }
    return {"text": strings(texts)} | columns


@pytest.fixture(scope="module")
def texts(trained_run) -> list[str]:
    return [*AWKWARD, *trained_run.lines("train.en")[:20]]


# --- serving_default and nbest -----------------------------------------------------------


def test_the_saved_model_translates_as_python_does(translator, session, texts):
    expected = [(found, found.score) for found in translator.translate(texts)]
    assert_same(served(session, texts), expected)
    assert len({text for text, _ in expected}) > 15


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


def test_a_megabyte_of_text_is_cut_and_reported(session):
    text = strings(["word " * 200_000, "short"])
    answer = session.run("serving_default", {"text": text})
    assert answer["source_cut"].tolist() == [True, False]
    assert_same(served(session, ["short"]), [served(session, [*text])[1]])


# --- with_options and score --------------------------------------------------------------


def test_without_options_the_answer_is_that_of_nbest(session, texts):
    answer = session.run("with_options", options(texts, alpha=float("nan"), max_length=0))
    expected = session.run("nbest", {"text": strings(texts)})["scores"]
    assert answer["scores"] == pytest.approx(expected, abs=1e-4)


def test_each_text_has_its_own_alpha(translator, session, trained_run):
    lines = trained_run.lines("train.en")[:2]
    alphas = [2.0, 0.6]
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


@pytest.mark.parametrize("alpha", [float("inf"), float("-inf"), 1e38, 1000.0])
def test_an_extreme_alpha_counts_as_10_and_changes_no_other_row(session, trained_run, alpha):
    lines = trained_run.lines("train.en")[:2]
    answer = session.run("with_options", options(lines, alpha=[alpha, 0.6]))
    counted = 10.0 if alpha > 0 else 0.6
    expected = session.run("with_options", options(lines, alpha=[counted, 0.6]))
    np.testing.assert_allclose(answer["scores"], expected["scores"], rtol=1e-4)
    assert answer["translations"][1][0] == expected["translations"][1][0]
    less = session.run("with_options", options(lines, alpha=9.5))
    assert not np.allclose(less["scores"][0], expected["scores"][0], rtol=1e-2, atol=0)


def test_a_long_prefix_is_cut_and_reported(session):
    prefixes = ["wort " * 5_000, "x"]
    for limit in (-1, 5):
        inputs = options(["a", "b"], max_length=limit, prefix=prefixes)
        answer = session.run("with_options", inputs)
        assert answer["prefix_cut"].tolist() == [True, False]
        assert prefixes[0].encode().startswith(answer["translations"][0][0])
        alone = session.run("with_options", {k: v[1:] for k, v in inputs.items()})
        assert answer["translations"][1][0] == alone["translations"][0][0]


def test_a_source_without_its_target_is_refused(session):
    with pytest.raises(tf.errors.InvalidArgumentError, match="equal lengths"):
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
        heads = seen.cross[0]  # the model's only layer
        for name, expected in (("heads", heads), ("attention", heads.mean(axis=0))):
            weights = answer[name][row]
            np.testing.assert_allclose(weights[..., :t, :s], expected, atol=1e-5)
            assert not weights[..., t:, :].any() and not weights[..., s:].any()
        nearest = expected[:-1, :-1].argmax(axis=1)  # not the end
        assert answer["alignment"][row, : t - 1].tolist() == nearest.tolist()
        assert set(answer["alignment"][row, t - 1 :]) == {-1}
    assert same >= 2


def test_blank_text_attends_to_nothing(session):
    answer = session.run("attention", {"text": strings(["", "a"])})
    for name in ("translation", "target_pieces", "attention", "heads"):
        assert not np.any(answer[name][0])
    assert set(answer["alignment"][0]) == {-1}


# --- Rows computed in groups -------------------------------------------------------------

IDS = tf.TensorSpec([None, None], tf.int32)
POSITIONS = 12


def padded(lengths: list[int]) -> np.ndarray:
    """Row r holds 10 r + 1, 10 r + 2 ..."""
    width = max(lengths, default=0)
    rows = [
        [10 * row + 1 + column if column < length else 0 for column in range(width)]
        for row, length in enumerate(lengths)
    ]
    return np.array(rows, "int32").reshape(len(lengths), width)


class Recorder:
    """A function of matrices of ids that records their shapes."""

    def __init__(self) -> None:
        self.shapes: list[list[tuple[int, int]]] = []

    def __call__(self, *ids: tf.Tensor) -> dict[str, tf.Tensor]:
        zero = tf.ensure_shape(tf.numpy_function(self._record, ids, tf.int32), [])
        both = tf.stack([ids[0], 2 * ids[0]], axis=1)  # [B, 2, width]
        return {"both": both + zero, "sum": sum(tf.reduce_sum(one, axis=1) for one in ids)}

    def _record(self, *ids: np.ndarray) -> np.int32:
        self.shapes.append([matrix.shape for matrix in ids])
        return np.int32(0)


CASES = [
    [],
    [1],
    [0, 0],
    [3, 0, 20, 1, 4, 4],
    [1] * 30,
    *([*order] for order in itertools.permutations([1, 5, 6, 13])),
]


@pytest.mark.parametrize("lengths", CASES, ids=str)
def test_groups_give_the_same_results_as_all_rows_at_once(lengths):
    ids, recorder = padded(lengths), Recorder()
    found = in_groups(recorder, [IDS], POSITIONS)(ids)
    assert found["both"].shape == (len(lengths), 2, ids.shape[1])
    np.testing.assert_array_equal(found["both"], np.stack([ids, 2 * ids], axis=1))
    np.testing.assert_array_equal(found["sum"], ids.sum(axis=1))
    shapes = [shape for (shape,) in recorder.shapes]
    assert all(rows == 1 or rows * width <= POSITIONS for rows, width in shapes)
    # As few groups, and as narrow, as that allows.
    assert sum(rows for rows, _ in shapes) == len(lengths)
    for (rows, width), (_, narrower) in itertools.pairwise(shapes):
        assert narrower <= width
        assert (rows + 1) * max(width, 1) > POSITIONS


def test_the_widest_matrix_sets_the_groups_and_each_is_cut_to_its_own_width():
    recorder, one, other = Recorder(), padded([2, 3, 1, 1]), padded([1, 1, 9, 2])
    found = in_groups(recorder, [IDS, IDS], POSITIONS)(one, other)
    assert found["sum"].numpy().tolist() == (one.sum(axis=1) + other.sum(axis=1)).tolist()
    assert recorder.shapes == [[(1, 1), (1, 9)], [(3, 3), (3, 2)]]


def test_padding_inside_a_row_does_not_end_it():
    ids = np.array([[5, 0, 6, 0], [7, 0, 0, 0]], "int32")
    found = in_groups(lambda ids: 2 * ids, [IDS], 1)(ids)
    np.testing.assert_array_equal(found, 2 * ids[:, :3])


# --- Ids in, ids out ---------------------------------------------------------------------


def test_ids_give_the_same_translation_as_their_text(translator, session, trained_run):
    lines = ["", *trained_run.lines("train.en")[:5]]
    answer = session.run("tokens", {"tokens": source_ids(translator.codec, lines)})
    texts = translator.tokenizer.detokenize(tf.constant(answer["tokens"])).numpy()
    expected = session.run("serving_default", {"text": np.array(lines, object)})
    assert texts.tolist() == expected["translation"].tolist()
    assert answer["score"] == pytest.approx(expected["score"], abs=1e-4)
    assert answer["tokens"].shape[1] == answer["num_tokens"].max()
    for ids, size in zip(answer["tokens"], answer["num_tokens"], strict=True):
        assert ids[size - 1] == EOS_ID
        assert set(ids[size:]) <= {PAD_ID}


def test_ids_after_the_end_of_a_row_are_ignored(translator, session, trained_run):
    ids = source_ids(translator.codec, trained_run.lines("train.en")[:1])
    expected = session.run("tokens", {"tokens": ids})["tokens"].tolist()
    for filling in (PAD_ID, EOS_ID, int(ids[0, 0]), -1, 10**9):
        wide = np.pad(ids, [(0, 0), (0, 7)], constant_values=filling)
        assert session.run("tokens", {"tokens": wide})["tokens"].tolist() == expected
    assert session.run("tokens", {"tokens": ids[:, :-1]})["tokens"].tolist() == expected


def test_ids_outside_the_vocabulary_are_unknown_words(session):
    rows = [[7, -1, EOS_ID], [7, 10**9, EOS_ID], [7, UNK_ID, EOS_ID], [7, BOS_ID, EOS_ID]]
    tokens = session.run("tokens", {"tokens": np.array(rows, "int32")})["tokens"].tolist()
    assert tokens[0] == tokens[1] == tokens[2]


# --- An export without text --------------------------------------------------------------


@pytest.fixture(scope="module")
def ids_session(text_free):
    with ExportEngine(text_free) as loaded:
        yield loaded


(TRANSLATE,) = snippets("docs/guides/exporting.md")


@pytest.fixture(scope="module")
def folder(text_free, tmp_path_factory) -> Path:
    """A working directory in which the export has the same path as in the guide."""
    path = tmp_path_factory.mktemp("guide")
    (path / "exported" / "ids").mkdir(parents=True)
    (path / "exported" / "ids" / "1").symlink_to(text_free)
    return path


def test_an_export_without_text_needs_only_tensorflow_and_sentencepiece(
    folder, translator, trained_run
):
    texts = trained_run.lines("train.en")[:5]
    program = TRANSLATE.replace('["The dog.", "A cat."]', repr(texts))
    program += "import sys; assert not {'tensorflow_text', 'tf_transformer'} & set(sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "custom gradient" not in done.stderr  # TensorFlow's warning about a SavedModel
    assert done.stdout.splitlines() == translator.translate(texts)


def test_an_export_without_text_has_no_text_operations_but_a_tokenizer_beside_it(
    text_free, ids_session, translator
):
    assert set(ids_session.signatures) == {"tokens"}
    operations = {node.op for node in graph_nodes(text_free)}
    assert "While" in operations  # so these are the nodes that do the work
    assert not [op for op in operations if "Sentencepiece" in op or "Ragged" in op]
    warm_up = records(text_free)
    assert len(warm_up) == 2 and all(b"text" not in record for record in warm_up)
    assert (text_free / TOKENIZER).read_bytes() == translator.tokenizer.model_bytes
    vocabulary = json.loads((text_free / CARD).read_text("utf-8"))["vocabulary"]
    assert vocabulary["size"] == translator.model.vocab_size
    assert vocabulary["ids"] == {"pad": PAD_ID, "unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID}
