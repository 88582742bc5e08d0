"""TMX 1.1 to 1.4: a variant of a unit in the model's target language is added, or filled."""

from collections.abc import Iterator, Sequence

from tf_transformer.base.errors import UserError
from tf_transformer.translation.files import entries as e
from tf_transformer.translation.files.xml_codes import Element, XmlFile, attributes_of

_TOOL = {"creationtool": "tf-transformer"}


def read(content: bytes, languages: e.Languages) -> e.Document:
    """Reads a file; UserError if it is no TMX, or for a model without names of languages."""
    if not all(languages):
        raise UserError("A .tmx file needs the languages of the model, which has none.")
    file = XmlFile(content, "tmx")
    headers = [each for each in file.elements if each.name == "header"]
    general = headers[0].attributes.get("srclang", "") if headers else ""
    units = [each for each in file.elements if each.name == "tu"]
    found = [_outcome(file, each, general, languages) for each in units]
    none = [
        each for each in found if isinstance(each, e.Left) and each.reason == _none(languages)
    ]
    variants = [each for each in file.elements if each.name == "tuv"]
    if variants and len(none) == len(found):
        e.require_languages((_language(variants[0]), ""), languages)
    return file.document(found)


def _none(languages: e.Languages) -> str:
    return f"no variant in {languages[0]}"


def _language(variant: Element) -> str:
    return variant.attributes.get("xml:lang") or variant.attributes.get("lang", "")


def _variant(variants: Sequence[Element], *languages: str) -> Element | None:
    """Returns the variant in the first of these languages, else one in any region of the last."""
    for language in languages:
        for each in variants:
            if _language(each).lower().replace("_", "-") == language.lower().replace("_", "-"):
                return each
    alike = [each for each in variants if e.same_language(_language(each), languages[-1])]
    return alike[0] if alike else None


def _outcome(
    file: XmlFile, unit: Element, general: str, languages: e.Languages
) -> e.Entry | e.Left | None:
    """Returns the entry of a unit, or what is left; None if it is translated already."""
    variants = [each for each in unit.all("tuv") if each.all("seg")]
    named = unit.attributes.get("srclang", general)
    named = named if e.same_language(named, languages[0]) else languages[0]
    source = _variant(variants, named, languages[0])
    name = unit.attributes.get("tuid", "")
    if source is None:
        return e.Left(unit.start, name, _none(languages))
    target = _variant([each for each in variants if each is not source], languages[1])
    segment = source.all("seg")[0]
    if segment.is_blank() or (target and not target.all("seg")[0].is_blank()):
        return None
    text = file.text_of(segment, preserve=True)  # TMX says that all white space counts
    if isinstance(text, str):
        return e.Left(unit.start, name, text)

    def edits(found: Sequence[e.Pieces | None]) -> Iterator[e.Edit]:
        content = file.content(segment, found[0] or ())
        if target:
            yield from file.changes(target, _TOOL)
            yield from file.changes(target.all("seg")[0], {}, *content)
            return
        outer, inner, last = (
            file.indentation(source),
            file.indentation(segment),
            variants[-1].end,
        )
        attribute = "xml:lang" if "xml:lang" in source.attributes else "lang"
        first = f"{outer}<tuv{attributes_of({attribute: languages[1], **_TOOL})}>{inner}<seg>"
        yield e.Edit(last, last, (first, *content, f"</seg>{outer if inner else ''}</tuv>"))

    return e.Entry(unit.start, name, [text], edits)
