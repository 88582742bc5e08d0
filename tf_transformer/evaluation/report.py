"""Report of one set of translations: the kinds of BLEU that papers print, and chrF."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tf_transformer.evaluation.bleu import Score, bleu, chrf
from tf_transformer.evaluation.moses import moses_tokenize, split_compounds

CAUTION = (
    "Compare only figures of one kind, and of one signature: kinds differ by several points on "
    "the same text. Figures of 2014 to 2017, the paper's among them, are on Moses' tokens, for "
    "English-German with compounds split; to publish, take the first."
)


@dataclass(frozen=True)
class Entry:
    """A score and its kind."""

    kind: str
    score: Score


def report(hypotheses: Sequence[str], *references: Sequence[str], language: str) -> list[Entry]:
    """Computes all scores of the translations.

    Args:
        hypotheses: one translation a sentence, detokenised and cased.
        references: one or more sets of references, each with one a sentence.
        language: of the translations, for Moses' tokenizer, as in "de".

    Raises:
        ValueError: if the numbers of sentences differ.
        UserError: if sacremoses is not installed or does not know the language.
    """
    moses = moses_bleu(hypotheses, *references, language=language)  # which knows the errors
    return [
        Entry("BLEU, sacreBLEU's 13a tokens", bleu(hypotheses, *references)),
        Entry("BLEU, 13a, lower-cased", bleu(hypotheses, *references, lowercase=True)),
        Entry("BLEU, intl tokens", bleu(hypotheses, *references, tokenize="intl")),
        Entry("BLEU, tokens as in the text", bleu(hypotheses, *references, tokenize="none")),
        Entry("chrF2", chrf(hypotheses, *references)),
        *moses,
    ]


def moses_bleu(
    hypotheses: Sequence[str], *references: Sequence[str], language: str
) -> list[Entry]:
    """Computes BLEU like multi-bleu.perl on Moses' tokens, plain and with compounds split.

    The arguments and errors are those of `report`.
    """
    texts = [moses_tokenize(lines, language) for lines in (hypotheses, *references)]
    split = [[split_compounds(line) for line in lines] for lines in texts]
    return [
        Entry("BLEU of 2017: Moses' tokens", _multi_bleu(texts, f"moses-{language}")),
        Entry("BLEU of 2017: compounds split", _multi_bleu(split, f"moses-{language}-atat")),
    ]


def _multi_bleu(texts: Sequence[Sequence[str]], tokens: str) -> Score:
    """BLEU of tokenised text without smoothing; its signature says which tokens."""
    score = bleu(*texts, tokenize="none", smooth="none")
    return replace(score, signature=score.signature.replace("tok:none", f"tok:{tokens}"))


def format_report(entries: Sequence[Entry]) -> str:
    """Formats a line for each score, and the caution.

    Values have four digits to be compared with published ones, of which some have four.
    """
    width = max(len(entry.kind) for entry in entries)
    lines = [
        f"{entry.kind:{width}}  {entry.score.value:7.4f}  {entry.score.signature}"
        for entry in entries
    ]
    return "".join(f"{line}\n" for line in (*lines, f"caution: {CAUTION}"))
