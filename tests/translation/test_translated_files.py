"""Files of other programs: their entries are translated, and all else stays."""

import gettext
import html.parser
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from tf_transformer.base.errors import UserError
from tf_transformer.translation.files import _as_lines, translate_file

PO = """\
# A comment.
msgid ""
msgstr ""
"Project-Id-Version: x\\n"
"PO-Revision-Date: 2024-01-01 00:00+0000\\n"
"Last-Translator: x <x@y.z>\\n"
"Language-Team: x <x@y.z>\\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Language: pl\\n"
"Plural-Forms: nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2);\\n"

#: a.c:1
#, c-format
msgid "Dear %s, a <b>dog</b> & more.\\n"
msgstr ""

msgctxt "menu"
msgid "Done"
msgstr "Fertig"

msgid "One dog"
msgid_plural "%d dogs"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""

msgid "lost {name}"
msgstr ""
"""
XLIFF = """\
<?xml version="1.0" encoding="UTF-8"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">
<file original="a" source-language="en" target-language="de" datatype="plaintext"><body>
<trans-unit id="1"><source>A <g id="1">dog</g><x id="2"/> &amp; more.</source></trans-unit>
<trans-unit id="2"><source>Done</source><target>Fertig</target></trans-unit>
<trans-unit id="3"><source>lost <x id="3"/></source></trans-unit>
</body></file></xliff>
"""
TMX = """\
<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4"><header creationtool="x" creationtoolversion="1" segtype="sentence"
 o-tmf="x" adminlang="en" srclang="en" datatype="plaintext"/><body>
<tu><tuv xml:lang="fr"><seg>Un chien</seg></tuv><tuv xml:lang="en-GB">
<seg>A <ph x="1"/>dog</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Done</seg></tuv><tuv xml:lang="de"><seg>Fertig</seg></tuv></tu>
</body></tmx>
"""
SRT = """\
1
00:00:01,000 --> 00:00:02,500
<i>A dog runs
and barks.</i>

2
00:00:03,000 --> 00:00:04,000
lost <b>x</b>
"""
HTML = """\
<!DOCTYPE html>
<html lang="en"><head><title>A dog</title><style>p {color: red}</style></head>
<body><!-- dog --><p>A <em>big</em> dog &amp; <a href="https://a.b/dog">more</a>.</p>
<script>var dog = 1 < 2;</script><img src="dog.png" alt="A dog">
<p>lost <b>x</b></p></body></html>
"""
FILES = {"po": PO, "xlf": XLIFF, "tmx": TMX, "srt": SRT, "html": HTML}


def translate(texts: list[str]) -> list[str]:
    """Names the dog in another language, with characters to escape; loses what is `lost`."""
    return [
        re.sub("<.*>|{.*}", "", text) if text.startswith("lost")
        else re.sub(r"\bdog(s?)\b(?![^<]*>)", r"Hund\1 < 1", text)
        for text in texts
    ]  # fmt: skip


@pytest.fixture
def translated(tmp_path):
    pytest.importorskip("translate")

    def translated(suffix: str) -> tuple[str, dict]:
        file, output = tmp_path / f"in.{suffix}", tmp_path / f"out.{suffix}"
        file.write_text(FILES[suffix])
        counts = translate_file(file, output, translate, ("en", "de"))
        return output.read_text(), dict(counts)

    return translated


def test_po_keeps_its_comments_and_translations_and_passes_msgfmt(translated, tmp_path):
    text, counts = translated("po")
    assert counts == {"translated": 3, "kept": 1, "left": 1}
    assert 'msgstr "Dear %s, a <b>Hund < 1</b> & more.\\n"' in text
    assert re.findall(r'msgstr\[\d\] "(.*)"', text) == ["One Hund < 1", *["%d Hunds < 1"] * 2]
    assert "# A comment." in text and "#: a.c:1\n#, c-format" in text and '"Fertig"' in text
    if shutil.which("msgfmt"):
        subprocess.run(["msgfmt", "-c", "-o", "x.mo", "out.po"], check=True, cwd=tmp_path)


def test_xliff_keeps_its_inline_codes(translated):
    text, counts = translated("xlf")
    assert counts == {"translated": 1, "kept": 1, "left": 1}
    name = "{urn:oasis:names:tc:xliff:document:1.2}"
    first, second, third = ET.fromstring(text.encode()).iter(f"{name}trans-unit")
    target = first.find(f"{name}target")
    assert "".join(target.itertext()) == "A Hund < 1 & more."
    assert [(each.tag, each.attrib) for each in target] == [
        (f"{name}g", {"id": "1"}), (f"{name}x", {"id": "2"})
    ]  # fmt: skip
    assert second.find(f"{name}target").text == "Fertig" and third.find(f"{name}target") is None


def test_tmx_gains_the_target_language_and_keeps_the_others(translated):
    text, counts = translated("tmx")
    assert counts == {"translated": 1, "kept": 1, "left": 0}
    first, second = ET.fromstring(text.encode()).iter("tu")
    language = "{http://www.w3.org/XML/1998/namespace}lang"
    texts = {each.get(language): "".join(each.find("seg").itertext()) for each in first}
    assert texts == {"fr": "Un chien", "en-GB": "A dog", "de": "A Hund < 1"}
    assert first[-1].find("seg/ph").attrib == {"x": "1"} and len(second) == 2


