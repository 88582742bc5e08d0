"""XLIFF: only targets change; codes, states, segments, languages and encodings."""

import re

import pytest

from tf_transformer.base.errors import UserError
from tf_transformer.translation.files import xliff
from tf_transformer.translation.files.second_reading import compare_xml

REVIEW, MT = 'state="needs-review-translation"', 'state-qualifier="leveraged-mt"'
NEW = f"{REVIEW} {MT}"
NEW_2 = ' state="translated" subState="tf-transformer:unreviewed"'
DOG = "<source>Dog</source>"


def translated(content, languages=("en", "de")):
    """Translates a file by capitals."""
    document = xliff.read(content, languages)
    edits = [*document.edits]
    for entry in document.entries:
        edits += entry.edits(
            [[p.upper() if isinstance(p, str) else p for p in t.pieces] for t in entry.texts]
        )
    after, _ = document.with_edits(edits)
    assert compare_xml(content, content) == compare_xml(content, after) == ""
    return document, after


def file_1(body, languages='source-language="en" target-language="de"'):
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<xliff version="1.2" '
        f'xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a" {languages}>'
        f"<body>{body}</body></file></xliff>"
    )


def file_2(body, languages='srcLang="en" trgLang="de"'):
    space = 'xmlns="urn:oasis:names:tc:xliff:document:2.0"'
    return f'<xliff version="2.1" {space} {languages}><file id="f">{body}</file></xliff>'


def unit(content, more=""):
    return f'<trans-unit id="1"{more}>{content}</trans-unit>'


def check(before, after, file=file_1):
    document, content = translated(file(before).encode())
    assert content.decode() == file(after)
    return document


def both(marked):
    """Returns a text, and its translation: what is in brackets in capitals."""
    text = marked.replace("[", "").replace("]", "")
    return text, re.sub(r"\[(.*?)\]", lambda match: match[1].upper(), marked)


@pytest.mark.parametrize(
    "source, target",
    [
        both("[a] &amp; [b] &lt; [c]"),
        both('[a] <bpt id="1">&lt;b class="big"&gt;</bpt>[dog]<ept id="1">/b</ept>.'),
        both('[see] <ph id="1">{name}</ph> [or] <it id="2" pos="open">a <sub>b</sub></it>'),
        both('[a] <g id="1">[dog] <x id="2" ctype="lb"/></g> <bx id="3"/>[runs]<ex id="3"/>'),
        both('<mrk mtype="protected">the <x id="1"/></mrk> <mrk mtype="term">[dogs]</mrk>'),
        both("&lt;p&gt;[a] &lt;b&gt;[dog]&lt;/b&gt;.&lt;/p&gt;"),
        ("<![CDATA[one]]> <![CDATA[<b>two</b>]]>", "ONE &lt;b&gt;TWO&lt;/b&gt;"),
        ("a <?pi b?>dog<?x?>", "A <?pi b?>DOG<?x?>"),
        ("A\n    dog\t<!-- short --> runs", "A DOG RUNS"),
        ("\n  dog <x id='1'/>\n  runs\n", "DOG <x id='1'/> RUNS"),
    ],
)
def test_codes_come_back_as_they_were_and_text_is_translated(source, target):
    before = f"<source>{source}</source>"
    check(unit(before), unit(f"{before}<target {NEW}>{target}</target>"))


@pytest.mark.parametrize(
    "before, after, approved",
    [
        ("", f"<target {NEW}>DOG</target>", "yes"),
        ("<target/>", f"<target {NEW}>DOG</target>", "no"),
        ("<target >\n</target>", f"<target {NEW}>DOG</target>", "no"),
        (
            '<target state="new" a=">">A</target>',
            f'<target {REVIEW} a=">" {MT}>DOG</target>',
            "no",
        ),
        ('<target state="needs-translation" />', f"<target {NEW}>DOG</target>", "no"),
        ("<target>Hund</target>", "", "no"),
        ('<target state="needs-adaptation">Dog</target>', "", "no"),
        ('<target state="new">Dog</target>', "", "yes"),
        ("<target><x id='1'/></target>", "", "no"),
    ],
)
def test_states_tell_what_is_work_and_what_a_machine_wrote_is_not_approved(
    before, after, approved
):
    start = f' approved="{approved}"'
    end = ' approved="no"' if after else start
    document = check(unit(DOG + before, start), unit(DOG + (after or before), end))
    assert document.kept == (not after)


def test_only_what_is_written_counts():
    dtd = '<!DOCTYPE xliff [<!ATTLIST trans-unit approved CDATA "no">]><?pi?><xliff'
    before, after = (
        file_1(unit(f"{DOG}{target}")).replace("<xliff", dtd)
        for target in ("", f"<target {NEW}>DOG</target>")
    )
    assert translated(before.encode())[1].decode() == after


@pytest.mark.parametrize("target", ["", "<target/>"])
def test_names_may_have_a_prefix(target):
    before, after = (
        re.sub("<(/?)(?=[a-z])", r"<\1x:", file_1(unit(each))).replace("xmlns=", "xmlns:x=")
        for each in (
            f'<source>[<g id="1"/>a</source>{target}',
            f'<source>[<g id="1"/>a</source><target {NEW}>[<g id="1"/>A</target>',
        )
    )
    assert translated(before.encode())[1].decode() == after


