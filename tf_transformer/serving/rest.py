"""TF Serving's REST format: JSON to arrays and back.

https://www.tensorflow.org/tfx/serving/api_rest
"""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from tf_transformer.base.errors import UserError, quoted, shortened
from tf_transformer.base.files import parse_json
from tf_transformer.data.documents import NO_JOIN, Passage, put_together, take_apart
from tf_transformer.decoding.hypotheses import length_penalty
from tf_transformer.decoding.interface import (
    Engine,
    Input,
    Translation,
    column,
    plain_lists,
    set_sources,
)
from tf_transformer.run.checkpoints import Arrays
from tf_transformer.serving.queue import MAX_ROWS, TokenCounter
from tf_transformer.terms.glossary import Glossary
from tf_transformer.terms.kept import KeptTranslations
from tf_transformer.terms.protection import Protection
from tf_transformer.translation.translator import Translator

_LIMITS = np.iinfo(np.int32).max, np.finfo(np.float32).max
# By type of an input: NumPy's, what its values are called, and whether a value of JSON is one.
_TYPES: dict[str, tuple[type, str, Callable[[Any], bool]]] = {
    "string": (object, "a string", lambda value: type(value) in (str, bytes)),
    "int32": (
        np.int32,
        "a whole number (int32)",
        lambda value: type(value) is int and abs(value) <= _LIMITS[0],
    ),
    "float32": (
        np.float32,
        "a number (float32)",
        lambda value: type(value) in (int, float) and abs(value) <= _LIMITS[1],
    ),
}


class BadRequestError(ValueError):
    """An invalid request; its message is meant for the client.

    What the client sent comes after "Received:", where the access log ends.
    """


@dataclass(frozen=True)
class PredictRequest:
    """A predict call, in rows ("instances") or in columns ("inputs")."""

    signature: str
    inputs: Arrays
    by_row: bool
    warnings: list[str]  # for the client, since the request is valid


def parse_document(
    body: bytes, translator: Translator
) -> tuple[list[Passage], Protection, list[str]]:
    """Returns the parts, what to keep in them, and warnings of a translateText call.

    Raises BadRequestError.
    """
    record = _json(body)
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise BadRequestError('The body must be an object with a string, "text".')
    _refuse_unknown(record, '"text", "language", "context", "glossary" and "protect"')
    language, context = record.get("language", translator.language), record.get("context", 1)
    if not isinstance(language, str) or type(context) is not int or context < 1:
        raise BadRequestError('"language" must be a string, "context" a number from 1.')
    terms, protect = record.get("glossary"), record.get("protect")
    is_dict = isinstance(terms, dict) and all(isinstance(each, str) for each in terms.values())
    if not (is_dict or terms is None) or protect not in (None, "default", "none"):
        raise BadRequestError(
            '"glossary" must be an object of terms and their translations, "protect" "default" '
            'or "none".'
        )
    try:
        parts = take_apart(record["text"], language, context)
        glossary = Glossary(terms.items(), '"glossary"') if terms else None
        kept = translator.kept(protect, glossary)
    except UserError as error:
        raise BadRequestError(str(error)) from None
    return parts, kept, [NO_JOIN] if context > 1 and not translator.joins else []


def format_document(parts: list[Passage], found: KeptTranslations, warnings: list[Any]) -> str:
    """Returns the answer to a translateText call, with what was sent to the model and found."""
    shown = list(put_together(parts, [best for best, *_ in found.filled]))
    pairs: list[Any] = [
        {"source": p.text, "translation": t} if p.is_sentence else t for p, t in shown
    ]
    sentences = [pair for pair in pairs if isinstance(pair, dict)]
    for pair, one, (best, *_) in zip(sentences, found.slotted, found.ranked, strict=True):
        if one.spans or one.text != pair["source"]:
            sent = {"source": one.text, "translation": best}
            pair["slots"] = sent | {"spans": [span.target for span in one.spans]}
    record: dict[str, Any] = {"text": "".join(text for _, text in shown), "parts": pairs}
    if warnings:
        record["warnings"] = warnings
    return json.dumps(record)  # escapes lone surrogates, which are kept


def best_translations(
    counter: TokenCounter, inputs: Arrays, outputs: Arrays
) -> list[Translation]:
    """Returns the best translation of each text; [] if the outputs have none with a score.

    Where they lack the log-probability, it follows from the score and the tokens of the text as
    the tokenizer spells it.
    """
    best = {n: (v if v.ndim == 1 else v[:, 0]).tolist() for n, v in outputs.items()}
    found = best.get("translation", best.get("translations"))
    scores = best.get("score", best.get("scores"))
    if found is None or scores is None or "text" not in inputs:
        return []
    sizes = best.get("num_tokens") or [*map(counter.count, found)]
    alpha = counter.decoding.alpha
    log_probs = best.get("log_probs") or [
        score * length_penalty(float(size), alpha)
        for score, size in zip(scores, sizes, strict=True)
    ]
    texts = plain_lists(found)
    rows = zip(texts, scores, log_probs, sizes, strict=True)
    translations = [Translation(*row) for row in rows]
    tokens = [*map(counter.count, inputs["text"])]
    longest = counter.longest_trained or counter.longest
    set_sources(
        plain_lists(inputs["text"].tolist()), [[one] for one in translations], tokens, longest
    )
    return translations


def ranked_translations(
    counter: TokenCounter, inputs: Arrays, outputs: Arrays, n_best: int
) -> list[list[Translation]]:
    """Returns up to `n_best` translations of each text, best first."""
    size = outputs["scores"].shape[1] if n_best > 1 else 1
    counts = outputs.get("count", [1] * len(inputs["text"]))
    columns = [
        best_translations(
            counter, inputs, {n: v[:, k:] if v.ndim > 1 else v for n, v in outputs.items()}
        )
        for k in range(min(n_best, size))
    ]
    return [[*row[:n]] for *row, n in zip(*columns, counts, strict=True)]


