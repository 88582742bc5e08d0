"""Report on a set of translations: chrF, and the variants of BLEU that papers use."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tf_transformer.errors import UserError, missing_extra
from tf_transformer.evaluation.bleu import Score, bleu, chrf
from tf_transformer.output import Table

CAUTION = (
    "Compare only scores of the same kind and signature: kinds differ by several points on the "
    "same text. Scores from 2014 to 2017, including the paper's, are on Moses' tokens, with "
    "compounds split for English-German. In publications, report the first."
)
# Since 2018 tokenizer.perl splits the final full stop of a line from any word; sacremoses still
# keeps it on possible ordinal numbers and abbreviations.
_LAST_STOP = re.compile(r"(?<=[^\s.])\.$")
_HYPHEN = re.compile(r"(\S)-(\S)")


@dataclass(frozen=True)
class Entry:
    """A score and its kind."""

    kind: str
    score: Score


def report(
    hypotheses: Sequence[str],
    *references: Sequence[str],
    language: str,
    tokenize: str = "13a",
) -> list[Entry]:
    """Computes all scores of the translations.

    Args:
        hypotheses: one translation per sentence, detokenised and cased.
        references: one or more sets of references, each with one per sentence.
        language: language code of the translations, for Moses' tokenizer, such as "de".
        tokenize: sacreBLEU's tokeniser of the first score.

    Raises:
        ValueError: if the numbers of sentences differ.
        UserError: if sacremoses is not installed or does not know the language.
    """
    moses = moses_bleu(hypotheses, *references, language=language)  # first: it may raise
    kinds = {
        tokenize: f"BLEU, {tokenize} tokens",  # the first
        "13a": "BLEU, sacreBLEU's 13a tokens",
        "intl": "BLEU, intl tokens",
        "none": "BLEU, tokens as in the text",
    }
    entries = [
        Entry(kind, bleu(hypotheses, *references, tokenize=tokens))
        for tokens, kind in kinds.items()
    ]
    lowercase = Entry("BLEU, 13a, lower-cased", bleu(hypotheses, *references, lowercase=True))
    return [
        entries[0],
        lowercase,
        *entries[1:],
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


def moses_tokenize(lines: Iterable[str], language: str) -> list[str]:
    """Tokenises lines like Moses' tokenizer.perl -l LANGUAGE, with tokens joined by spaces.

    Uses sacremoses, except for the final full stop of a line. Unlike the script, sacremoses
    separates Chinese, Japanese and Korean characters from others.

    Raises:
        UserError: if sacremoses is not installed or does not know the language.
    """
    try:
        from sacremoses import MosesTokenizer
        from sacremoses.corpus import NonbreakingPrefixes
    except ImportError:
        raise missing_extra("BLEU on Moses' tokens", "sacremoses", "moses") from None
    known = sorted(code for code in NonbreakingPrefixes().available_langs if len(code) < 4)
    if language not in known:
        raise UserError(
            f"Moses' tokenizer needs one of the languages {', '.join(known)}. "
            f"Received: {language}."
        )
    tokenizer = MosesTokenizer(language)
    return [_LAST_STOP.sub(" .", tokenizer.tokenize(line, return_str=True)) for line in lines]


def split_compounds(line: str) -> str:
    """Splits the compounds of a tokenised line: rich-text becomes rich ##AT##-##AT## text.

    This follows tensor2tensor's get_ende_bleu.sh (after Luong et al. 2015), which produced the
    paper's English-German scores. Of two hyphens around a single letter only the first is
    split.
    """
    return _HYPHEN.sub(r"\1 ##AT##-##AT## \2", line)


def _multi_bleu(texts: Sequence[Sequence[str]], tokens: str) -> Score:
    """Computes unsmoothed BLEU of tokenised text; names the tokens in the signature."""
    score = bleu(*texts, tokenize="none", smooth="none")
    return replace(score, signature=score.signature.replace("tok:none", f"tok:{tokens}"))


def format_report(entries: Sequence[Entry]) -> str:
    """Formats a line for each score, to four decimals as in some papers, and the caution."""
    rows = [
        (entry.kind, f"{entry.score.value:.4f}", entry.score.signature) for entry in entries
    ]
    return f"{Table((), rows, 'lrl').text('plain')}\ncaution: {CAUTION}\n"
