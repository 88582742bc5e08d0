"""Text as tokenised for BLEU in 2017: Moses' tokens, compounds split at their hyphens."""

import re
from collections.abc import Iterable

from tf_transformer.errors import UserError, missing_extra
from tf_transformer.strings import strings

# Since 2018 tokenizer.perl parts the last full stop of a line from any word; sacremoses still
# leaves it on what may be an ordinal number or an abbreviation.
_LAST_STOP = re.compile(r"(?<=[^\s.])\.$")
_HYPHEN = re.compile(r"(\S)-(\S)")


def moses_tokenize(lines: Iterable[str], language: str) -> list[str]:
    """Tokenises lines like Moses' tokenizer.perl -l LANGUAGE: tokens joined by spaces.

    By sacremoses, but for the last full stop of a line. Letters of Chinese, Japanese and
    Korean, which have no words between spaces, are parted from others; the script keeps them.

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
            f"Moses' tokenizer must have one of the languages {', '.join(known)}. "
            f"Received: {language}."
        )
    tokenizer = MosesTokenizer(language)
    return [
        _LAST_STOP.sub(" .", tokenizer.tokenize(line, return_str=True))
        for line in strings("lines", lines)
    ]


def split_compounds(line: str) -> str:
    """Splits the compounds of a tokenised line: rich-text becomes rich ##AT##-##AT## text.

    As tensor2tensor's get_ende_bleu.sh does after Luong et al. (2015), and with it the paper's
    English-German figures. Of two hyphens around a single letter only the first is split.
    """
    return _HYPHEN.sub(r"\1 ##AT##-##AT## \2", line)
