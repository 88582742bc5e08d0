"""HTML: only what people read changes, wherever it stands."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_transformer.base.errors import UserError
from tf_transformer.translation.files.entries import tagged
from tf_transformer.translation.files.html_pages import read
from tf_transformer.translation.files.second_reading import compare_html as compare


def capitals(text):
    return re.sub(r"([<{]/?x\d+/?[>}])|[^\W\d_]+", lambda m: m[1] or m[0].upper(), text)


def translated(page, translate=capitals):
    content = page.encode() if isinstance(page, str) else page
    document = read(content, ("en", "de"))
    edits = list(document.edits)
    for entry in document.entries:
        codes = tagged(entry.texts[0].pieces)
        pieces, fault = codes.pieces(translate(codes.text))
        assert not fault
        edits += entry.edits([pieces])
    result, encoding = document.with_edits(edits)
    assert compare(content, result) == ""
    return result.decode(encoding) if isinstance(page, str) else result


def texts(page):
    found = read(page.encode(), ("en", "de")).entries
    return [tagged(entry.texts[0].pieces).text for entry in found]


STAY = [
    '<p data-cart="{&quot;sku&quot;: 7}" onclick=\'say("hi")\'>{}</p>',
    "<p><a href='/s?q=1&amp;lt=2' data-j='{\"open\": true}'>{}</a></p>",
    '<ul><li>{}<script>var n = "a&b"; if (n < 3) go("</p>");</script></ul>',
    "<td>{}<style>td > b { color: red }</style></td>",
    "<p>{}<!-- a <b>comment</b> --></p>",
    "<p translate=no>fixed</p><p class='x notranslate'>fixed</p>{}",
    "<div translate=no>fixed<p>fixed <b>too</b></p></div>{}",
    "<pre>if (dog)\n  open</pre>{}<xmp><p>raw</xmp>",
    "<form><input type=hidden value=dog><input value=dog><input type=radio value=dog>{}</form>",
    "<select name=dog><option value='red'>{}<option value=blue></select>",
    '<?xml version=\'1.0\'?><!DOCTYPE html PUBLIC "-//W3C//DTD" "x"><br/><em />{}',
    "<P CLASS=Dog>{}\r\n<P>",
    "<math><mi>x</mi></math><svg><metadata>dog</metadata><path d='M1'/></svg>{}",
    "<link rel=stylesheet title=dog href=dog><meta name=robots content=index><p>{}",
    "<p>{}<?php if ($a->b) {\n echo 'dog > cat'; } ?></p>\n<p id=x>{}",
    "<p {% if a > b %}class=dog{% endif %}>{}</p>",
    "<template><p>{}</p></template>&#3;<i>&#</i></><![if IE]>",
]


@pytest.mark.parametrize("page", STAY)
def test_what_people_do_not_read_stays(page):
    assert translated(page.replace("{}", "A dog")) == page.replace("{}", "A DOG")


READ = [
    "<ul><li>{}<li>{}</ul><p>{}<p>{}",
    "<title>{}</title>{}",
    "<table><tr><td>{}<td>{}<tr><th>{}</table>",
    "<details><summary>{}</summary>{}</details>",
    "<fieldset><legend>{}</legend><button>{}</button></fieldset>",
    "<dialog>{}</dialog><my-card>{}</my-card><figcaption>{}</figcaption>",
    "<noscript>{}</noscript><svg><text>{}</text></svg>",
    "<textarea>{}</textarea><textarea>{}",
    "<img alt='{}' src=dog><p>See <img title=\"{}\"></p>",
    "<input placeholder='{}' aria-label='{}'><input type=submit value='{}'>",
    "<meta name=description content='{}'><meta property=og:title content='{}'>",
    "<option label='{}'><track label='{}'>",
    "<p translate=no>x <b translate=yes>{}</b></p>",
    "<p>See <button>{}</button> and <svg><title>{}</title></svg> there</p>",
]


@pytest.mark.parametrize("page", READ)
def test_what_people_read_is_translated(page):
    found = translated(page.replace("{}", "Dog"))
    assert found.count("DOG") == page.count("{}") and "Dog" not in found


TEXTS = [
    (
        "A <code>b c</code>, <kbd>d</kbd>, <span translate=no>E f</span>.",
        ["A <x0/>, <x1/>, <x2/>."],
    ),
    ("<p><b>All of\n it</b></p>", ["All of it"]),
    ("<p><a id=x></a><img src=x> A <b>d</b><br></p>", ["A <x0>d</x0>"]),
    ("<p>A <b><i>x</b></i> y", ["A <x0><x1/>x</x0><x3/> y"]),
    ("A <script>b</script><!-- c --><br>d", ["A <x0/><x1/><x2/>d"]),
    ("<nav><a>Home</a> | <a>Help</a></nav>", ["Home", "Help"]),
    ("Hi {{ name }}, {% if x %}you{% endif %} <?= $a->b ?>.", ["Hi {x0}, {x1}you{x2} {x3}."]),
    ("B&amp;B, 5&nbsp;km &lt;b&gt;", ["B&B, 5\xa0km <b>"]),
    ("<p>A <sup><a href=x></a></sup>b", ["A <x0/>b"]),
    ("<p>12 <b>%</b></p><p>&nbsp;</p>", []),
]


@pytest.mark.parametrize(("page", "found"), TEXTS)
def test_a_text_reaches_from_block_to_block(page, found):
    assert texts(page) == found


def test_characters_are_escaped_as_the_page_does():
    page = "<p title=' x' alt=y id=z>a&nbsp;b &mdash; c &#65;</p>"
    found = translated(page, translate=lambda text: "<a> & \"b\" 'c' A\xa0\u2014")
    assert found == (
        "<p title=' &lt;a&gt; &amp; \"b\" &#x27;c&#x27; A\xa0\u2014'"
        " alt=\"&lt;a&gt; &amp; &quot;b&quot; 'c' A\xa0\u2014\" id=z>"
        "&lt;a&gt; &amp; \"b\" 'c' A&nbsp;&mdash;</p>"
    )


def test_a_page_and_its_parts_name_the_new_language():
    page = "<html lang='{}' xml:lang={}><p lang=fr>Un<p>A <i lang=fr>mot</i><b lang={}>5"
    assert translated(page.format("en-GB", "en", "en")) == page.format("de", "de", "de")
    document = read(page.format("en", "en", "en").encode(), ("en", "de"))
    assert [each.reason for each in document.left] == ["in another language, fr"] * 2
    with pytest.raises(UserError, match="from fr"):
        read(b"<html lang=fr>", ("en", "de"))


@pytest.mark.parametrize("name", ["utf-8", "iso-8859-2", "windows-1252", "shift_jis"])
def test_a_page_is_written_in_its_encoding(name):
    page = f"<meta http-equiv=Content-Type content='text/html; charset={name}'><p>dog".encode(
        name
    )
    assert translated(page) == page.replace(b"dog", b"DOG")
    document = read(page, ("en", "de"))
    assert document.text[slice(*document.declaration)] == name


def test_a_page_that_names_no_encoding():
    assert translated(b"\xef\xbb\xbf<p>dog") == b"\xef\xbb\xbf<p>DOG"
    assert translated("<p>dög".encode("cp1252")) == "<p>DÖG".encode("cp1252")
    assert translated("<p>dog".encode("utf-16")) == "<p>DOG".encode("utf-16")
    with pytest.raises(UserError, match="Line 2 is not in utf-8"):
        read(b"<meta charset=utf-8>\n\xff", ("en", "de"))


HEAD = "<!DOCTYPE html><head id=x>{}<title>dog</title></head><p>dog"
NAMES = [
    ("<!-- <meta charset=iso-8859-1> --><meta charset=utf-8>é", "utf-8"),
    ("<script>'<meta charset=cp1252>'</script><meta charset=utf-8>é", "utf-8"),
    ("<meta charset=windows-874>ก", "cp874"),
    ("<meta charset=us-ascii>é", "cp1252"),
    ("<meta charset=latin1>– “", "cp1252"),
    ("<meta charset=gb2312>汉", "gbk"),
]


@pytest.mark.parametrize(("part", "codec"), NAMES)
def test_names_of_encodings_are_read_as_browsers_do(part, codec):
    page = HEAD.format(part)
    expected = page.replace("dog", "DOG").replace("é", "É")
    assert translated(page.encode(codec)).decode(codec) == expected


def test_a_page_in_xml_names_its_encoding_there():
    page = f"<?xml version='1.0' encoding='iso-8859-1'?>{HEAD.format('é')}".encode("cp1252")
    assert translated(page) == page.replace(b"dog", b"DOG").replace(b"\xe9", b"\xc9")
    found = translated(page, translate=lambda text: "Ω").decode()
    assert "encoding='UTF-8'" in found and found.count("Ω") == 3 and "meta" not in found


def test_a_page_in_utf_8_that_does_not_say_so_says_it_afterwards():
    found = translated(HEAD.format(""), translate=lambda text: "Ω")
    assert found == HEAD.format('<meta charset="utf-8">').replace("dog", "Ω")
    assert translated("<p>dog", translate=lambda text: "Ω") == "<p>Ω"
    assert translated("<header><?= a ?><p>dog") == "<header><?= a ?><p>DOG"
    page = HEAD.format("<meta http-equiv=Content-Type content='text/html; charset=latin1'>")
    other = page.replace("id=x>", 'id=x><meta charset="utf-8">')
    assert compare(page.encode(), other.encode())


def test_entities_of_spaces_and_commas_are_of_their_place_alone():
    page = "<p>A&nbsp;dog&#32;and&comma; cat&#10;x &lt;&copy;"
    assert translated(page) == "<p>A&nbsp;DOG AND, CAT\nX &lt;&copy;"


def test_a_row_of_rows_may_be_deep():
    page = "<span>dog</span><span>" * 1_000
    assert texts(page + "dog" + "</span>" * 1_000) == ["dog"] * 1_001


CHANGES = [
    ("<p a=1>a", "<p a=2>a"), ("a <b>c</b>", "a c"), ("<p>a", "<div>a"),
    ("<!-- a -->", "<!-- b -->"), ("<script>a", "<script>b"), ("<p>a", "<p>5"),
    ("a <code>b</code>", "a <code>c</code>"), ("<p translate=no>a", "<p translate=no>b"),
    ("<option value=a>", "<option value=b>"), ("<p>a<p id=x>b", "<p id=x>a<p>b"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_the_second_reading_sees_other_changes(before, after):
    assert compare(before.encode(), after.encode())
    assert not compare(before.encode(), before.encode())


PARTS = (
    "<p>|</p>|<b>|</b>|<i>|</i>|<div>|</div>|<ul>|<li>|</ul>|<br>|<td>|</x-y>|<x-y>|</>|<br/>"
    "|< 3|<a href='?a&b=1'>|</a>|<button>|</button>|<!-- c -->|<style>'<p>'</style>|dog |&#x;"
    "|&amp; |5&nbsp;km|<img alt='a \"b\"'>|{{ x }}|<p title=dog>|<svg><text>dog</svg>"
)


@given(st.lists(st.sampled_from(PARTS.split("|")), max_size=20))
def test_any_page_comes_back_but_for_its_words(parts):
    translated("".join(parts))
    document = read("".join(parts).encode(), ("", ""))
    same = [edit for each in document.entries for edit in each.edits([each.texts[0].pieces])]
    assert compare("".join(parts).encode(), document.with_edits(same)[0]) == ""


def test_time_grows_with_the_size():
    for part in (
        "<p>A <b>dog</b> & <br>",
        "<b>x",
        "<i>x</b>",
        "{{ {% <% ",
        "<a>x</a> ",
        "<div>dog ",
    ):
        start = time.perf_counter()
        read((part * 4_000).encode(), ("en", "de"))
        assert time.perf_counter() - start < 20, part


def test_a_text_may_have_many_codes():
    start = time.perf_counter()
    text = read(b"a dog<br>" * 10_000, ("en", "de")).entries[0].texts[0].pieces
    assert time.perf_counter() - start < 2
    assert len(text) == 19_999
