"""Translation around the spans that are kept, and what it notes for the log."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tf_transformer.config import SLOTS
from tf_transformer.terms.protection import SLOT, Protection, Slotted


class KeptTranslations(NamedTuple):
    """Translations of texts of which spans were kept.

    Attributes:
        slotted: each text with slots for its spans.
        ranked: its translations with slots, best first.
        filled: the same with the spans in place of the slots.
        notes: a line for each thing that did not go as a user expects, with its number.
    """

    slotted: list[Slotted]
    ranked: list[list[Any]]
    filled: list[list[Any]]
    notes: list[str]


def translate_kept(
    texts: Sequence[str],
    kept: Protection,
    search: Callable[[list[Slotted]], list[list[Any]]],
) -> KeptTranslations:
    """Translates texts around the spans that are kept in them.

    `search` returns one `Translation` or several of each text with slots.
    """
    slotted = [kept.protect(text) for text in texts]
    ranked = search(slotted)
    filled = []
    for text, sent, translations in zip(texts, slotted, ranked, strict=True):
        wholes = translations
        if sent.spans:
            wholes = [translation.with_text(sent.fill(translation)) for translation in wholes]
        for whole in wholes:
            whole.source = text
        filled.append(wholes)
    return KeptTranslations(slotted, ranked, filled, _notes(slotted, ranked))


def _notes(slotted: Sequence[Slotted], ranked: Sequence[Sequence[Any]]) -> list[str]:
    pairs = [(sent, best) for sent, (best, *_) in zip(slotted, ranked, strict=True)]
    lost = sum(len({*SLOTS[: len(sent.spans)]} - {*SLOT.findall(best)}) for sent, best in pairs)
    forced = sum(
        bool(sent.spans and best.is_cut and best.endswith(SLOTS)) for sent, best in pairs
    )
    lines = {
        f"spans beyond the first {len(SLOTS)} of a sentence, which are not protected: %d; "
        "split it": sum(sent.left for sent in slotted),
        "terms left out, since another that begins earlier overlaps them: %d; add the longer "
        "term to the glossary": sum(sent.crossing for sent in slotted),
        "spans that found no room in the translation: %d; raise its length limit, or shorten "
        "the sentence": lost,
        "translations at their length limit, to whose end spans were moved: %d; raise it, or "
        "shorten the sentence": forced,
    }
    return [line % count for line, count in lines.items() if count]