def test_srt_keeps_its_times_and_numbers_of_lines(translated):
    text, counts = translated("srt")
    assert counts == {"translated": 1, "kept": 0, "left": 1}
    assert text.splitlines()[:5] == [
        "1", "00:00:01,000 --> 00:00:02,500", "<i>A Hund < 1 runs", "and barks.</i>", ""
    ]  # fmt: skip
    assert "lost <b>x</b>" in text and _as_lines("a " * 9, 3) == ["a a a"] * 3


def test_html_keeps_its_tags_scripts_and_addresses(translated):
    def parts(text: str) -> list[tuple]:
        found = []
        parser = html.parser.HTMLParser()
        parser.handle_starttag = lambda tag, attrs: found.append((tag, dict(attrs)))
        parser.handle_endtag = lambda tag: found.append((tag,))
        parser.feed(text)
        return [part for part in found if part[0] != "html"]

    text, counts = translated("html")
    assert counts == {"translated": 2, "kept": 0, "left": 1} and '<html lang="de"' in text
    assert "<p>A <em>big</em> Hund &lt; 1 &amp; " in text and "<!-- dog -->" in text
    assert "var dog = 1 < 2;" in text and "<p>lost <b>x</b></p>" in text
    assert parts(text.replace("A Hund &lt; 1", "A dog")) == parts(HTML)


# How many entries are written around, and with which tags.
MANY = {
    "po": (PO[: PO.index("#: a.c")], 'msgid "{}"\nmsgstr ""\n\n', "", ("<b>", "</b>")),
    "xlf": (XLIFF[: XLIFF.index("<trans")],
            '<trans-unit id="{1}"><source>{0}</source></trans-unit>',
            "</body></file></xliff>", ('<g id="1">', "</g>")),
    "tmx": (TMX[: TMX.index("<tu>")], '<tu><tuv xml:lang="en"><seg>{}</seg></tuv></tu>',
            "</body></tmx>", ('<ph x="1"/>', '<ph x="2"/>')),
    "srt": ("", "{1}\n{2}:01,000 --> {2}:02,000\n{0}\n\n", "", ("<i>", "</i>")),
    "html": ("<html><body>", "<p>{}</p>", "</body></html>", ("<em>", "</em>")),
}  # fmt: skip


def many(suffix: str) -> str:
    """A file of 200 entries with six spans each."""
    head, entry, tail, tags = MANY[suffix]
    text = "A {}dog{} runs to {{n{}}} and %s at https://a.b/{}, {} times."
    texts = enumerate(text.format(*tags, i, i, 1_000 + i) for i in range(200))
    entries = [entry.format(t, i, f"{i // 60:02}:{i % 60:02}") for i, t in texts]
    return "".join([head, *entries, tail])


def reopened(path) -> list[str]:
    """The translations in a file, with their tags, as other programs read them."""
    if path.suffix == ".po":
        command = ["msgfmt", "-c", "-o", path.with_suffix(".mo"), path]
        subprocess.run(command, check=True)
        catalogue = gettext.GNUTranslations(path.with_suffix(".mo").open("rb"))._catalog
        found = [text for source, text in catalogue.items() if source]
        return sorted(found, key=lambda text: int(re.findall(r"\d+", text)[-1]))
    if path.suffix == ".srt":
        return [each.split("\n", 2)[2] for each in path.read_text().strip().split("\n\n")]
    name = {".xlf": "{*}target", ".tmx": "tuv[2]/seg", ".html": "p"}[path.suffix]
    found = ET.parse(path).iterfind(f".//{name}")
    return [
        re.sub(r' xmlns:?\w*="[^"]*"|ns\d:', "", ET.tostring(each, "unicode")) for each in found
    ]


@pytest.mark.parametrize("suffix", MANY)
def test_other_programs_find_every_span_of_many_entries(suffix, tmp_path):
    pytest.importorskip("translate")
    if suffix == "po" and not shutil.which("msgfmt"):
        pytest.skip("needs msgfmt")
    (tmp_path / f"in.{suffix}").write_text(many(suffix))
    output = tmp_path / f"out.{suffix}"
    translate_file(tmp_path / f"in.{suffix}", output, translate, ("en", "de"))
    *_, tags = MANY[suffix]
    found = [" ".join(text.split()).replace(" />", "/>") for text in reopened(output)]
    assert len(found) == 200
    for number, text in enumerate(found):
        spans = (*tags, f"{{n{number}}}", "%s", f"https://a.b/{number}", f"{1_000 + number}")
        counts = [len(re.findall(rf"{re.escape(span)}(?!\d)", text)) for span in spans]
        assert counts == [1] * 6, text


def test_other_files_are_refused_in_a_line(tmp_path, monkeypatch):
    for name, content, message in (
        ("a.docx", "", r"must end in \.po, .*\. Received: a\.docx\. Plain text is for `tr"),
        ("b.xlf", "<xliff", r"b\.xlf cannot be read as \.xlf: "),
        ("none.po", None, r"none\.po cannot be read: No such file"),
    ):
        if content is not None:
            (tmp_path / name).write_text(content)
        if name == "b.xlf":
            pytest.importorskip("translate")
        with pytest.raises(UserError, match=message):
            translate_file(type(tmp_path)(name), tmp_path / "out", translate, ("en", "de"))
    monkeypatch.setitem(sys.modules, "translate", None)
    monkeypatch.setitem(sys.modules, "translate.storage.pypo", None)
    (tmp_path / "a.po").write_text(PO)
    with pytest.raises(
        UserError, match=r"A \.po file needs translate-toolkit.*tf-transformer\[files\]"
    ):
        translate_file(tmp_path / "a.po", tmp_path / "out", translate, ("en", "de"))
    assert not (tmp_path / "out").exists()
