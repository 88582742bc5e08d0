"""Documents: only sentences are translated, and nothing else is lost or moved."""

import itertools
import time
from random import Random

import pytest
import sentencex

from tf_transformer.base.errors import UserError
from tf_transformer.data.documents import put_together, take_apart

LETTER = """\
# News

Dear Dr. Smith,\r
  \tit works. Does it?  Yes!

- [ ] > First one. Second one.
  2) Third.\tCell.
-----
| Name | 12 | x@y.org |
|:-----|---:|---------|
```python
print("Not a sentence.")
```
https://example.org/a?b
<a.b@example.org>
3,141.5 \N{EURO SIGN}
"""
SENTENCES = [
    "News", "Dear Dr. Smith,", "it works.", "Does it?", "Yes!", "First one.", "Second one.",
    "Third.", "Cell.", "Name",
]  # fmt: skip
HOSTILE = [
    "Hi. ", "Dr. Who? ", "- ", "* ", "1. ", "> ", "```", "~~~", "```py", "\n", "\n\n", "\r\n",
    "\r", "\t", "|", "---", "+--+", "http://a.b/c", "a@b.co", " ", "\u00a0", "\u2028", "\x85",
    "\x0b", "\x00", "。", "你好", "\u200b", "\ud800", "🙂", "(", '"', "3.14", "مرحبا. ", "[x] ",
    "a) ", "x" * 50, "J.\u00a0R. ", "e.g. ", "http://,,,", "a@b.c.c.",
    "**", "_ ", "*No.* ", "</b> ",
]  # fmt: skip


def sentences_of(text: str, language: str = "en", context: int = 1) -> list[str]:
    return [part.text for part in take_apart(text, language, context) if part.is_sentence]


def rewritten(text: str, translations, language: str = "en", context: int = 1) -> str:
    parts = take_apart(text, language, context)
    return "".join(shown for _, shown in put_together(parts, translations))


def test_only_sentences_are_translated_and_all_else_stays_where_it_is():
    assert sentences_of(LETTER) == SENTENCES
    expected = LETTER
    for number, sentence in enumerate(SENTENCES):
        expected = expected.replace(sentence, f"<{number}>", 1)
    assert rewritten(LETTER, (f"<{number}>\n" for number in itertools.count())) == expected


def test_some_sentences_of_a_line_are_taken_together():
    text = "One. Two.  Three.\nFour."
    assert sentences_of(text, context=2) == ["One. Two.", "Three.", "Four."]
    assert rewritten(text, "abc", context=2) == "a  b\nc"


def test_marks_that_close_an_emphasis_stay_with_the_sentence_before_them():
    assert sentences_of("**One.** _Two!_ <b>Three.</b> *Four*. *Five*") == [
        "**One.**", "_Two!_", "<b>Three.</b>", "*Four*.", "*Five*",
    ]  # fmt: skip


def test_what_has_no_letter_outside_of_tags_and_placeholders_is_no_sentence():
    for text in ("%(first)s %(last)s", "%d%%", "%(text)s…", "<command>", "&nbsp; $name"):
        assert sentences_of(text) == []
    assert sentences_of("It runs. %s") == ["It runs."]
    assert sentences_of("It runs.<br/> Yes.<br>") == ["It runs.<br/>", "Yes.<br>"]
    assert sentences_of("<b>It</b> %s") == ["<b>It</b> %s"]


def test_a_fence_without_end_hides_nothing_after_it():
    assert sentences_of("```\nOne.\n~~~\nTwo.\n```\nThree.\n```\nFour.") == ["Three.", "Four."]
    assert sentences_of("```\nOne.\n~~~\n") == ["One."]


@pytest.mark.parametrize(
    ("language", "line", "expected"),
    [
        ("en", "Mr. Jones left at 5 p.m. on Jan. 3. He ran.", ["He ran."]),
        ("de", "Am 3. Mai kam Dr. Maier z. B. an. Er blieb.", ["Er blieb."]),
        ("DE-at", "Das ist d. h. gut. Wie?", ["Wie?"]),
        ("fr", "Mme Blanc, etc. sont venus. Quoi ?", ["Quoi ?"]),
        ("de", "Im 19. Jahrhundert war seine 3. Frau 19. Sie ging.", ["Sie ging."]),
        ("fr", "M. Petit et J.-M. Blanc ont de la vitamine C. Quoi ?", ["Quoi ?"]),
        ("en", "Then Ms. Jones left. He ran.", ["He ran."]),
        ("es", "Llegó D. Juan. No habló.", ["No habló."]),
        ("ar", "وصل أ. د. أحمد أمس. ما رأيك؟", ["ما رأيك؟"]),
        ("zh", "温度是3.5度。谢谢！", ["谢谢！"]),
        ("ar", "السعر 3.5 دولار. ما رأيك؟", ["ما رأيك؟"]),
    ],
)  # fmt: skip
def test_abbreviations_end_no_sentence(language, line, expected):
    assert sentences_of(line, language)[1:] == expected


