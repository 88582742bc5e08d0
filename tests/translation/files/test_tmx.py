"""TMX: languages of variants, codes, and the new variant."""

import pytest

from tf_transformer.base.errors import UserError
from tf_transformer.translation.files import tmx
from tf_transformer.translation.files.second_reading import compare_xml


def translated(content, languages=("en", "de")):
    """Translates a file by capitals."""
    document = tmx.read(content, languages)
    edits = []
    for entry in document.entries:
        pieces = entry.texts[0].pieces
        edits += entry.edits([[p.upper() if isinstance(p, str) else p for p in pieces]])
    after, _ = document.with_edits(edits)
    assert compare_xml(content, content) == compare_xml(content, after) == ""
    return document, after.decode()


def file(*units, srclang="en"):
    body = "<!-- c -->".join(f"<tu>{unit}</tu>" for unit in units)
    return f'<tmx version="1.4"><header srclang="{srclang}"/><body>{body}</body></tmx>'


def variant(language, text, name="xml:lang", more=""):
    return f'<tuv {name}="{language}"{more}><seg>{text}</seg></tuv>'


OURS = ' creationtool="tf-transformer"'


@pytest.mark.parametrize("name", ["lang", "xml:lang"])
@pytest.mark.parametrize(
    "text, done",
    [
        ("a &amp; b", "A &amp; B"),
        ('a <bpt i="1">b</bpt>c<ept i="1"/>', 'A <bpt i="1">b</bpt>C<ept i="1"/>'),
        ("a <ph>\\x{<sub>b</sub>}</ph> <ut>u</ut>", "A <ph>\\x{<sub>b</sub>}</ph> <ut>u</ut>"),
        ("<hi>a</hi><!-- c --> b", "<hi>A</hi> B"),
        ("a\n  b", "A\n  B"),
    ],
)
def test_a_variant_is_added_behind_the_last(text, done, name):
    unit = variant("EN", text, name, ' creationdate="2"') + variant("fr", "c", name)
    _, after = translated(file(unit).encode())
    assert after == file(unit + variant("de", done, name, OURS))


def test_the_variant_stands_as_its_source_does():
    unit = '\r\n  <tuv xml:lang="en">\r\n    <note>a</note>\r\n    <seg>a</seg>\r\n  </tuv>'
    added = f'\r\n  <tuv xml:lang="de"{OURS}>\r\n    <seg>A</seg>\r\n  </tuv>'
    assert translated(file(unit + "\r\n").encode())[1] == file(unit + added + "\r\n")


def test_an_empty_variant_is_filled_and_another_kept():
    units = [variant("en", "a") + variant("de-AT", text) for text in ("  ", "b")]
    changed = units[0].replace('"de-AT"', '"de-AT" changedate="1" changeid="bob"')
    document, after = translated(file(changed, units[1], variant("fr", "c")).encode())
    filled = variant("en", "a") + variant("de-AT", "A", more=OURS)
    assert after == file(filled, units[1], variant("fr", "c"))
    assert document.kept == 1
    assert [each.reason for each in document.left] == ["no variant in en"]


@pytest.mark.parametrize(
    "srclang, languages, source",
    [
        ("en-GB", ("en", "de"), "colour"),
        ("en-us", ("en", "de"), "color"),
        ("*all*", ("en", "de"), "color"),
        ("fr", ("en", "de"), "color"),
        ("en-GB", ("fi", "de"), None),
        ("fil", ("fil", "de"), "kulay"),
    ],
)
def test_languages_are_told_apart(srclang, languages, source):
    parts = [variant("en-US", "color"), variant("en-GB", "colour"), variant("fil", "kulay")]
    content = file("".join(parts), srclang=srclang).encode()
    if source is None:
        with pytest.raises(UserError, match="The file is from en-us, the model from fi"):
            tmx.read(content, languages)
        return
    _, after = translated(content, languages)
    assert variant("de", source.upper(), more=OURS) in after


def test_a_model_without_names_of_languages_is_refused():
    with pytest.raises(UserError, match="needs the languages"):
        tmx.read(file().encode(), ("", ""))
