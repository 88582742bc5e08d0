"""XLIFF 1.0 to 1.2 and 2.0 to 2.2; what a machine wrote is marked, and never approved."""

from collections.abc import Iterator, Sequence

from tf_transformer.base.errors import UserError
from tf_transformer.translation.files import entries as e
from tf_transformer.translation.files.xml_codes import Element, XmlFile, attributes_of

# By version: the element that names the languages, the attributes, and the element of a unit.
_NAMES = {
    "1": ("file", ("source-language", "target-language"), "trans-unit"),
    "2": ("xliff", ("srcLang", "trgLang"), "segment"),
}
_MARKS_1 = {"state": "needs-review-translation", "state-qualifier": "leveraged-mt"}
_MARKS_2 = {"state": "translated", "subState": "tf-transformer:unreviewed"}


def read(content: bytes, languages: e.Languages) -> e.Document:
    """Reads a file; UserError if it is no XLIFF, or in other languages than the model's."""
    file = XmlFile(content, "xliff")
    version = file.elements[0].attributes.get("version", "")
    if version[:2] not in ("1.", "2."):
        raise UserError(f'The version of XLIFF must be 1 or 2. Received: "{version}".')
    top, names, unit = _NAMES[version[0]]
    holders = [each for each in file.elements if each.name == top]
    reasons: dict[Element, str] = {}
    for holder in holders:
        source, target = (holder.attributes.get(name, "") for name in names)
        try:
            e.require_languages((source, target), languages)
        except UserError:
            reasons[holder] = f"in another language, {source} to {target}"
            if len(reasons) == len(holders):  # not one is left
                raise
    found: list[e.Entry | e.Left | None] = []
    reason = ""
    for each in file.elements:
        if each.name == top:
            reason = reasons.get(each, "")
        elif each.name == unit and any(not source.is_blank() for source in each.all("source")):
            found.append(_outcome(file, each, reason))
    edits = [
        edit
        for each in holders
        if languages[1] and each not in reasons and not each.attributes.get(names[1])
        for edit in file.changes(each, {names[1]: languages[1]})
    ]
    return file.document(found, edits)


def _outcome(file: XmlFile, unit: Element, reason: str) -> e.Entry | e.Left | None:
    """Returns the entry of a unit, or what is left; None if it is translated already."""
    get = unit.attributes.get
    is_1 = unit.name == "trans-unit"
    target = next(iter(unit.all("target")), None)
    state = (target.attributes if is_1 and target else unit.attributes).get("state")
    outer = unit.parent.attributes.get("id", "") + "/" if unit.parent and not is_1 else ""
    name = outer + (get("resname") or get("id") or "")
    if unit.inherited("translate") == "no":
        reason = reason or 'translate="no"'
    if reason:
        return e.Left(unit.start, name, reason)
    is_work = state in (("new", "needs-translation") if is_1 else ("initial",))
    if target and not target.is_blank() and (get("approved") == "yes" or not is_work):
        return None
    source, *_ = unit.all("source")
    segmented = unit.all("seg-source")[:1]
    parts = [
        each for whole in segmented for each in whole.inside()
        if each.name == "mrk" and each.attributes.get("mtype") == "seg" and each.children
    ]  # fmt: skip
    whole = segmented[0] if parts else source
    parts = parts or [source]
    space = source.attributes.get("xml:space", "")
    texts = [file.text_of(each, source.inherited("xml:space") == "preserve") for each in parts]
    reasons = [text for text in texts if isinstance(text, str)]
    if reasons:
        return e.Left(unit.start, name, reasons[0])

    def edits(found: Sequence[e.Pieces | None]) -> Iterator[e.Edit]:
        content: list[str | e.Range] = []
        place = whole.inner
        for part, pieces in zip(parts, found, strict=True):
            content += [(place, part.inner), *file.content(part, pieces or ())]
            place = part.close
        content.append((place, whole.close))
        marks = _MARKS_1 if is_1 else _MARKS_2
        inner = {**({"xml:space": space} if space else {}), **(marks if is_1 else {})}
        if target:
            yield from file.changes(target, marks if is_1 else {}, *content)
        else:
            tag = file.prefix + "target"
            first = f"{file.indentation(source)}<{tag}{attributes_of(inner)}>"
            place = (segmented or [source])[0].end
            yield e.Edit(place, place, (first, *content, f"</{tag}>"))
        if not is_1:
            yield from file.changes(unit, marks)
        elif get("approved") == "yes":
            yield from file.changes(unit, {"approved": "no"})

    return e.Entry(unit.start, name, [t for t in texts if isinstance(t, e.Text)], edits)
