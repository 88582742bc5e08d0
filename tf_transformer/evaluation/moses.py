"""Tokenisation for BLEU as in 2017: Moses' tokens, and compounds split at hyphens."""

import re
from collections.abc import Iterable

from tf_transformer.errors import UserError, missing_extra
from tf_transformer.strings import strings

# Since 2018 tokenizer.perl splits the final full stop of a line from any word; sacremoses still
# keeps it on possible ordinal numbers and abbreviations.
_LAST_STOP = re.compile(r"(?<=[^\s.])\.$")
_HYPHEN = re.compile(r"(\S)-(\S)")


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
    return [
        _LAST_STOP.sub(" .", tokenizer.tokenize(line, return_str=True))
        for line in strings("lines", lines)
    ]


def split_compounds(line: str) -> str:
    """Splits the compounds of a tokenised line: rich-text becomes rich ##AT##-##AT## text.

    This follows tensor2tensor's get_ende_bleu.sh (after Luong et al. 2015), which produced the
    paper's English-German scores. Of two hyphens around a single letter only the first is
    split.
    """
    return _HYPHEN.sub(r"\1 ##AT##-##AT## \2", line)
