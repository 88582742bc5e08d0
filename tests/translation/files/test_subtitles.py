"""Subtitles: only the texts of cues change."""

import re

import pytest

from tf_transformer.translation.files.entries import Code
from tf_transformer.translation.files.subtitles import wrapped
from tf_transformer.translation.files.translate_file import Found, translate_file

CAPITALS = re.compile(r"</?x+\d+/?>|\{x+\d+\}|[^\W\d_]+")


def capitals(texts, numbers):
    return [
        Found(CAPITALS.sub(lambda m: m[0] if m[0][0] in "<{" else m[0].upper(), text))
        for text in texts
    ]


def translated(tmp_path, text: str, suffix: str = ".srt", translate=capitals, left=0) -> str:
    pytest.importorskip("pysubs2")
    source, output = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    source.write_bytes(text.encode())
    report = translate_file(source, output, translate, ("en", "de"))
    assert sum(report.counts.values()) == report.counts["translated"] + left
    return output.read_bytes().decode()


TIMES = "00:00:01,000 --> 00:00:02,500"
SAME = [
    "1\n{t}\nA dog runs\nand barks.\n\n2\n{t}\n\n3\n{t}\nBye.\n",  # an empty cue
    "{t}\nNo number.\n\n{t}\nThe next.",  # and no end of the last line
    "1\r\r\n{t}\r\r\nHi.\r\r\n\r\r\n2\r\r\n{t}\r\r\nHo.\r\r\n",
    "1\n00:00:01.000 --> 00:00:02.000\nDots.\n\n2\n{t} X1:10 X2:20 Y1:30 Y2:40\nPlaced.\n",
    "1\n{t}\nOne.\n \n2\n{t}\nTwo.\n\t\n3\n{t}\nThree.\n",  # lines of white space
    "1\n{t}\nOne.\n2\n{t}\nIn\n1984\n\n3\n{t}\n4\n{t}\nEnd.",  # no lines between
    "1\r{t}\rOne,\rtwo.\r\r2\r{t}\rThree.\r",
    "1\n{t}\nOne.\n\n2\n00:00:03 --> 00:00:04\nTwo.\n\n3\n00:00:05,5-->00:00:06,7\nThree.",
    "1\n99:59:59,000 --> 100:00:01,000\nLate.\n",
    "1\n{t}\n- Where are you going tonight?\n- Home.\n",
    "1\n{t}\nMR SMITH: Hi.\nANNA: Hello, how are you today my friend?\n",
    "1\n{t}\n{{\\an8}}<i>A dog\nruns.</i>\n\n\n\n2\n{t}\n♪ la la ♪\n",
]


@pytest.mark.parametrize("text", SAME)
def test_numbers_times_places_and_lines_stay(tmp_path, text):
    text = text.format(t=TIMES)
    found = translated(tmp_path, text)
    assert found.lower() == text.lower() and found != text


def test_numbers_and_blank_lines_are_in_no_text(tmp_path):
    asked = []

    def translate(texts, numbers):
        asked.extend(texts)
        return capitals(texts, numbers)

    for text in SAME[4:8]:
        translated(tmp_path, text.format(t=TIMES), ".srt", translate)
    assert asked == [
        *("One.", "Two.", "Three."),
        *("One.", "In 1984", "End."),
        *("One, two.", "Three."),
        *("One.", "Two.", "Three."),
    ]


@pytest.mark.parametrize("head", ["", "WEBVTT x\nKind: x\n\nNOTE\nx\n\nREGION\nid:x\n\n"])
def test_texts_without_a_time_are_counted(tmp_path, head):
    text = f"{head}{TIMES}\nOne.\n\nno time\nnor here\n5\n\n2\n{TIMES}\nTwo.\n\n3\n"
    found = translated(tmp_path, text, ".vtt" if head else ".srt", left=2)
    assert found == text.replace("One", "ONE").replace("Two", "TWO")


def test_webvtt_keeps_its_notes_styles_and_tags(tmp_path):
    text = (
        "WEBVTT - a title\n\nSTYLE\n::cue { color: red }\n\nNOTE a comment\n\nintro\n"
        "00:01.000 --> 00:02.500 align:start position:10%\n"
        "<v Bob>Hello &amp; <c.x>you</c> <00:00:01.500>there\n\n"
        "100:00:01.000 --> 100:00:02.000\n- One\n- Two\n"
    )
    expected = text.replace("Hello", "HELLO").replace("you<", "YOU<").replace("there", "THERE")
    assert translated(tmp_path, text, ".vtt") == expected.replace("One", "ONE").replace(
        "Two", "TWO"
    )
    less = translated(tmp_path, text, ".vtt", lambda texts, _: [
        Found(re.sub("One|Two", "<a & b", text)) for text in texts
    ])  # fmt: skip
    assert "- &lt;a &amp; b" in less


def test_one_sentence_over_two_lines_is_one_and_wrapped_as_its_source(tmp_path):
    asked = []

    def translate(texts, numbers):
        asked.extend(texts)
        return [Found("<x0>Ein Hund, der sehr schnell rennt und bellt.</x0>") for _ in texts]

    found = translated(
        tmp_path, f"1\n{TIMES}\n<i>A dog runs\nand barks.</i>\n", ".srt", translate
    )
    assert asked == ["<x0>A dog runs and barks.</x0>"]
    lines = found.splitlines()[2:]
    assert lines == ["<i>Ein Hund, der sehr", "schnell rennt und bellt.</i>"]


def test_lines_are_of_similar_length_and_never_break_a_code():
    tag = Code("<font color=red>", "single")
    for number in range(1, 6):
        lines = [*wrapped(["a bb ccc ", tag, "dddd ee fffff g hh"], number)]
        assert 1 <= len(lines) <= number
        words = " ".join(
            "".join(p if isinstance(p, str) else p.written for p in line) for line in lines
        )
        assert words == "a bb ccc <font color=red>dddd ee fffff g hh"


def test_files_of_windows_are_read(tmp_path):
    pytest.importorskip("pysubs2")
    for encoding, head in (
        ("cp1252", b""),
        ("utf-16-le", b"\xff\xfe"),
        ("utf-8", b"\xef\xbb\xbf"),
    ):
        source, output = tmp_path / "in.srt", tmp_path / "out.srt"
        source.write_bytes(head + f"1\n{TIMES}\nÜber – alles.\n".encode(encoding))
        translate_file(source, output, capitals, ("de", "en"))
        assert output.read_bytes() == head + f"1\n{TIMES}\nÜBER – ALLES.\n".encode(encoding)
