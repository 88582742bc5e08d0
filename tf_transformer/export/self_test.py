"""The self-test of an export: its files must answer in a session as the model does in Python.

Python answers through the methods that users call, with the settings that they gave. Both
compute one text at a time, so that their tensors have the same shapes and are rounded alike.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tf_transformer.base.errors import UserError, shortened
from tf_transformer.config import EOS_ID
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.attention import default_layer
from tf_transformer.decoding.hypotheses import length_penalty
from tf_transformer.decoding.interface import column, plain_lists
from tf_transformer.export.saved_model import ExportEngine

Check = tuple[str, str, Any, Any]  # signature and output, text, expected, received
Answer = dict[str, Any]  # outputs for one text, as plain values and lists

# Texts to try a model with; warm-up requests send the first two.
TEXTS = (
    "A short sentence.",
    "",
    "   ",
    "\u00a0",
    "\u200b",
    "Two men, 3.50 euros and a tree: what a day!",
    "</s> <s> <pad> <unk>",
    "emoji 🙂 中文 \u0000 \u2028 é",
    "\udcff\udcfe not UTF-8 \udcc3",
    "word " * 60,
)

# Largest differences by precision: absolute, relative, and absolute for attention weights. The
# next bfloat16 after a weight of 0.5 is 0.004 away, and so may be those before the softmax.
# In int8 a difference in the last bit can move a value to the next of 127, and with it a search
# to another hypothesis, whose score is near: so what was searched has a wider limit.
TOLERANCES = {
    "float32": (1e-4, 1e-6, 1e-4),
    "bfloat16": (1e-3, 1e-3, 0.02),
    "int8": (0.02, 0.05, 0.05),
    "int8, searched": (0.02, 0.25, 0.05),
}
_FOUND = {"tokens", "translation", "translations", "num_tokens", "log_probs"}


def self_test(checks: Iterable[Check], precision: str) -> None:
    """Raises UserError at the first answer of an export that is not the expected one.

    `precision` is the model's, a key of `TOLERANCES`.
    """
    for output, text, expected, received in checks:
        signature, name = output.split(": ")
        searched = precision == "int8" and signature not in ("score", "attention")
        tolerance = "int8, searched" if searched else precision
        elsewhere = precision == "int8" and name in _FOUND
        if not elsewhere and not agree(expected, received, tolerance):
            raise UserError(
                f"The exported model failed its self-test, {output} of {text!r}: expected "
                f"{shortened(repr(expected), 200)}, received {shortened(repr(received), 200)}. "
                "Nothing was published."
            )


def agree(expected: Any, received: Any, precision: str = "float32") -> bool:
    """Returns whether values are equal; numbers, or lists of one shape, up to rounding."""
    if np.asarray(expected).dtype.kind != "f":
        return expected == received
    absolute, relative, of_weights = TOLERANCES[precision]
    if np.ndim(expected) > 1:
        absolute = of_weights
    same_shape = np.shape(expected) == np.shape(received)
    return same_shape and np.allclose(received, expected, relative, absolute)


def check_translator(
    session: ExportEngine, translator: Any, options: Mapping[str, Any]
) -> Iterator[Check]:
    """Yields the answers of a `Translator`, which searches in TensorFlow, and of its export.

    `options` are the search settings that the export was given, as arguments of `translate`.
    """
    decoding = dataclasses.replace(translator.decoding, **options)
    codec, tokenizer = translator.engine.codec(decoding), translator.tokenizer
    longest = max(min(12, decoding.max_length or 12), decoding.min_length)
    changed = {"alpha": 1.5, "max_length": longest, "prefix": "A"}
    texts = fitting_texts(tokenizer, codec.source_limit)

    def is_cut(target: str, limit: int) -> bool:
        return len(tokenizer.ids([target], "target")[0]) >= limit  # EOS would exceed it

    for text, other in zip(texts, reversed(texts), strict=True):
        ranked = translator.translate(text, n_best=decoding.beam_size, **options)
        yield from _check_tokens(session, translator, text, ranked[0], decoding.alpha)
        if set(session.signatures) == {"tokens"}:
            continue
        answer = _ask(session, "nbest", text=text)
        expected = _n_best(ranked, decoding.beam_size, decoding.alpha, answer)
        yield from _compared("nbest", text, expected, answer)
        best = {"translation": answer["translations"][0], "score": answer["scores"][0]}
        answer = _ask(session, "serving_default", text=text)
        yield from _compared("serving_default", text, best, answer)
        answer = _ask(session, "score", source=text, target=other)
        scored = translator.score(text, other)
        expected = {
            "log_prob": scored.log_prob,
            "score": _score(scored, decoding.alpha),
            "num_tokens": scored.num_tokens,
            "word_probs": [*scored.word_probs, *answer["word_probs"][len(scored.word_probs) :]],
            "target_cut": is_cut(other, codec.target_limit),
        }
        yield from _compared("score", text, expected, answer)
        if not ranked[0].num_tokens:  # a blank text
            continue
        answer = _ask(session, "with_options", text=text, **changed)
        ranked = translator.translate(text, n_best=decoding.beam_size, **{**options, **changed})
        expected = _n_best(ranked, decoding.beam_size, changed["alpha"], answer)
        expected["prefix_cut"] = is_cut("A", min(longest, *codec.length_limits([text])))
        yield from _compared("with_options", text, expected, answer)
        if "attention" in session.signatures:
            yield from _check_attention(session, translator, text, best["translation"])
    if set(session.signatures) != {"tokens"}:
        long = "a " * 4 * codec.target_limit
        answer = _ask(session, "with_options", text=long, **{**changed, "prefix": long})
        yield from _compared("with_options", "a long text", {}, answer, cut=True)
        answer = _ask(session, "score", source=long, target=long)
        yield from _compared("score", "a long text", {}, answer, cut=True)


def _check_tokens(
    session: ExportEngine, translator: Any, text: str, best: Any, alpha: float
) -> Iterator[Check]:
    """Yields the answers from ids to ids, with the ids of the translation as text."""
    tokenizer = translator.tokenizer
    ids = np.array([*tokenizer.ids([text])[0], EOS_ID], np.int32)
    answer = _ask(session, "tokens", tokens=ids)
    answer["tokens"] = tokenizer.texts([np.array(answer["tokens"])])[0]
    size = max(best.num_tokens, 1)  # a blank text is EOS alone
    expected = {"tokens": str(best), "score": _score(best, alpha), "num_tokens": size}
    yield from _compared("tokens", text, expected, answer)


def _check_attention(
    session: ExportEngine, translator: Any, text: str, translation: str
) -> Iterator[Check]:
    """Yields the weights [H, T, S] of the layer that alignments are read from."""
    answer = _ask(session, "attention", text=text)
    shown = translator.attention(text, translation)
    expected = {"translation": translation, "source_pieces": shown.source}
    if answer["target_pieces"] == shown.target:  # the search may have spelt it otherwise
        expected["target_pieces"] = shown.target
        heads = shown.cross[default_layer(len(shown.cross))]
        mean = np.array(answer["attention"])  # compared here
        nearest = mean[:-1, :-1].argmax(axis=1).tolist()
        expected |= {"heads": heads.tolist(), "attention": heads.mean(axis=0).tolist()}
        expected["alignment"] = [*nearest, -1]  # EOS has none
    yield from _compared("attention", text, expected, answer)


def _ask(session: ExportEngine, signature: str, **inputs: Any) -> Answer:
    """Returns the outputs of a signature for one row."""
    rows = {
        name: column([value]) if isinstance(value, str) else np.array([value])
        for name, value in inputs.items()
    }
    answer = session.run(signature, rows)
    return {name: plain_lists(values.tolist()[0]) for name, values in answer.items()}


def _n_best(ranked: Sequence[Any], beam_size: int, alpha: float, answer: Answer) -> Answer:
    """Returns the outputs for these translations; fillers behind them are as received."""
    count = len(ranked)
    columns = {
        "translations": [  # translations with equal scores may stand in any order
            text if text in [one for one in ranked if agree(one.score, best.score)] else best
            for text, best in zip(answer["translations"], ranked, strict=False)
        ],
        "scores": [_score(one, alpha) for one in ranked],
        "log_probs": [one.log_prob for one in ranked],
        "num_tokens": [one.num_tokens for one in ranked],
    }
    expected: Answer = {"count": count}
    for name in columns.keys() & answer.keys():
        expected[name] = columns[name] + answer[name][count:beam_size]
    return expected


def _score(translation: Any, alpha: float) -> float:
    """Returns the score that a search with this alpha gives a translation."""
    return translation.log_prob / length_penalty(translation.num_tokens, alpha)


def fitting_texts(tokenizer: Tokenizer, limit: int) -> list[str]:
    """Returns the texts of at most `limit` tokens, EOS counted."""
    rows = zip(TEXTS, tokenizer.ids(TEXTS), strict=True)
    return [text for text, ids in rows if len(ids) < limit]


def _compared(
    signature: str, text: str, expected: Answer, answer: Answer, cut: bool = False
) -> Iterator[Check]:
    """Yields each expected output of a signature beside the received one; `cut` is of texts."""
    cuts = {name: cut for name in answer if name.endswith("_cut")}
    for name, value in {**cuts, **expected}.items():
        yield f"{signature}: {name}", text, value, answer[name]
