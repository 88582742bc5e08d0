"""Report of a set of translations: chrF, and the variants of BLEU found in papers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tf_transformer.evaluation.bleu import Score, bleu, chrf
from tf_transformer.evaluation.moses import moses_tokenize, split_compounds

CAUTION = (
    "Compare only scores of the same kind and signature: kinds differ by several points on the "
    "same text. Scores from 2014 to 2017, including the paper's, are on Moses' tokens, with "
    "compounds split for English-German. In publications, report the first."
)


@dataclass(frozen=True)
class Entry:
    """A score and its kind."""

    kind: str
    score: Score


def report(hypotheses: Sequence[str], *references: Sequence[str], language: str) -> list[Entry]:
    """Computes all scores of the translations.

    Args:
        hypotheses: one translation per sentence, detokenised and cased.
        references: one or more sets of references, each with one per sentence.
        language: language code of the translations, for Moses' tokenizer, such as "de".

    Raises:
        ValueError: if the numbers of sentences differ.
        UserError: if sacremoses is not installed or does not know the language.
    """
    moses = moses_bleu(hypotheses, *references, language=language)  # first: it may raise
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
    """Computes unsmoothed BLEU of tokenised text; names the tokens in the signature."""
    score = bleu(*texts, tokenize="none", smooth="none")
    return replace(score, signature=score.signature.replace("tok:none", f"tok:{tokens}"))


def format_report(entries: Sequence[Entry]) -> str:
    """Formats a line for each score, and the caution.

    Values have four decimals, as some published ones have.
    """
    width = max(len(entry.kind) for entry in entries)
    lines = [
        f"{entry.kind:{width}}  {entry.score.value:7.4f}  {entry.score.signature}"
        for entry in entries
    ]
    return "".join(f"{line}\n" for line in (*lines, f"caution: {CAUTION}"))
