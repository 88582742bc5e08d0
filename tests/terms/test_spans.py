"""Spans that a translation keeps: found, compared, replaced by slots and filled in again."""

import re
import time

import pytest

from tf_transformer.base.errors import UserError
from tf_transformer.terms.glossary import Glossary
from tf_transformer.terms.protection import Protection, protection
from tf_transformer.terms.spans import differences

DEFAULT = protection()


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("Order 4711 costs 9.99 euros.", ["4711"]),
        ("See https://a.b/c?x=1&y=2, or www.d.org.", ["https://a.b/c?x=1&y=2", "www.d.org"]),
        ("Ask a.b+c@d-e.co.uk; or @peter_1!", ["a.b+c@d-e.co.uk", "@peter_1"]),
        ("%d of %(n)s, %1$s, {name} {{x}} ${y} %n", 
         ["%d", "%(n)s", "%1$s", "{name}", "{{x}}", "${y}", "%n"]),
        ("<b>Big</b> <br/>&amp; <a href='x y'>z</a>",
         ["<b>", "</b>", "<br/>", "&amp;", "<a href='x y'>", "</a>"]),
        ("Run `make test` at 12:30 on 2024-05-01.", ["`make test`", "12:30", "2024-05-01"]),
        ("5 km/h, 50 %, €5.50, 1.2.3, 20 °C", ["5 km/h", "50 %", "€5.50", "1.2.3", "20 °C"]),
        ("Two men, 3 dogs and 100 % d'eau: 1 < 2 > 0", ["100 %"]),
        ("a <1> b <1>", ["<1>", "<1>"]),
    ],
)  # fmt: skip
def test_spans_of_every_kind_become_slots_and_come_back(text, spans):
    slotted = DEFAULT.protect(text)
    assert [span.target for span in slotted.spans] == spans
    assert re.findall("<[1-9]>", slotted.text) == [f"<{n}>" for n in range(1, len(spans) + 1)]
    assert slotted.fill(slotted.text) == text
    lost = slotted.fill(slotted.text.replace("<1>", ""))
    assert lost.lstrip() == text.replace(spans[0], "", 1).lstrip()


def test_the_words_of_the_models_own_are_no_spans():
    own = Protection(symbols=frozenset(["<made>"]))
    assert own.protect("<made> <b>4711").text == "<made> <1> <2>"


def test_a_span_that_touches_a_word_stands_apart_from_it():
    slotted = DEFAULT.protect("file{n} and {m}s")  # touching it, a slot would stand for "file"
    assert slotted.text == "file <1> and <2>s"
    assert slotted.fill("Datei <1> und <2>s") == "Datei{n} und {m}s"


def test_a_tag_keeps_its_place_among_words_and_its_order():
    slotted = DEFAULT.protect("(<p>Hello <b>big</b> world.</p>)")
    assert slotted.text == "(<1> Hello <2> big <3> world.<4>)"
    assert slotted.fill("(<1> Hallo <2> große <3> Welt.<4>)") == (
        "(<p>Hallo <b>große</b> Welt.</p>)"
    )
    crossed = slotted.fill("<3> <1> Welt <4> <2> Große")  # well-formed, as in the source
    assert re.findall("<.*?>", crossed) == ["<p>", "<b>", "</b>", "</p>"]
    moved = DEFAULT.protect("<i>a</i> of <b>b</b>")
    assert moved.fill("<3> B <4> von <1> A <2>") == "<b>B</b> von <i>A</i>"


def test_the_first_nine_spans_have_slots_but_what_looks_like_one_comes_first():
    numbers = [str(number) for number in range(1001, 1013)]
    slotted = DEFAULT.protect(" ".join([*numbers, "<3>"]))
    assert slotted.left == 4 and slotted.spans[-1].target == "<3>"
    assert slotted.text.split()[:9] == [f"<{n}>" for n in range(1, 9)] + ["1009"]
    assert slotted.fill(slotted.text) == " ".join([*numbers, "<3>"])
    many = DEFAULT.protect("<5> " * 10)
    assert many.left == 1 and len(re.findall("<[1-9]>", many.text)) == 9
    assert Protection(()).protect("<5> 4711").text == "<5> 4711"  # the caller's own slots


