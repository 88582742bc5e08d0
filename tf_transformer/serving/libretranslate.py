"""LibreTranslate's API, by which other programs use models with the server's address alone.

https://docs.libretranslate.com. There are no keys, files and suggestions, and no detector: the
source "auto" is the only language from which there is a model. Other fields are ignored.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import flask

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.base.files import parse_json
from tf_transformer.data.documents import put_together, take_apart
from tf_transformer.decoding.interface import TranslatedText, Translation
from tf_transformer.serving.rest import BadRequestError
from tf_transformer.serving.served_model import (
    Documents,
    LoadedVersion,
    NotReadyError,
    ServedModel,
)
from tf_transformer.terms.protection import Protection
from tf_transformer.translation.files.translate_file import searcher, translate_page

_MS = 500  # that a page waits while its user types


class _Fields(NamedTuple):
    """The fields of a call of /translate."""

    texts: list[str]
    is_list: bool
    source: str
    target: str
    is_html: bool
    alternatives: int


def add_paths(
    app: flask.Flask,
    models: Sequence[ServedModel],
    documents: Documents,
    doubts: Callable[[list[Translation]], list[dict[str, Any]]],
    reply: Callable[..., flask.Response],
) -> None:
    """Adds the paths for all models that name their languages.

    Of several models for a pair of languages the first answers. `doubts` counts translations
    that look wrong; `reply` makes an answer of JSON and its status.
    """
    app.config["MAX_FORM_MEMORY_SIZE"] = None  # the server bounds the whole body

    def pairs() -> dict[tuple[str, str], LoadedVersion]:
        versions = [model.version() for model in models]
        named = {_languages(version): version for version in reversed(versions)}
        return {pair: named[pair] for pair in map(_languages, versions) if all(pair)}

    def languages():
        found = list(pairs())
        codes = dict.fromkeys([source for source, _ in found] + [to for _, to in found])
        targets = {code: [to for source, to in found if source == code] for code in codes}
        return reply(
            json.dumps([_named(code) | {"targets": to} for code, to in targets.items()])
        )

    def settings():
        first = next(iter(pairs()), ("", ""))
        named = dict(zip(("source", "target"), map(_named, first), strict=True))
        record = {"charLimit": -1, "frontendTimeout": _MS, "supportedFilesFormat": []}
        absent = ("apiKeys", "keyRequired", "suggestions", "filesTranslation")
        return reply(json.dumps(record | dict.fromkeys(absent, False) | {"language": named}))

    def health():
        if not all(model.alive for model in models):
            raise NotReadyError
        return reply(json.dumps({"status": "ok"}))

    def detect():
        _required(_record(), "q")
        return reply(json.dumps([_undetected(_only({source for source, _ in pairs()}))]))

    def translate():
        with documents.place():
            found, fields = pairs(), _fields()
            pair = _pair([*found], fields)
            work = _Work(documents, found[pair], fields)
            try:
                shown = work.pages() if fields.is_html else work.documents_of(fields.texts)
            except UserError as error:
                raise BadRequestError(str(error)) from None
        answer: dict[str, Any] = {"translatedText": [str(best) for best, *_ in shown]}
        if fields.source == "auto":
            answer["detectedLanguage"] = [_undetected(pair[0])] * len(shown)
        if fields.alternatives:
            answer["alternatives"] = [others for _, *others in shown]
        if not fields.is_list:
            answer = {name: only for name, (only,) in answer.items()}
        reasons = [reason for one in doubts(work.found) for reason in one["reasons"]]
        wrong = f"Translations that look wrong: {', '.join(dict.fromkeys(reasons))}"
        if warnings := [*dict.fromkeys(work.notes), *[wrong] * bool(reasons)]:
            answer["warnings"] = warnings
        return reply(json.dumps(answer))

    app.add_url_rule("/languages", "languages", languages)
    app.add_url_rule("/frontend/settings", "frontend_settings", settings)
    app.add_url_rule("/health", "health", health)
    app.add_url_rule("/detect", "detect", detect, methods=["POST"])
    app.add_url_rule("/translate", "translate", translate, methods=["POST"])


# --- Requests ---------------------------------------------------------------------------


def _record() -> dict[str, Any]:
    """Returns the fields of the body, which is JSON or a form."""
    if not flask.request.is_json:
        return flask.request.values.to_dict()
    try:
        record = parse_json(flask.request.get_data())
    except ValueError as error:
        raise BadRequestError(f"The body must be JSON: {error}") from None
    if not isinstance(record, dict):
        raise BadRequestError("The body must be an object.")
    return record


def _required(record: dict[str, Any], name: str) -> Any:
    value = record.get(name)
    if not value:
        raise BadRequestError(f'"{name}" is missing.')
    if not isinstance(value, str) and (name, type(value)) != ("q", list):
        raise BadRequestError(f'"{name}" must be a string.')
    return value


def _fields() -> _Fields:
    record = _record()
    q, source, target = (_required(record, name) for name in ("q", "source", "target"))
    texts = [q] if isinstance(q, str) else q
    if not all(isinstance(text, str) for text in texts):
        raise BadRequestError('"q" must be a string or a list of strings.')
    if (kind := record.get("format") or "text") not in ("text", "html"):
        raise BadRequestError(f'"format" must be text or html. Received: {quoted(kind)}.')
    try:
        number = int(record.get("alternatives") or 0)
    except (TypeError, ValueError):
        raise BadRequestError('"alternatives" must be a number.') from None
    return _Fields(texts, isinstance(q, list), source, target, kind == "html", max(0, number))


# --- Languages --------------------------------------------------------------------------


def _languages(version: LoadedVersion) -> tuple[str, str]:
    return version.translator.language, version.translator.target_language


def _named(code: str) -> dict[str, Any]:
    """Returns a language with its name in English, or its code without Babel."""
    name = code
    with suppress(ImportError):
        from babel import Locale

        name = Locale("en").languages.get(code.replace("-", "_"), code)
    return {"code": code, "name": name}


def _undetected(code: str) -> dict[str, Any]:
    """Returns a language in LibreTranslate's words for one that was not detected."""
    return {"confidence": 0.0, "language": code}