def test_segments_keep_their_marks_and_targets_stand_where_the_schema_says():
    first, second = '<mrk mtype="seg" mid="1">', '<mrk mtype="seg" mid="2">'
    seg, new = both(f'<g id="1">{first}[a dog.]</mrk>  {second}[b.]</mrk></g>')
    source = f"\n\t<source>a dog.</source>\n\t<seg-source>{seg}</seg-source>"
    notes = "\n\t<note>a</note><alt-trans><target>b</target></alt-trans>"
    document = check(
        unit(source + notes), unit(f"{source}\n\t<target {NEW}>{new}</target>{notes}")
    )
    assert len(document.entries[0].texts) == 2
    empty = "<target><mrk mtype='seg' mid='1'/> <mrk mtype='seg' mid='2'/></target>"
    check(unit(source + empty), unit(f"{source}<target {NEW}>{new}</target>"))


def test_what_must_not_be_translated_is_left():
    group = '<group translate="no">{}<group translate="yes">{}</group></group>'
    done = unit(f"{DOG}<target {NEW}>DOG</target>")
    document = check(group.format(unit(DOG), unit(DOG)), group.format(unit(DOG), done))
    assert [each.reason for each in document.left] == ['translate="no"']


CODES_2 = (
    '<pc id="1">[a]</pc> <ph id="2"/><sc id="3"/>[dog]<ec startRef="3"/>'
    '<mrk id="4" translate="no">b</mrk><cp hex="0007"/>'
)
SEGMENT = (
    '<unit id="u"><ignorable><source> </source></ignorable>'
    "<segment{}><source>{}</source>{}</segment></unit>"
)


@pytest.mark.parametrize(
    "state, source, target, new",
    [
        ("", "Dog", "", "DOG"),
        (' state="initial"', "Dog", "<target>Dog</target>", "DOG"),
        ("", "Dog", "<target>Hund</target>", ""),
        ("", '<sm id="1" translate="no"/>A<em startRef="1"/>', "", ""),
        ("", CODES_2, "", both(CODES_2)[1]),
    ],
)
def test_segments_of_xliff_2(state, source, target, new):
    source = both(source)[0]
    before = SEGMENT.format(state, source, target)
    after = SEGMENT.format(NEW_2, source, f"<target>{new}</target>") if new else before
    check(before, after, file_2)


def test_a_file_of_another_language_is_left_or_refused():
    body = unit(DOG)
    other = '<file source-language="fr" target-language="it"><body>' + body
    content = file_1(body + "</body></file>" + other, 'source-language="en-GB"')
    document, after = translated(content.encode())
    assert [each.reason for each in document.left] == ["in another language, fr to it"]
    assert b'source-language="en-GB" target-language="de">' in after
    for refused in (file_1(body, 'source-language="fr"'), file_2("", 'trgLang="it"')):
        with pytest.raises(UserError, match="The file is (from fr|to it), the model"):
            xliff.read(refused.encode(), ("en", "de"))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "iso-8859-1"])
def test_encodings_and_line_ends_are_kept(encoding):
    name = encoding.removesuffix("-sig")
    before = "\n  <!-- ü -->" + unit('<source xml:space="preserve">dög\n</source>')
    target = f'<target xml:space="preserve" {NEW}>DÖG\n</target>'
    after = before.replace("</source>", "</source>" + target)
    before, after = (
        file_1(each).replace("UTF-8", name).replace("\n", "\r\n").encode(encoding)
        for each in (before, after)
    )
    assert translated(before)[1] == after


@pytest.mark.parametrize(
    "content, message",
    [
        ("<xliff version='1.2'><file>", "no element found: line 1"),
        ("<tmx/>", "first element must be xliff"),
        ("<xliff version='3.0'/>", "version"),
        ("<!DOCTYPE xliff [<!ENTITY a 'b'>]><xliff version='1.2'>&a;</xliff>", "entity a"),
        ("<!DOCTYPE xliff SYSTEM 'x.dtd'><xliff version='1.2'>&a;</xliff>", "entity a"),
        ("<?xml version='1.0' encoding='klingon'?><xliff/>", "not in klingon"),
        ("<xliff>" * 5_000, "too deep"),
    ],
)
def test_what_cannot_be_read_is_refused(content, message):
    with pytest.raises(UserError, match=message):
        xliff.read(content.encode(), ("en", "de"))


@pytest.mark.parametrize(
    "after",
    [
        "<target>Ein <x id='1'/></target><source>A <x id='1'/></source>",
        "<source>A <x id='1'/></source><target>Ein</target>",
        "<source>A <x id='1'/></source><target>Ein <x id='2'/></target>",
        "<source>B <x id='1'/></source>",
        "<source>A <x id='1'/></source><note/>",
    ],
)
def test_the_second_reading_finds_what_changed(after):
    before = file_1(unit("<source>A <x id='1'/></source>")).encode()
    assert compare_xml(before, file_1(unit(after)).encode())