def test_a_glossary_takes_the_longest_term_at_the_borders_of_words():
    terms = {"net": "Netz", "neural net": "neuronales Netz", "ACME": "Acme AG", "C++": "C--"}
    slotted = protection("none", terms).protect("Neural net, network, NET of ACME, acme, C++.")
    assert slotted.text == "Neural<1> net<1>, network, NET<2> of ACME<3>, acme, C++<4>."
    assert slotted.fill("<4> <3> <2>: <1>") == "C-- Acme AG Netz: neuronales Netz"
    crossing = protection("none", {"a b": "x", "b c": "y"}).protect("a b c")
    assert (crossing.text, crossing.crossing) == ("a<1> b<1> c", 1)
    assert protection("none", {"a <2>": "x"}).protect("a <2>").text == "a<1> <<1> 2><1>"
    assert slotted.begin("Acme AG Netz in") == "<3> <2> in"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\tc\n", r"a term, a tab and its translation\. Received: 'a\\tb\\tc', line 1"),
        ("ok\tok\n\na\t \n", r"Received: 'a\\t ', line 3"),
        ("a\n", "Received: 'a', line 1"),
        ("a\tb\na\tc\n", "one translation for a term: leave out 'b' or the other"),
    ],
)
def test_a_glossary_with_other_lines_is_refused(tmp_path, text, message):
    (tmp_path / "g.tsv").write_text(text)
    with pytest.raises(UserError, match=message):
        Glossary.read(tmp_path / "g.tsv")


def test_a_file_of_patterns_replaces_the_kinds_unless_it_names_them(tmp_path, caplog):
    file = tmp_path / "patterns"
    file.write_text("# part numbers\n[A-Z]{2}-\\d+\n#\\w+\n")
    assert protection(file).protect("AB-12 at 12:30 #one").text == "<1> at 12:30 <2>"
    file.write_text("[A-Z]{2}-\\d+\ndefault\n")
    assert protection(str(file)).protect("AB-12 at 12:30").text == "<1> at <2>"
    file.write_text("[[ok]\n(\n")
    with pytest.raises(UserError, match=r"Received: '\(', line 2: "):
        protection(file)
    assert protection("none").protect("4711").text == "4711"
    file.write_text("\n")
    assert protection(file, file).protect("4711").text == "4711"
    assert caplog.messages == [f"{file} has no terms", f"{file} has no expressions"]
    for wrong in ({"glossary": ["a"]}, {"glossary": {"a": 3}}, {"protect": 3}):
        with pytest.raises(UserError, match=f"`{[*wrong][0]}` must"):
            protection(**wrong)


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("9.99 and 1,000 at 2:30", "9,99 und 1 000 um 2.30", []),
        ("Order 4711 costs 12", "Die Bestellung kostet 21",
         ["number missing: 4711", "number missing: 12", "number new: 21"]),
        ("{name} at a.b@c.de", "{name} {name}",
         ["placeholder doubled: {name}", "address missing: a.b@c.de"]),
        ("<b>Two</b> men, 5 dogs", "Zwei Männer, fünf <b>Hunde", ["tag missing: </b>"]),
        ("@tom", "@Tom", ["@name missing: @tom", "@name new: @Tom"]),
    ],
)  # fmt: skip
def test_what_is_missing_doubled_or_new_is_named(source, translation, expected):
    assert differences(source, translation) == expected


def test_the_time_is_linear_in_the_length_of_the_text():
    def seconds(size: int) -> float:
        text, start = (part * size)[:size], time.process_time()
        DEFAULT.protect(text)
        differences(text, text)
        return time.process_time() - start

    others = ["<a ", "1,", "1 ", "1:", "http://", "a.b-", "&a", "a@", "<!--", "a@b."]
    for part in [*"a@{`%", *others]:
        small = min(seconds(20_000) for _ in range(2))
        assert seconds(200_000) < 30 * small + 0.2, part
