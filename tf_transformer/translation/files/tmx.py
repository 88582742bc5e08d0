"""TMX 1.1 to 1.4: a unit gets a variant in the model's target language."""

from collections.abc import Iterator, Sequence

from tf_transformer.base.errors import UserError
from tf_transformer.translation.files import entries as e
from tf_transformer.translation.files.xml_codes import Element, Outcome, XmlFile, written

_TOOL = {"creationtool": "tf-transformer"}
_CHANGED = {"changedate": "", "changeid": ""}  # by whom the empty variant was written


def read(content: bytes, languages: e.Languages) -> e.Document:
    """Reads a file; UserError if it is no TMX, or the model's languages have no names."""
    if not all(languages):
        raise UserError("A .tmx file needs the languages of the model, which has none.")
    file = XmlFile(content, "tmx")
    variants = [each for each in file.elements if each.name == "tuv"]
    if not any(e.same_language(_language(each), languages[0]) for each in variants[1:]):
        for each in variants[:1]:
            e.require_languages((_language(each), ""), languages)
    general = next((each.attributes.get("srclang", "") for each in file.elements[1:2]), "")
    units = [each for each in file.elements if each.name == "tu"]
    return file.document([_outcome(file, each, general, languages) for each in units])


def _language(variant: Element) -> str:
    get = variant.attributes.get
    return (get("xml:lang") or get("lang", "")).lower().replace("_", "-")


def _variant(variants: Sequence[Element], *languages: str) -> Element | None:
    """Returns the variant in the first of these languages, or in any region of the last."""
    exact = [v for name in languages for v in variants if _language(v) == name]
    alike = [v for v in variants if e.same_language(_language(v), languages[-1])]
    return next(iter(exact + alike), None)


def _outcome(file: XmlFile, unit: Element, general: str, languages: e.Languages) -> Outcome:
    """Returns the entry of a unit; `general` is the source language of the file."""
    from_, to = (name.lower().replace("_", "-") for name in languages)
    named = unit.attributes.get("srclang", general).lower()
    variants = [each for each in unit.all("tuv") if each.all("seg")]
    source = _variant(variants, *[named] * e.same_language(named, from_), from_)
    name = unit.attributes.get("tuid", "")
    if source is None or source.all("seg")[0].is_blank():
        return e.Left(unit.start, name, f"no variant in {languages[0]}")
    segment = source.all("seg")[0]
    name = name or file.text[segment.inner : segment.close]
    target = _variant([each for each in variants if each is not source], to)
    if target and not target.all("seg")[0].is_blank():
        return None

    def edits(found: Sequence[e.Pieces | None]) -> Iterator[e.Edit]:
        content = file.content(found[0] or ())
        if target:
            yield from file.changes(target, _CHANGED | _TOOL)
            yield from file.changes(target.all("seg")[0], {}, *content)
        else:
            outer, inner = file.indentation(source), file.indentation(segment)
            key = "xml:lang" if "xml:lang" in source.attributes else "lang"
            content = (inner, *written("seg", {}, *content), outer if inner else "")
            new = written("tuv", {key: languages[1], **_TOOL}, *content)
            yield e.Edit(variants[-1].end, variants[-1].end, (outer, *new))

    return file.entry(unit, name, [segment], edits)
