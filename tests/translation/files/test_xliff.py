"""XLIFF: only targets change; codes, states, segments, languages and encodings."""

import re

import pytest

from tf_transformer.base.errors import UserError
from tf_transformer.translation.files import entries, xliff
from tf_transformer.translation.files.second_xml import compare_xml

NEW = 'state="needs-review-translation" state-qualifier="leveraged-mt"'
MARKS_2 = 'state="translated" subState="tf-transformer:unreviewed"'
DOG = "<source>Dog</source>"


def capitals(text):
    sent = entries.tagged(text.pieces)
    words = r"</?x+\d+/?>|\{x+\d+\}|[^\W\d_]+"
    done = re.sub(words, lambda m: m[0] if m[0][0] in "<{" else m[0].upper(), sent.text)
    pieces, reason = sent.pieces(done)
    assert not reason
    return pieces


def translated(content, languages=("en", "de")):
    document = xliff.read(content, languages)
    edits = [x for e in document.entries for x in e.edits([*map(capitals, e.texts)])]
    after, _ = document.with_edits([*edits, *document.edits])
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


@pytest.mark.parametrize(
    "source, target",
    [
        ("A &amp; b &lt; c", "A &amp; B &lt; C"),
        (
            'A <bpt id="1">&lt;b class="big"&gt;</bpt>dog<ept id="1">&lt;/b&gt;</ept>.',
            'A <bpt id="1">&lt;b class="big"&gt;</bpt>DOG<ept id="1">&lt;/b&gt;</ept>.',
        ),
        (
            'See <ph id="1">{name}</ph> or <it id="2" pos="open">\\bold <sub>is</sub></it>.',
            'SEE <ph id="1">{name}</ph> OR <it id="2" pos="open">\\bold <sub>is</sub></it>.',
        ),
        (
            'A <g id="1">dog <x id="2" ctype="lb"/></g> <bx id="3"/>runs<ex id="3"/>',
            'A <g id="1">DOG <x id="2" ctype="lb"/></g> <bx id="3"/>RUNS<ex id="3"/>',
        ),
        (
            '<mrk mtype="protected">House <x id="1"/></mrk> of <mrk mtype="term">dogs</mrk>',
            '<mrk mtype="protected">House <x id="1"/></mrk> OF <mrk mtype="term">DOGS</mrk>',
        ),
        ("A\n    dog\t<!-- short --> runs", "A DOG RUNS"),
        (
            "&lt;p&gt;A &lt;b&gt;dog&lt;/b&gt;.&lt;/p&gt;",
            "&lt;p&gt;A &lt;b&gt;DOG&lt;/b&gt;.&lt;/p&gt;",
        ),
        ('<![CDATA[A <a href="dog">dog</a>]]>', '<![CDATA[A <a href="dog">DOG</a>]]>'),
        ("<![CDATA[one]]> <![CDATA[<b>two</b>]]>", "ONE &lt;b&gt;TWO&lt;/b&gt;"),
    ],
)
def test_codes_come_back_as_they_were_and_text_is_translated(source, target):
    before = f"<source>{source}</source>"
    check(unit(before), unit(f"{before}<target {NEW}>{target}</target>"))


REVIEW, MT = NEW.split()


@pytest.mark.parametrize(
    "before, after",
    [
        ("<target/>", f"<target {NEW}>DOG</target>"),
        ("<target >\n</target>", f"<target {NEW} >DOG</target>"),
        (
            '<target state="new" a="&gt;">Dog</target>',
            f'<target {REVIEW} a="&gt;" {MT}>DOG</target>',
        ),
        ('<target state = "needs-translation"/>', f"<target {REVIEW} {MT}>DOG</target>"),
    ],
)
def test_empty_and_new_targets_are_work(before, after):
    after = after.replace("state=", "state = ", 1) if " = " in before else after
    check(unit(DOG + before, ' approved="no"'), unit(DOG + after, ' approved="no"'))


@pytest.mark.parametrize(
    "target, more",
    [
        ("<target>Hund</target>", ""),
        ('<target state="needs-adaptation">Dog</target>', ""),
        ('<target state="new">Dog</target>', ' approved="yes"'),
        ("<target><x id='1'/></target>", ""),
    ],
)
def test_what_is_translated_is_kept(target, more):
    assert check(unit(DOG + target, more), unit(DOG + target, more)).kept == 1


def test_what_a_machine_wrote_is_not_approved():
    done = f"{DOG}<target {NEW}>DOG</target>"
    check(unit(DOG, ' approved="yes"'), unit(done, ' approved="no"'))


def test_target_stands_behind_seg_source_on_a_line_of_its_own():
    source, rest = (
        "\n\t<source>Dog</source>",
        "\n\t<note>a</note><alt-trans><target>b</target></alt-trans>",
    )
    seg = '\n\t<seg-source><mrk mtype="seg" mid="1">Dog</mrk></seg-source>'
    done = f'\n\t<target {NEW}><mrk mtype="seg" mid="1">DOG</mrk></target>'
    check(unit(source + seg + rest), unit(source + seg + done + rest))


