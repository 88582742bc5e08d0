"""What a SavedModel must do before it is published: answer as its translator does in Python."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_transformer.config import EOS_ID, PAD_ID, DecodingConfig
from tf_transformer.decoding.alignment import nearest_pieces
from tf_transformer.decoding.hypotheses import Hypothesis, length_penalty
from tf_transformer.decoding.text_codec import IDS
from tf_transformer.decoding.translator import Translator
from tf_transformer.errors import UserError
from tf_transformer.serving.session import SavedModelSession
from tf_transformer.serving.warmup import Request

Text = str | bytes
Answer = dict[str, np.ndarray]
Value = str | int | bool | float | list | np.ndarray
Comparison = tuple[str, Text, Value, Any]  # what, of which text, expected, received

TEXTS: tuple[Text, ...] = (
    "A short sentence.",
    "",
    "   ",
    "\u00a0",
    "\u200b",
    "Two men, 3.50 euros and a tree: what a day!",
    "</s> <s> <pad> <unk>",
    "emoji 🙂 中文 \u0000 \u2028 é",
    b"\xff\xfe not UTF-8 \xc3",
    "word " * 60,
)


class Tolerance(NamedTuple):
    """How far numbers may be apart: scores by either of two bounds, attention by its own."""

    absolute: float
    relative: float
    attention: float


# Of a long text's log-probability, float32 rounds off more than 1e-4. Processors with bfloat16
# products fuse and round a graph otherwise than the same operations in Python: 1.4e-4 of a
# score was seen, a sum of many roundings. An attention weight is one bfloat16, whose neighbour
# is up to 0.004 away, and follows a product that may be off by one such step too.
FLOAT32 = Tolerance(absolute=1e-4, relative=1e-6, attention=1e-4)
BFLOAT16 = Tolerance(absolute=1e-3, relative=1e-3, attention=0.02)


def tolerance_of(translator: Translator) -> Tolerance:
    """Returns the tolerance for the precision that the translator computes in."""
    return FLOAT32 if translator.model.compute_dtype == "float32" else BFLOAT16


def requests(translator: Translator) -> list[Request]:
    """One request for each signature and set of outputs that a client commonly asks for."""
    text = np.array(TEXTS[:2], object)
    ids = source_ids(translator, TEXTS[:2])
    pairs = {"source": text, "target": text}
    options = {
        "text": text,
        "alpha": np.array([-1.0, 1.0], "float32"),
        "max_length": np.array([-1, 5], "int32"),
        "prefix": np.array(["", "A"], object),
    }
    return [
        Request("serving_default", {"text": text}),
        Request("serving_default", {"text": text}, ("translation",)),
        Request("nbest", {"text": text}),
        Request("nbest", {"text": text}, ("translations",)),
        Request("nbest", {"text": text}, ("translations", "scores")),
        Request("with_options", options),
        Request("with_options", options, ("translations",)),
        Request("tokens", {"tokens": ids}),
        Request("tokens", {"tokens": ids}, ("tokens",)),
        Request("attention", {"text": text}),
        Request("score", pairs),
        Request("score", pairs, ("log_prob",)),
    ]


def source_ids(translator: Translator, texts: Sequence[Text]) -> np.ndarray:
    """int32 [B, S] as the encoder reads them: EOS and then PAD at the end."""
    return translator.codec.encode(tf.constant(texts))[0].to_tensor(PAD_ID).numpy()


def self_test(session: SavedModelSession, translator: Translator, text: bool = True) -> None:
    """Raises UserError unless all outputs of all signatures are the translator's.

    Args:
        session: the exported model.
        translator: what it was exported from.
        text: whether the model takes text, or ids alone.
    """
    tolerance = tolerance_of(translator)
    for what, source, expected, received in comparisons(session, translator, text):
        if not agree(expected, received, tolerance):
            raise UserError(
                f"The exported model failed its self-test, {what} of {source!r}: expected "
                f"{expected!r}, received {received!r}. Nothing was published."
            )


def comparisons(
    session: SavedModelSession, translator: Translator, text: bool = True
) -> Iterator[Comparison]:
    """What the session answers beside what the translator says; arguments of `self_test`."""
    found = _searched(translator)
    yield from _tokens(session, found)
    if text:
        yield from _attention(session, translator, found)
        for check in (_best_and_all, _with_options, _score):
            yield from check(session, translator)


def agree(expected: Value, received: Any, tolerance: Tolerance = FLOAT32) -> bool:
    """Whether a value that was served is what is expected, or as near as rounding allows.

    What follows the end of a list is filling; around an array there may only be zeros.
    """
    if isinstance(expected, np.ndarray):
        missing = np.subtract(received.shape, expected.shape)
        if (missing < 0).any():
            return False
        expected = np.pad(expected, [(0, number) for number in missing])
        return np.allclose(received, expected, rtol=0, atol=tolerance.attention)
    if isinstance(expected, list):
        return expected == received[: len(expected)].tolist()
    if isinstance(expected, float):
        return math.isclose(
            expected, received, rel_tol=tolerance.relative, abs_tol=tolerance.absolute
        )
    return expected == (received.decode() if isinstance(received, bytes) else received)


def _compare(
    signature: str, texts: Sequence[Text], expected: dict[str, Sequence[Value]], answer: Answer
) -> Iterator[Comparison]:
    """Outputs, each with a value for each text."""
    for name, values in expected.items():
        for text, value, received in zip(texts, values, answer[name], strict=True):
            yield f"{signature}: {name}", text, value, received


def _best_and_all(session: SavedModelSession, translator: Translator) -> Iterator[Comparison]:
    """`serving_default` and `nbest`, of one search."""
    texts = _texts(translator)
    found = _with_all_hypotheses(translator, translator.decoding).translate(texts)
    best = [hypotheses[0] for hypotheses in found]
    expected = {
        "translation": [one.text for one in best],
        "score": [one.score for one in best],
        "source_cut": [False] * len(texts),
    }
    given = {"text": _strings(texts)}
    yield from _compare(
        "serving_default", texts, expected, session.run("serving_default", given)
    )
    answer = session.run("nbest", given)
    yield from _hypotheses("nbest", texts, found, answer, tolerance_of(translator))


def _with_options(session: SavedModelSession, translator: Translator) -> Iterator[Comparison]:
    texts, decoding = _texts(translator), translator.decoding
    texts = [text for text in texts if text.strip()]
    longest = max(12, decoding.min_length)
    given = dataclasses.replace(
        decoding,
        alpha=1.5,
        max_length=min(longest, decoding.max_length or longest),
    )
    prefixes = ["A"] * len(texts)
    answer = session.run(
        "with_options",
        {
            "text": _strings(texts),
            "alpha": np.full(len(texts), given.alpha, "float32"),
            "max_length": np.full(len(texts), given.max_length, "int32"),
            "prefix": _strings(prefixes),
        },
    )
    limited = _with_all_hypotheses(translator, given)
    found = limited.translate(texts, prefixes=prefixes)
    yield from _hypotheses("with_options", texts, found, answer, tolerance_of(translator))
    lengths = tf.cast(translator.codec.encode(tf.constant(texts))[0].row_lengths(), tf.int32)
    _, cut = limited.codec.encode_prefix(tf.constant(prefixes), lengths)
    yield from _compare("with_options", texts, {"prefix_cut": cut.numpy().tolist()}, answer)


def _hypotheses(
    signature: str,
    texts: Sequence[Text],
    found: list[list[Hypothesis]],
    answer: Answer,
    tolerance: Tolerance,
) -> Iterator[Comparison]:
    """All hypotheses of all texts, but for texts that are as good as the last that is kept:
    which of those is kept, rounding may decide."""
    counts = [sum(one.num_tokens > 0 for one in each) or 1 for each in found]
    expected = {"count": counts, "source_cut": [False] * len(texts)}
    yield from _compare(signature, texts, expected, answer)
    for row, text in enumerate(texts):
        for place, one in enumerate(found[row][: counts[row]]):
            score = answer["scores"][row][place]
            yield f"{signature}: scores", text, one.score, score
            if place and agree(one.score, found[row][-1].score, tolerance):
                continue
            tied = {e.text for e in found[row] if agree(e.score, one.score, tolerance)}
            received = answer["translations"][row][place].decode()
            value = received if received in tied else one.text
            yield f"{signature}: translations", text, value, received


class _Searched(NamedTuple):
    """The best translation of each text, as ids; a blank text is not translated."""

    texts: list[Text]
    source: np.ndarray  # int32 [B, S]
    target: np.ndarray  # int32 [B, T]
    sizes: list[int]  # of the targets; 0 for a blank text, whose target is EOS
    scores: list[float]


def _searched(translator: Translator) -> _Searched:
    texts = _texts(translator)
    ids = source_ids(translator, texts)
    real = ids[:, 0] != EOS_ID
    found = _compiled(translator.searcher.search, ids)
    sizes = np.where(real, found.lengths[:, 0], 0).tolist()
    target = np.where(real[:, None], found.tokens[:, 0, : max(sizes)], EOS_ID)
    scores = np.where(real, found.scores[:, 0], 0.0).tolist()
    return _Searched(texts, ids, target, sizes, scores)


def _tokens(session: SavedModelSession, found: _Searched) -> Iterator[Comparison]:
    sizes = [size or 1 for size in found.sizes]
    expected = {
        "tokens": [row[:size].tolist() for row, size in zip(found.target, sizes, strict=True)],
        "score": found.scores,
        "num_tokens": sizes,
        "source_cut": [False] * len(sizes),
    }
    answer = session.run("tokens", {"tokens": found.source})
    yield from _compare("tokens", found.texts, expected, answer)


def _attention(
    session: SavedModelSession, translator: Translator, found: _Searched
) -> Iterator[Comparison]:
    answer = session.run("attention", {"text": _strings(found.texts)})
    expected = _weights_and_pieces(translator, found.source, found.target, found.sizes)
    yield from _compare("attention", found.texts, expected, answer)


def _weights_and_pieces(
    translator: Translator, ids: np.ndarray, target: np.ndarray, sizes: list[int]
) -> dict[str, Sequence[Value]]:
    """The outputs of `attention` for ids [B, S] and [B, T], the latter of so many tokens."""
    cross = _compiled(translator.scorer.cross_weights, ids, target)  # [B, H, T, S]
    nearest = nearest_pieces(cross, ids).numpy()
    mean = tf.reduce_mean(cross, axis=1).numpy()  # [B, T, S]
    pieces = translator.tokenizer.pieces
    texts = translator.tokenizer.detokenize(tf.constant(target)).numpy()
    rows = list(enumerate(sizes))
    return {
        "translation": [texts[row].decode() if size else "" for row, size in rows],
        "source_pieces": [pieces(row[row != PAD_ID]).numpy().tolist() for row in ids],
        "target_pieces": [pieces(target[row, :size]).numpy().tolist() for row, size in rows],
        "attention": [mean[row, :size] for row, size in rows],
        "alignment": [nearest[row, : max(size - 1, 0)].tolist() for row, size in rows],
        "source_cut": [False] * len(rows),
    }


def _score(session: SavedModelSession, translator: Translator) -> Iterator[Comparison]:
    """Of all pairs of neighbours, and of a source that is longer than is read."""
    texts, long = _texts(translator), "word " * translator.codec.source_limit
    sources, targets = [*texts, long], [*texts[1:], texts[0], texts[0]]
    source, _ = translator.codec.encode(tf.constant([long]))
    target, _ = translator.codec.encode(tf.constant([texts[0]]), target=True)
    cut = translator.scorer.log_probs(source.to_tensor(), target.to_tensor()).numpy().tolist()
    scored = translator.score(texts, targets[:-1])
    sizes = [*(one.num_tokens for one in scored), len(target[0])]
    log_probs = [*(one.log_prob for one in scored), *cut]
    penalties = length_penalty(sizes, translator.decoding.alpha).numpy()
    expected = {
        "log_prob": log_probs,
        "score": (np.array(log_probs) / penalties).tolist(),
        "num_tokens": sizes,
        "source_cut": [False] * len(texts) + [True],
        "target_cut": [False] * len(sources),
    }
    answer = session.run("score", {"source": _strings(sources), "target": _strings(targets)})
    return _compare("score", [text[:40] for text in sources], expected, answer)


def _texts(translator: Translator) -> list[Text]:
    """Those of `TEXTS` that the model reads to their end."""
    _, cut = translator.codec.encode(tf.constant(TEXTS))
    return [text for text, is_cut in zip(TEXTS, cut.numpy(), strict=True) if not is_cut]


def _with_all_hypotheses(translator: Translator, decoding: DecodingConfig) -> Translator:
    return translator.with_decoding(decoding, decoding.beam_size)


def _compiled(method: Callable, *ids: np.ndarray) -> Any:
    """What the method returns, as a graph for ids of any size: one that knows the size may
    round otherwise, and single operations take much more time."""
    return tf.function(lambda *given: method(*given), [IDS] * len(ids), autograph=False)(*ids)


def _strings(texts: Sequence[Text]) -> np.ndarray:
    return np.array(texts, object)
