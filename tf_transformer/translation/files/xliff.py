"""XLIFF 1.0 to 1.2 and 2.0 to 2.2; what a machine wrote is marked, and never approved."""

from collections.abc import Iterator, Sequence

from tf_transformer.base.errors import UserError
from tf_transformer.translation.files import entries as e
from tf_transformer.translation.files.xml_codes import Element, Outcome, Part, XmlFile, written

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
    version = file.elements[0].attributes.get("version", "1.")
    if version[:2] not in ("1.", "2."):
        raise UserError(f'The version of XLIFF must be 1 or 2. Received: "{version}".')
    top, names, unit = _NAMES[version[0]]
    holders = [each for each in file.elements if each.name == top]
    found: list[Outcome] = []
    edits: list[e.Edit] = []
    refused: list[UserError] = []
    for holder in holders:
        source, target = (holder.attributes.get(name, "") for name in names)
        reason = ""
        try:
            e.require_languages((source, target), languages)
            if languages[1] and not target:
                edits += file.changes(holder, {names[1]: languages[1]})
        except UserError as error:
            refused.append(error)
            reason = f"in another language, {source} to {target}"
        for each in holder.inside():
            if each.name == unit and not all(s.is_blank() for s in each.all("source")):
                found.append(_outcome(file, each, reason))
    if refused and len(refused) == len(holders):
        raise refused[-1]
    return file.document(found, edits)


def _outcome(file: XmlFile, unit: Element, reason: str) -> Outcome:
    """Returns the entry of a unit, which is left if there is a reason."""
    is_1 = unit.name == "trans-unit"
    source, *_ = unit.all("source")
    target = next(iter(unit.all("target")), None)
    get = unit.attributes.get
    state = (target if target and is_1 else unit).attributes.get("state")
    name = get("resname") or get("id") or file.text[source.inner : source.close]
    if not is_1 and unit.parent:
        name = "/".join(filter(None, [unit.parent.attributes.get("id"), name]))
    marked = [each.attributes for each in source.inside() if each.name == "sm"]
    if reason or "no" in [mark.get("translate") for mark in (unit.inherited, *marked)]:
        return e.Left(unit.start, name, reason or 'translate="no"')
    is_work = state in ("new", "needs-translation", "initial") and get("approved") != "yes"
    if target and not target.is_blank() and not is_work:
        return None
    *_, last = [source, *unit.all("seg-source")]  # the target stands behind it
    segments = [each for each in last.inside() if each.attributes.get("mtype") == "seg"]
    parts = [each for each in segments if each.children] or [source]
    whole = source if parts == [source] else last

    def edits(found: Sequence[e.Pieces | None]) -> Iterator[e.Edit]:
        content: list[Part] = []
        reached = whole.inner
        for part, pieces in zip(parts, found, strict=True):
            content += [(reached, part.inner), *file.content(pieces or ())]
            reached = part.close
        content.append((reached, whole.close))
        marks = _MARKS_1 if is_1 else {}
        if target:
            yield from file.changes(target, marks, *content)
        else:
            space = {k: v for k, v in source.attributes.items() if k == "xml:space"}
            new = written(f"{file.prefix}target", space | marks, *content)
            yield e.Edit(last.end, last.end, (file.indentation(source), *new))
        approved = {"approved": "no"} if "approved" in unit.attributes else {}
        yield from file.changes(unit, approved if is_1 else _MARKS_2)

    return file.entry(unit, name, parts, edits)