def test_segments_keep_their_marks_and_what_is_between_them():
    first, second = '<mrk mtype="seg" mid="1">', '<mrk mtype="seg" mid="2">'
    before = f'<source>A. B.</source><seg-source><g id="1">{first}A dog.</mrk>  {second}B.</mrk></g></seg-source>'
    old = '<target><mrk mtype="seg" mid="1"/> <mrk mtype="seg" mid="2"/></target>'
    new = f'<target {NEW}><g id="1">{first}A DOG.</mrk>  {second}B.</mrk></g></target>'
    document = check(unit(before + old), unit(before + new))
    assert len(document.entries[0].texts) == 2


def test_white_space_is_preserved_where_the_file_says_so():
    before = '<source xml:space="preserve">A\n  dog&#13;</source>'
    new = f'<target xml:space="preserve" {NEW}>A\n  DOG&#13;</target>'
    check(unit(before), unit(before + new))


def test_what_must_not_be_translated_is_left():
    group = '<group translate="no">{}<group translate="yes">{}</group></group>'
    done = unit(f"{DOG}<target {NEW}>DOG</target>")
    document = check(group.format(unit(DOG), unit(DOG)), group.format(unit(DOG), done))
    assert [each.reason for each in document.left] == ['translate="no"']


@pytest.mark.parametrize(
    "before, after",
    [
        (
            f"<segment>{DOG}</segment>",
            f"<segment {MARKS_2}>{DOG}<target>DOG</target></segment>",
        ),
        (
            f'<segment state="initial">{DOG}<target>Dog</target></segment>',
            f"<segment {MARKS_2}>{DOG}<target>DOG</target></segment>",
        ),
        (f"<segment>{DOG}<target>Hund</target></segment>", ""),
        (
            '<segment><source><pc id="1">A</pc> <ph id="2"/><sc id="3"/>dog<ec startRef="3"/> <mrk id="4"'
            ' translate="no">cat</mrk><cp hex="0007"/></source></segment>',
            f'<segment {MARKS_2}><source><pc id="1">A</pc> <ph id="2"/><sc id="3"/>dog<ec startRef="3"/> '
            '<mrk id="4" translate="no">cat</mrk><cp hex="0007"/></source><target><pc id="1">A</pc> '
            '<ph id="2"/><sc id="3"/>DOG<ec startRef="3"/> <mrk id="4" translate="no">cat</mrk>'
            '<cp hex="0007"/></target></segment>',
        ),
        (
            '<segment><source><sm id="1" translate="no"/>A<em startRef="1"/></source></segment>',
            "",
        ),
    ],
)
def test_segments_of_xliff_2(before, after):
    start, end = '<unit id="u"><ignorable><source> </source></ignorable>', "</unit>"
    check(start + before + end, start + (after or before) + end, file_2)


def test_a_file_of_another_language_is_left_or_refused():
    body = unit(DOG)
    other = '<file source-language="fr" target-language="it"><body>' + body
    content = file_1(body + "</body></file>" + other, 'source-language="en-GB"')
    document, after = translated(content.encode())
    assert [each.reason for each in document.left] == ["in another language, fr to it"]
    assert b'source-language="en-GB" target-language="de">' in after
    for refused in (
        file_1(body, 'source-language="fr"'),
        file_2("", 'srcLang="en" trgLang="it"'),
    ):
        with pytest.raises(UserError, match="The file is (from fr|to it), the model"):
            xliff.read(refused.encode(), ("en", "de"))


@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-be", "iso-8859-1", "utf-8"]
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_encodings_and_line_ends_are_kept(encoding, newline):
    name = encoding.removesuffix("-sig").removesuffix("-be")
    before = f"\n  <!-- ü -->\n  {unit('<source>A dög</source>')}"
    after = before.replace("</source>", f"</source><target {NEW}>A DÖG</target>")
    before, after = (
        file_1(each).replace("UTF-8", name).replace("\n", newline).encode(encoding)
        for each in (before, after)
    )
    assert translated(before)[1] == after


def test_a_large_file_takes_linear_time():
    body = unit("<source>Ä <g id='1'>dog</g></source>") * 5_000
    assert len(translated(file_1(body).encode())[0].entries) == 5_000


@pytest.mark.parametrize(
    "content, message",
    [
        ("<xliff version='1.2'><file>", "no element found: line 1"),
        ("<tmx/>", "first element must be xliff"),
        ("<xliff version='3.0'/>", "version"),
        ("<!DOCTYPE xliff [<!ENTITY a 'b'>]><xliff version='1.2'>&a;</xliff>", "entity a"),
        ("<!DOCTYPE xliff SYSTEM 'x.dtd'><xliff version='1.2'>&a;</xliff>", "entity a"),
        ("<?xml version='1.0' encoding='klingon'?><xliff/>", "another encoding"),
        ("<xliff>" * 5_000, "too deep"),
    ],
)
def test_what_cannot_be_read_is_refused(content, message):
    with pytest.raises(UserError, match=message):
        xliff.read(content.encode(), ("en", "de"))


@pytest.mark.parametrize(
    "after",
    [
        "<target>Hund</target><source>A <x id='1'/></source>",
        "<source>A <x id='1'/></source><target>Ein</target>",
        "<source>A <x id='1'/></source><target>Ein <x id='2'/></target>",
        "<source>B <x id='1'/></source>",
        "<source>A <x id='1'/></source><note/>",
    ],
)
def test_the_second_reading_finds_what_changed(after):
    before, after = (
        file_1(unit(each)).encode() for each in ("<source>A <x id='1'/></source>", after)
    )
    assert compare_xml(before, after)
