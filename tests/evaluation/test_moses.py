"""Tokens of the Moses script, where the rules are known, and compounds split at hyphens."""

import pytest

from tf_transformer.errors import UserError
from tf_transformer.evaluation.moses import moses_tokenize, split_compounds

pytest.importorskip("sacremoses")


# What tokenizer.perl of 2018 and later printed for each.
@pytest.mark.parametrize(
    ("language", "text", "tokens"),
    [
        ("de", "Das kostet z.B. 5,300 Euro.", "Das kostet z.B. 5,300 Euro ."),
        ("de", "Sie belegten Rang 7. von 9.", "Sie belegten Rang 7. von 9 ."),
        ("de", "Er kam mit Dr.", "Er kam mit Dr ."),
        ("de", "Und dann...", "Und dann ..."),
        ("de", "Er sagt: „Ja!“", "Er sagt : „ Ja ! “"),
        ("de", "Peter's [A&B]", "Peter &apos; s &#91; A &amp; B &#93;"),
        ("en", "It isn't Peter's.", "It isn &apos;t Peter &apos;s ."),
        ("fr", "C'est l'été.", "C&apos; est l&apos; été ."),
        ("de", "", ""),
    ],
)
def test_tokens_are_those_of_the_script(language, text, tokens):
    assert moses_tokenize([text], language) == [tokens]


@pytest.mark.parametrize(
    ("line", "split"),
    [
        ("ein rich-text Format", "ein rich ##AT##-##AT## text Format"),
        ("rich-text-Format", "rich ##AT##-##AT## text ##AT##-##AT## Format"),
        ("1990 - 1995 -x y-", "1990 - 1995 -x y-"),
        ("a-b-c", "a ##AT##-##AT## b-c"),
    ],
)
def test_a_hyphen_inside_a_word_becomes_a_token(line, split):
    assert split_compounds(line) == split


def test_an_unknown_language_is_refused():
    with pytest.raises(
        UserError, match=r"one of the languages as, bn, .* Received: klingon\.$"
    ):
        moses_tokenize(["Qapla'"], "klingon")
