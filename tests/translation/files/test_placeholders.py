"""What is a code in a text, by the kind of its format string."""

import time

import pytest

from tf_transformer.translation.files import placeholders
from tf_transformer.translation.files.entries import Code, Text


def text_of(text, style="any"):
    return placeholders.text_of([text], style)


def codes(text, style="any"):
    return [piece for piece in text_of(text, style).pieces if isinstance(piece, Code)]


UNKNOWN = """\
%s %d %1$s %(name)s %{name} {} {0} {a.b} {{x}} ${y} #{z} :count $name %1% %2 %n %% %.2f %Y
%user @name &amp; &#39; <%=x%> <!--a--> <b> </b> <br/> https://a.b/x%20y%C3
"""
PROSE = """\
50 % of it, 100% sure, eine 50%ige Chance, 5%, 12:30, http://a.b/:c, :) :-D, Note: it, $5, a < b
R&D, AT&T
A & B
a=1&b=2
&A &B
A && B
file_name
__init__
LC_ALL
User_id
File_name
Save_as
Max_connections
Q&a
S&p 500
B&b hotel
Barnes&noble
x_Name
Is_it or Is_not
Fish (_)
the _id field
usage: x [-a|-b], a || b
"""
KNOWN = """\
c: %*d %.*s %jd %<PRIu64> %p %m %% %1$s: {x} $y
objc: %@ %1$@: {x}
python: %(size)05.2f %s %%: {x} $y
python-brace: {} {name!r:>{width}} {{ }}: %s
perl-brace: {name}: {} %s
ruby: %<number>d %{cats} %s: {x}
php: %'05d %1$s %s: :x
boost: %1% %|2$5| %s: 5 % of
sh: $name ${other}: %s
qt: %1 %L2 %n: %s
java: {0} {1,number}: {x} %s
java-printf: %s %n %1$tY: {x}
csharp: {0:C2} {{ }}: %s
object-pascal: %s %0:d: {x}
gcc-internal: %qD %< %>: {x}
subtitle: {\\an8} <i> </i> <c.x> </c> <v> <00:01.000> &lt;: %s {x}
"""


def test_codes_of_an_unknown_kind():
    assert [code.written for code in codes(UNKNOWN)] == UNKNOWN.split()
    touching = [code.written for code in codes("%dx%d, %s%s, %ds")]
    assert touching == ["%d", "%d", "%s", "%s", "%d"]


@pytest.mark.parametrize("text", PROSE.splitlines())
def test_prose_has_no_codes_and_no_accelerators(text):
    assert text_of(text) == Text([text])


@pytest.mark.parametrize("line", KNOWN.splitlines())
def test_codes_of_a_known_kind(line):
    style, wanted, others = line.split(": ", 1)[0], *line.split(": ", 1)[1].rsplit(": ", 1)
    style += "-format" * (style != "subtitle")
    assert [code.written for code in codes(f"{wanted} a {others}", style)] == wanted.split()


def test_arguments_are_numbered_where_the_format_can():
    for style, text, numbered in (
        ("c", "%s of %5d, %%", ["%1$s", "%2$5d", ""]),
        ("c", '<a href="%s">%s</a>', ['<a href="%1$s">', "%2$s", ""]),
        ("c", "%s", [""]),
        ("c", "%*d of %s", ["", ""]),
        ("python", "%s of %s", ["", ""]),
        ("python-brace", "{} of {!r} {name}", ["{0}", "{1!r}", ""]),
        ("python-brace", "{} of {:{}}", ["", ""]),
        ("object-pascal", "%s of %d", ["%0:s", "%1:d"]),
    ):
        found = codes(text, f"{style}-format")
        assert [code.numbered for code in found] == numbered
        assert all(
            code.in_order != (code.written in ("%%", "</a>", "{name}")) for code in found
        )


def test_tags_are_paired_by_nesting():
    found = codes("<b>a<br>b <b>c</b></b></i>")
    assert " ".join(code.role for code in found) == "open single open close close single"
    assert found[0].pair == found[4].pair != found[2].pair == found[3].pair


def test_codes_that_are_there_stay():
    code = Code('<x id="1"/>', "single")
    assert placeholders.text_of(["a ", code, "b%%"], "any").pieces == [
        "a ",
        code,
        "b",
        Code("%%"),
    ]


def test_messages_in_one_and_unknown_formats_are_left():
    assert text_of("a ~a", "lisp-format") == "lisp-format is not known"
    for text in (
        "{n, plural, one {# dog} other {x}}",
        "{VAR_SELECT, select, male {he} other {x}}",
    ):
        assert text_of(text) == "ICU message"
    for text in ("{0} none|{1} one|[2,*] many", "car | cars"):
        assert text_of(text) == "several messages in one, separated by |"
    assert [code.written for code in codes("{n, number} | 5")] == ["{n, number}"]


def test_an_accelerator_is_taken_off():
    for text in (
        "&File",
        "E&xit",
        "Save _As",
        "E_xit",
        "Show _all",
        "Cu_t",
        "Fo&rmat",
        "Tom's &dog…",
    ):
        at = max(text.find("&"), text.find("_"))
        assert text_of(text) == Text([text[:at] + text[at + 1 :]], text[at : at + 2])
    assert text_of("%s&lang").accelerator == ""
    assert text_of("保存(&S)") == Text(["保存"], "&S")
    for text, style in (("&File", "subtitle"), ("&" + "x" * 80, "any")):
        assert text_of(text, style) == Text([text])


def test_time_is_linear():
    start = time.perf_counter()
    for part in ["<", "<a '", "{", "{a", "%", "&", "<!--", "{{", "{%", "[", "<b>"]:
        for style in ("any", "subtitle", "python-brace-format"):
            text_of(part * 9000, style)
    assert time.perf_counter() - start < 20
