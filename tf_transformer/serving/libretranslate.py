"""LibreTranslate's API, by which other programs use models with the server's address alone.

https://docs.libretranslate.com. There are no keys, files and suggestions, and no detector: the
source "auto" is the only language from which there is a model. Other fields are ignored.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

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

Pair = tuple[str, str]  # codes of source and target
Doubts = Callable[[list[Translation]], list[dict[str, Any]]]  # reasons of what looks wrong


def add_paths(
    app: flask.Flask,
    models: Sequence[ServedModel],
    documents: Documents,
    doubts: Doubts,
    reply: Callable[..., flask.Response],
) -> None:
    """Adds the paths for all models that name their languages.

    Of several models for a pair of languages the first answers. `doubts` counts translations
    that look wrong; `reply` makes an answer of JSON and its status.
    """
    app.config["MAX_FORM_MEMORY_SIZE"] = None  # the server bounds the whole body

    def pairs() -> dict[Pair, LoadedVersion]:
        versions = [model.version() for model in reversed(models)]
        named = {_languages(version): version for version in versions}
        return {pair: named[pair] for pair in reversed(named) if all(pair)}

    def languages():
        found = list(pairs())
        codes = dict.fromkeys([source for source, _ in found] + [to for _, to in found])
        targets = [[to for source, to in found if source == code] for code in codes]
        named = map(_named, codes)
        return reply(
            json.dumps([n | {"targets": t} for n, t in zip(named, targets, strict=True)])
        )

    def settings():
        return reply(json.dumps(_settings(*next(iter(pairs()), ("", "")))))

    def health():
        if not all(model.alive for model in models):
            raise NotReadyError
        return reply(json.dumps({"status": "ok"}))

    def detect():
        _required(_record(), "q")
        return reply(json.dumps([_undetected(_only({source for source, _ in pairs()}))]))

    def translate():
        return reply(json.dumps(_answer(_record(), pairs, documents, doubts)))

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
    parts = value if (name, type(value)) == ("q", list) else [value]
    if not all(isinstance(part, str) for part in parts):
        a_list = " or a list of strings" * (name == "q")
        raise BadRequestError(f'"{name}" must be a string{a_list}.')
    return value


def _is_html(record: dict[str, Any]) -> bool:
    if (kind := record.get("format") or "text") not in ("text", "html"):
        raise BadRequestError(f'"format" must be text or html. Received: {quoted(kind)}.')
    return kind == "html"


def _alternatives(record: dict[str, Any]) -> int:
    try:
        return max(0, int(record.get("alternatives") or 0))
    except (TypeError, ValueError):
        raise BadRequestError('"alternatives" must be a number.') from None


# --- Languages --------------------------------------------------------------------------


def _languages(version: LoadedVersion) -> Pair:
    return version.translator.language, version.translator.target_language


def _named(code: str) -> dict[str, Any]:
    """Returns a language with its name in English, or its code without Babel."""
    name = code
    with suppress(ImportError):
        from babel import Locale

        name = Locale("en").languages.get(code.replace("-", "_"), code)
    return {"code": code, "name": name}


def _settings(source: str, target: str) -> dict[str, Any]:
    """Returns what LibreTranslate tells its page, with the languages chosen first."""
    absent = ("apiKeys", "keyRequired", "suggestions", "filesTranslation")
    return dict.fromkeys(absent, False) | {
        "charLimit": -1,
        "frontendTimeout": 500,  # ms of typing
        "supportedFilesFormat": [],
        "language": {"source": _named(source), "target": _named(target)},
    }


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


def _pair(pairs: list[Pair], source: str, target: str) -> Pair:
    """Returns the pair of languages that is asked for; codes are compared without case."""

    def same(one: str, other: str) -> bool:
        return one.lower().replace("_", "-") == other.lower().replace("_", "-")

    found = {pair[0]: pair for pair in pairs if same(pair[1], target)}
    if source == "auto" and found:
        return found[_only({*found})]
    for code in found:
        if same(code, source):
            return found[code]
    known = ", ".join(map(" to ".join, pairs)) or "none"
    raise BadRequestError(
        f"There is no model for these languages. There are: {known}; `tf-transformer "
        "serve --languages` names a model's. "
        f"Received: {quoted(source)} to {quoted(target)}."
    )


# --- Translation ------------------------------------------------------------------------


def _answer(
    record: dict[str, Any],
    pairs: Callable[[], dict[Pair, LoadedVersion]],
    documents: Documents,
    doubts: Doubts,
) -> dict[str, Any]:
    """Returns the answer to a request, by the first of the models for its languages."""
    q, source, target = (_required(record, name) for name in ("q", "source", "target"))
    texts, alternatives = [q] if isinstance(q, str) else q, _alternatives(record)
    with documents.place():
        found = pairs()
        pair = _pair([*found], source, target)
        work = _Work(documents, found[pair], 1 + alternatives)
        try:
            shown = work.pages(texts) if _is_html(record) else work.translate(texts)
        except UserError as error:
            raise BadRequestError(str(error)) from None
    answer: dict[str, Any] = {"translatedText": [best for best, *_ in shown]}
    if source == "auto":
        answer["detectedLanguage"] = [_undetected(pair[0])] * len(shown)
    if alternatives:
        answer["alternatives"] = [others for _, *others in shown]
    if isinstance(q, str):
        answer = {name: only for name, (only,) in answer.items()}
    reasons = {reason: 1 for one in doubts(work.found) for reason in one["reasons"]}
    wrong = [f"Translations that look wrong: {', '.join(reasons)}"] * bool(reasons)
    if warnings := [*dict.fromkeys(work.notes), *wrong]:
        answer["warnings"] = warnings
    return answer


@dataclass
class _Work:
    """The translation of the texts of a call, and what is to be said of it."""

    documents: Documents
    version: LoadedVersion
    n_best: int
    notes: list[str] = field(default_factory=list)
    found: list[Translation] = field(default_factory=list)

    def translate(
        self, texts: list[str], protect: Protection | None = None
    ) -> list[list[TranslatedText]]:
        """Returns each document translated, and as many others as there are, best first."""
        translator = self.version.translator
        n_best = min(self.n_best, translator.decoding.beam_size)
        n_best = n_best if "nbest" in self.version.export.inputs else 1
        with self.documents.splitting:
            parted = [take_apart(text, translator.language) for text in texts]
        sentences = [part.text for parts in parted for part in parts if part.is_sentence]
        kept = translator.kept(protect)
        result = self.documents.translate(self.version, sentences, kept, n_best)
        self.notes += result.notes
        self.found += [best for best, *_ in result.filled]
        rest, shown = iter(result.filled), []
        for parts in parted:
            own = [next(rest) for part in parts if part.is_sentence]
            alike: dict[str, TranslatedText] = {}
            for place in range(max(map(len, own), default=1)):
                each = [ranked[: place + 1][-1] for ranked in own]
                text = TranslatedText("".join(text for _, text in put_together(parts, each)))
                text.sentences = [(one.source or "", one) for one in each]
                alike.setdefault(text, text)
            shown.append([*alike.values()])
        return shown

    def pages(self, texts: list[str]) -> list[list[str]]:
        """Returns each text of HTML translated as a file is, without alternatives."""
        self.n_best, translator, shown = 1, self.version.translator, []
        engine, kept = translator.engine, translator.kept()
        if not engine.has_slots and engine.aligns:  # tags are placed by alignment
            kept = translator.kept("default")

        def search(texts: list[str], protect: Protection | None = None):
            return [best for best, *_ in self.translate(texts, protect)]

        translate = searcher(search, kept, engine.has_slots or engine.aligns)
        for text in texts:
            pair = _languages(self.version)
            page, report = translate_page(text, translate, pair, numbers=engine.has_slots)
            left = [why for why in report.counts if why not in ("translated", "kept")]
            self.notes += [
                f"Texts left as they are: {report.counts[why]}, {why}" for why in left
            ]
            shown.append([page])
        return shown