def _only(sources: set[str]) -> str:
    """Returns the only one of languages, among which nothing here could choose."""
    if len(sources) != 1:
        raise BadRequestError(
            "There is no detector of languages: give the source as one of "
            f"{', '.join(sorted(sources)) or 'none, since no model names its languages'}."
        )
    return next(iter(sources))


def _pair(pairs: list[tuple[str, str]], fields: _Fields) -> tuple[str, str]:
    """Returns the pair of languages that is asked for; codes are compared without case."""

    def same(one: str, other: str) -> bool:
        return one.lower().replace("_", "-") == other.lower().replace("_", "-")

    found = [pair for pair in pairs if same(pair[1], fields.target)]
    if fields.source == "auto" and found:
        return _only({source for source, _ in found}), found[0][1]
    for pair in found:
        if same(pair[0], fields.source):
            return pair
    known = ", ".join(f"{source} to {target}" for source, target in pairs)
    received = f"{quoted(fields.source)} to {quoted(fields.target)}"
    raise BadRequestError(
        f"There is no model for these languages. There are: {known or 'none'}; "
        f"--languages of `serve` names a model's. Received: {received}."
    )


# --- Translation ------------------------------------------------------------------------


@dataclass
class _Work:
    """The translation of the texts of a call, and what is to be said of it."""

    documents: Documents
    version: LoadedVersion
    fields: _Fields
    notes: list[str] = field(default_factory=list)
    found: list[Translation] = field(default_factory=list)

    def documents_of(
        self, texts: Sequence[str], protect: Protection | None = None
    ) -> list[list[TranslatedText]]:
        """Returns each document translated, and as many others as there are, best first."""
        translator = self.version.translator
        n_best = 1
        if not self.fields.is_html and "nbest" in self.version.export.signatures:
            n_best = min(1 + self.fields.alternatives, translator.decoding.beam_size)
        with self.documents.splitting:
            parted = [take_apart(text, translator.language) for text in texts]
        sentences = [part.text for parts in parted for part in parts if part.is_sentence]
        kept = translator.kept(protect)
        result = self.documents.translate(self.version, sentences, kept, n_best)
        self.notes += result.notes
        self.found += [best for best, *_ in result.filled]
        rest = iter(result.filled)
        shown = []
        for parts in parted:
            own = [next(rest) for part in parts if part.is_sentence]
            places = range(max(map(len, own), default=1))
            chosen = [[ranked[: place + 1][-1] for ranked in own] for place in places]
            alike: dict[str, TranslatedText] = {}
            for each in chosen:
                text = TranslatedText("".join(text for _, text in put_together(parts, each)))
                text.sentences = [(one.source or "", one) for one in each]
                alike.setdefault(text, text)
            shown.append([*alike.values()])
        return shown

    def pages(self) -> list[list[str]]:
        """Returns each text of HTML translated, as a file is."""
        has_slots = self.version.translator.engine.has_slots

        def search(texts: list[str], protect: Protection | None = None):
            return [best for best, *_ in self.documents_of(texts, protect)]

        translate = searcher(search, self.version.translator.kept(), has_slots)
        shown = []
        for text in self.fields.texts:
            pair = _languages(self.version)
            page, report = translate_page(text, translate, pair, numbers=has_slots)
            left = {
                n: count
                for n, count in report.counts.items()
                if n not in ("translated", "kept")
            }
            self.notes += [
                f"Texts left as they are: {n}, {why}" for why, n in left.items() if n
            ]
            shown.append([page])
        return shown