def _json(body: bytes) -> Any:
    try:
        return parse_json(body, parse_constant=_refuse_constant)
    except ValueError as error:
        raise BadRequestError(f"The body must be JSON: {error}") from None


def _refuse_unknown(record: dict[str, Any], known: str) -> None:
    """Raises BadRequestError for a field whose name is not in the text `known`."""
    if unknown := record.keys() - {*known.split('"')[1::2]}:
        received = shortened(json.dumps(min(unknown)), 200)
        raise BadRequestError(f"The body may have {known}. Received: {received}.")


def parse_request(body: bytes, export: Engine) -> PredictRequest:
    """Reads the body of a predict call; raises BadRequestError if it is invalid."""
    record = _json(body)
    if not isinstance(record, dict) or ("instances" in record) == ("inputs" in record):
        raise BadRequestError('The body must be an object with either "instances" or "inputs".')
    _refuse_unknown(record, '"signature_name" and either "instances" or "inputs"')
    signature = record.get("signature_name", "serving_default")
    if not isinstance(signature, str) or signature not in export.inputs:
        raise BadRequestError(
            f'"signature_name" must be one of {", ".join(export.inputs)}. Received: '
            f"{quoted(signature)}."
        )
    known = export.inputs[signature]
    names, by_row = list(known), "instances" in record
    if by_row:
        if not isinstance(record["instances"], list):
            raise BadRequestError('"instances" must be a list.')
        instances = [_named(instance, names) for instance in record["instances"]]
        columns = {name: [one[name] for one in instances] for name in names}
    else:
        columns = _named(record["inputs"], names)
    inputs = {
        name: _array(f"{signature}: {name}", columns[name], info)
        for name, info in known.items()
    }
    if len(counts := {len(values) for values in inputs.values()}) != 1:
        raise BadRequestError("All inputs must have the same number of rows.")
    if (rows := counts.pop()) > MAX_ROWS:
        raise BadRequestError(f"A request must have at most {MAX_ROWS} rows. Received: {rows}.")
    return PredictRequest(signature, inputs, by_row, _warnings(inputs))


def _warnings(inputs: Arrays) -> list[str]:
    """Returns a sentence about texts of several lines, which are translated as one."""
    texts = [text for one in inputs.values() if one.dtype == object for text in one.flat]
    count = sum(b"\n" in text.strip() for text in texts)
    advice = "taken as one sentence each. Send documents to :translateText."
    return [f"Texts of several lines: {count}, {advice}"] if count else []


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _named(value: Any, names: list[str]) -> dict[str, Any]:
    """Returns values by the inputs' names; a bare value belongs to the only input."""
    if isinstance(value, dict) and value.keys() != {"b64"}:
        if value.keys() != set(names):
            raise BadRequestError(
                f"The inputs must be {', '.join(sorted(names))}. "
                f"Received: {', '.join(sorted(value)) or 'none'}."
            )
        return value
    if len(names) > 1:
        raise BadRequestError(f"The inputs must be named: {', '.join(sorted(names))}.")
    return {names[0]: value}


def _array(name: str, value: Any, info: Input) -> np.ndarray:
    """Converts a value of JSON to an array with the type and rank of an input."""
    dtype, words, is_valid = _TYPES[info.type]
    rank = info.rank
    values = np.array(value, object)  # which keeps JSON's types
    if values.size == 0 and values.ndim <= rank:  # an empty list may have no width
        shape = values.shape + (0,) * (rank - values.ndim)
        return values.reshape(shape).astype(dtype)
    if values.ndim != rank:
        raise BadRequestError(
            f"{name} must be of rank {rank}, with rows of equal length. Received: rank "
            f"{values.ndim}."
        )
    items = [_decoded(one) if dtype is object else one for one in values.flat]
    for one in items:
        if not is_valid(one):
            received = shortened(json.dumps(one), 200)
            raise BadRequestError(f"{name} must be {words}. Received: {received}.")
    if dtype is object:
        return column(items).reshape(values.shape)
    return values.astype(dtype)


def _decoded(value: Any) -> Any:
    """Returns the bytes that {"b64": text} encodes; other values as they are."""
    if isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except ValueError as error:  # for non-ASCII letters too
            raise BadRequestError(f'"b64" must be base64: {error}') from None
    return value


def format_response(outputs: Arrays, by_row: bool, warnings: Sequence[Any] = ()) -> str:
    """Returns the answer to a predict call; rows of a single output are bare values."""
    columns = {name: plain_lists(values.tolist()) for name, values in outputs.items()}
    answer: Any = columns
    if len(columns) == 1:
        (answer,) = columns.values()
    elif by_row:
        rows = zip(*columns.values(), strict=True)
        answer = [dict(zip(columns, row, strict=True)) for row in rows]
    record = {"predictions" if by_row else "outputs": answer}
    if warnings:
        record["warnings"] = warnings
    return json.dumps(record, ensure_ascii=False, allow_nan=False)


def model_status(version: int, state: str) -> dict[str, Any]:
    """Returns the answer to GET /v1/models/NAME."""
    status = {"error_code": "OK", "error_message": ""}
    return {
        "model_version_status": [{"version": str(version), "state": state, "status": status}]
    }


def metadata(export: Any, name: str, version: int) -> dict[str, Any]:
    """Returns the answer to GET /v1/models/NAME/metadata."""
    return {
        "model_spec": {"name": name, "signature_name": "", "version": str(version)},
        "metadata": {"signature_def": {"signature_def": export.describe()}},
    }