@pytest.mark.parametrize(
    ("language", "line"),
    [
        ("ja", "「はい。」と言った。|そして帰った。"),
        ("ja", "『本当？』と聞いた。|彼は笑った！|本当だ。"),
        ("ja", "「行け！今すぐ！」、と叫んだ。|「はい。」|「いいえ。」"),
        ("ja", "【注意。】これは本だ。|今日は。|では。"),
        ("zh", "他说：“你好。”然后走了。|今天很好。|他来了！|真的？|是。"),
        ("zh", '他说："走。"然后走了。|好。|“再见。”'),
        ("ko", '“네.”라고 말했다. |"네."라고 말했다. |그는 갔다.'),
        ("en", "He said “Hi.” |Then he went. |See eq. (2) and Fig. 3. |Version 3.|Next."),
        ("en", "It is in vol. 3. |I like ch. |Not all."),
        ("fr", "Oui, c.-à-d. le 3 nov. 2026 et oui. |Il vint en nov. |« Oui. » |Il partit."),
        ("ru", "Это т.е. хорошо, т. е. да, рис. 5 и т.д. там. |Да."),
        ("tr", "Ofis 5. katta. |Evet 5. |Tamam."),
        ("hi", "डॉ. शर्मा आए। |वे गए।"),
        ("pl", "Np. dr. Nowak i św. Jan, m.in. dziś. |Tak."),
    ],
)
def test_direct_speech_and_abbreviations_stay_together_and_sentences_apart(language, line):
    found = sentences_of(line.replace("|", ""), language)
    assert found == [sentence.strip() for sentence in line.split("|")]


def test_sentences_without_space_between_get_one_where_the_translation_needs_it():
    text, translations = "你好。“再见。”\n", ["Hello.", "Bye."]
    assert rewritten(text, translations, "zh") == "Hello. Bye.\n"
    shown = put_together(take_apart(text, "zh"), translations)
    assert [part.text for part, _ in shown] == ["你好。", "“再见。”", "\n"]
    assert rewritten("你好。再见。", ["今日は。", "では。"], "zh") == "今日は。では。"


LONG_LINES = {
    "en": [
        "Dr. Lee ran.", 'He said, "Go. Now!" and left.', "It (see p. 3) isn't so.", '"Why?"',
        "He ran " + "and ran " * 400 + "on.",
    ],
    "de": ["Am 3. Mai kam er.", "Sie rief: „Halt. Nein!“", "Wie?", 'Er sagte "Ja." dazu.'],
    "ja": ["「はい。」と言った。", "今日は。", "『本当？』と聞いた。", "猫だ！"],
}  # fmt: skip


@pytest.mark.parametrize("language", LONG_LINES)
def test_a_long_line_has_the_sentences_of_its_parts(language, monkeypatch):
    """The library sees it in pieces of bounded length, since no other thread runs meanwhile."""
    seen, segment = [], sentencex.segment

    def record(code: str, text: str) -> list[str]:
        seen.append(len(text))
        return segment(code, text)

    monkeypatch.setattr("sentencex.segment", record)
    for seed in range(5):
        expected = Random(seed).choices(LONG_LINES[language], k=1_000)
        line = ("" if language == "ja" else " ").join(expected)
        assert sentences_of(line, language) == expected
        assert max(seen) <= 2_000 and sum(seen) < 2 * len(line)
        seen.clear()


@pytest.mark.parametrize("seed", range(5))
def test_nothing_of_hostile_text_is_lost_or_moved(seed):
    random = Random(seed)
    for language, context in itertools.product(("en", "de", "zh", "ar"), (1, 3)):
        for _ in range(60):
            text = "".join(random.choices(HOSTILE, k=random.randint(0, 40)))
            same = sentences_of(text, language, context)
            assert rewritten(text, same, language, context) == text
            lines = rewritten(text, ["T\u2028U"] * len(same), language, context).splitlines()
            assert len(lines) == len(text.splitlines())
            for before, after in zip(text.splitlines(), lines, strict=True):
                assert (after == before) or "T U" in after


@pytest.mark.parametrize(
    "bit",
    [
        "a", " ", "- ", "> ", "|", "(", "A. ", "a@b.c.", "http://,", "```a\n", "*", "A.* ",
        "(`x`", "«'x'", "彼。「は。」",
    ],
)  # fmt: skip
def test_time_is_linear(bit):
    def seconds(size: int) -> float:
        text, start = bit * (size // len(bit)), time.process_time()
        rewritten(text, sentences_of(text))
        return time.process_time() - start

    seconds(1_000)
    assert seconds(200_000) < 0.5 + 40 * seconds(20_000)


class PanicException(BaseException):
    """Named like what PyO3 raises."""


@pytest.mark.parametrize("fault", ["panic", "loss"])
def test_a_line_that_the_library_fails_at_is_one_sentence(fault, monkeypatch):
    def segment(language: str, text: str) -> list[str]:
        if fault == "panic":
            raise PanicException
        return [text[1:]]

    monkeypatch.setattr("sentencex.segment", segment)
    assert sentences_of(" - One. Two. \n\nThree.") == ["One. Two.", "Three."]


@pytest.mark.parametrize("language", ["", "source", "3"])
def test_a_language_that_is_no_code_is_refused(language):
    with pytest.raises(UserError, match="must be the code of the source language, such as de"):
        take_apart("One.", language)
