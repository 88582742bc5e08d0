"""Files entry by entry: what is sent, kept, checked, written down and reported."""

import json
import re
from pathlib import Path

import pytest
from trained import small_model

from tf_transformer.base.errors import UserError
from tf_transformer.translation.files import translate_file as module
from tf_transformer.translation.files.translate_file import Format, Found, translate_file
from tf_transformer.translation.translator import Translator

CAPITALS = re.compile(r"</?x+\d+/?>|\{x+\d+\}|[^\W\d_]+")


def capitals(text: str) -> str:
    """Stands for a model: words in capitals, codes as they are."""
    return CAPITALS.sub(lambda m: m[0] if m[0][0] in "<{" else m[0].upper(), text)


class Model:
    """Stands for a model; `answers` replace its own, by the text that it gets."""

    def __init__(self, **answers: str) -> None:
        self.answers, self.asked = answers, []

    def __call__(self, texts, numbers):
        self.asked += [(text, numbers) for text in texts]
        return [Found(self.answers.get(text, capitals(text)), []) for text in texts]


def po(*entries: str) -> str:
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n'
    return head + "".join(f'\n#, c-format\nmsgid "{one}"\nmsgstr ""\n' for one in entries)


@pytest.fixture
def run(tmp_path):
    pytest.importorskip("polib")

    def run(text: str, model=None, name="in.po", **options):
        source, output = tmp_path / name, tmp_path / f"out{Path(name).suffix}"
        source.write_text(text)
        report = translate_file(source, output, model or Model(), ("en", "de"), **options)
        return output.read_text(), report

    return run


def strings(text: str) -> list[str]:
    return re.findall('msgstr "(.*)"', text)[1:]


def test_a_text_that_occurs_twice_is_searched_once_and_one_without_words_never(run):
    model = Model()
    text, report = run(
        po("A dog.", "%s %d", "A dog.") + '\nmsgctxt "x"\nmsgid "A dog."\nmsgstr ""\n', model
    )
    assert [asked for asked, _ in model.asked] == ["A dog."]
    assert strings(text) == ["A DOG.", "%s %d", "A DOG.", "A DOG."]
    assert report.counts == {"translated": 4, "kept": 0}


@pytest.mark.parametrize(
    ("source", "answer", "expected"),
    [
        ("Open", "Öffnen.", "Öffnen"),
        ("Name:", "Name", "Name:"),
        ("Name:", "Name.", "Name:"),
        ("Wait…", "Warte.", "Warte…"),
        ("Wait...", "Warte …", "Warte …"),
        ("A dog.", "Ein Hund.", "Ein Hund."),
        ("A dog", "Ein Hund!", "Ein Hund!"),
        ("Really?", "Wirklich.", "Wirklich."),
        ("One:\\ntwo", "Eins\\nzwei.", "Eins:\\nzwei"),
        ("&File", "Datei", "&Datei"),
        ("_Save…", "Sichern.", "_Sichern…"),
        ("&Open...", "開く", "開く(&O)..."),
    ],
)
def test_ends_and_keys_are_those_of_the_source(run, source, answer, expected):
    sent = source.replace("&", "").replace("_", "").replace("\\n", "\n")
    text, report = run(po(source), Model(**{sent: answer.replace("\\n", "\n")}))
    assert "".join(re.findall(r'^(?:msgstr )?"(.*)"$', text, re.M)[-2:]).endswith(expected)
    assert report.counts["translated"] == 1


def test_numbers_that_change_are_searched_again_as_spans(run):
    model = Model(**{"Wait 15 minutes.": "Warte 16 Minuten."})

    def translate(texts, numbers):
        found = model(texts, numbers)
        return [Found("Warte 15 Minuten.")] if numbers else found

    text, report = run(po("Wait 15 minutes.", "In 1,000 days."), translate)
    assert strings(text)[0] == "Warte 15 Minuten."
    assert model.asked[-1] == ("Wait 15 minutes.", True) and len(model.asked) == 3
    text, report = run(po("Wait 15 minutes."), model, numbers=False)
    assert strings(text) == [""] and report.counts["numbers changed"] == 1


@pytest.mark.parametrize(
    ("source", "answer", "expected", "reason"),
    [
        ("%s of %d.", "{x1} von {x0}.", "%2$d von %1$s.", ""),
        ("A <b>dog</b>.", "Ein Hund.", "", "tag missing"),
        ("A <b>dog</b>.", "Ein </x0>Hund<x0>.", "", "tags in another order"),
        ("A <b>dog</b>.", "Ein <x0>Hund</x0><x0>.", "", "tag doubled"),
        ("A %s.", "Ein.", "", "placeholder missing"),
        ("A dog.", " ", "", "blank"),
        ("A dog.", "Ein <x0>Hund</x0>.", "", "tag new"),
        ("A dog.", "Ein {x1} Hund.", "", "placeholder new"),
        ("A dog.", "Ein `<x0/>` Hund.", "", "tag new"),
        ("A dog.", "Ein %s Hund.", "", "placeholder new"),
        ("1.5 hours", "15 Stunden", "", "numbers changed"),
        ("-5 degrees", "5 Grad", "", "numbers changed"),
        ("1,000 at 12:30", "1.000 um 12.30", "1.000 um 12.30", ""),
    ],
)
def test_each_code_stands_once_and_in_an_order_that_is_right(
    run, source, answer, expected, reason
):
    sent = source.replace("%s", "{x0}").replace("%d", "{x1}")
    sent = sent.replace("<b>", "<x0>").replace("</b>", "</x0>")
    text, report = run(po(source, "Good."), Model(**{sent: answer}))
    assert strings(text) == [expected, "GOOD."]
    assert report.counts["translated"] == 2 - bool(reason)
    if reason:
        (record,) = report.records
        assert report.counts[reason] == 1 and record["reasons"] == [f"left: {reason}"]
        assert (
            record["line"] == 5 and record["source"] == source and source[:3] in record["name"]
        )


def test_work_goes_on_where_it_was_interrupted(run, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(module, "_CHUNK", 2)
    texts = [f"A dog {letter}." for letter in "abcde"]
    model = Model()

    def stops(chunk, numbers):
        if len(model.asked) == 4:
            raise KeyboardInterrupt
        return model(chunk, numbers)

    with pytest.raises(KeyboardInterrupt):
        run(po(*texts), stops, origin="a model")
    journal = tmp_path / "out.po.part"
    assert "the same command goes on" in caplog.text and not (tmp_path / "out.po").exists()
    journal.write_text(journal.read_text() + '["half a li')  # killed in the middle of it
    text, _ = run(po(*texts), model, origin="a model")
    assert strings(text) == [capitals(each) for each in texts] and len(model.asked) == 5
    assert not journal.exists()
    for content, what in (
        (f"{module._HEAD}another\n", "other settings"),
        ("my notes", "something"),
    ):
        journal.write_text(content)
        with pytest.raises(UserError, match=f"out.po.part holds .*{what}.* Remove it"):
            run(po(*texts), model, origin="a model")
        assert journal.read_text() == content


def test_what_the_second_reading_finds_is_left_alone(run, tmp_path, monkeypatch):
    def compare(before: bytes, after: bytes) -> str:
        return "a wrong entry" if b"BAD" in after else ""

    monkeypatch.setitem(module.FORMATS, ".po", Format(module.FORMATS[".po"].read, compare))
    entries = [f"Dog {letter}." for letter in "abcdefgh"]
    entries[2] = entries[5] = "Bad."
    entries[5] += " Bad."
    text, report = run(po(*entries))
    assert strings(text) == ["" if "Bad" in each else each.upper() for each in entries]
    assert report.counts["translated"] == 6
    assert [record["source"] for record in report.records] == ["Bad.", "Bad. Bad."]
    assert "a wrong entry" in report.records[0]["reasons"][1]
    monkeypatch.setattr(module, "_MOST_READINGS", 5)
    _, report = run(po(*entries))
    assert report.counts["not read a second time, since too many others fail"]
    assert (tmp_path / "out.po.part").exists()


def test_an_encoding_that_lacks_letters_becomes_utf_8_and_says_so(tmp_path, caplog):
    pytest.importorskip("polib")
    source, output = tmp_path / "in.po", tmp_path / "out.po"
    text = po("Fahrt nach Köln.").replace("UTF-8", "ISO-8859-1")
    for answer, encoding in (("À Cologne.", "ISO-8859-1"), ("Кёльн.", "UTF-8")):
        source.write_text(text, "iso-8859-1")
        model = Model(**{"Fahrt nach Köln.": answer})
        translate_file(source, output, model, ("de", "ru"))
        written = output.read_text(encoding)
        assert f"charset={encoding}" in written and answer in written and "Köln" in written
    assert "out.po is in UTF-8, since" in caplog.text


def test_other_files_are_refused_in_a_line(tmp_path):
    for name, content, message in (
        ("a.docx", "", r"must end in \.po, .*\. Received: a\.docx\. Plain text is for `tr"),
        ("none.po", None, r"none\.po cannot be read: No such file"),
        ("x.srt", "no times", r"x\.srt cannot be translated: no line has times"),
        (
            "y.po",
            'msgid ""\nmsgstr "Language: fr\\n"\n',
            "y.po cannot be .* to fr, the model to de",
        ),
    ):
        path = tmp_path / name
        if content is not None and name[0] in "xy":
            pytest.importorskip("polib")
            path.write_text(content)
        path = Path(name) if name == "a.docx" else path
        with pytest.raises(UserError, match=message):
            translate_file(path, tmp_path / "out", Model(), ("en", "de"))
    assert not [*tmp_path.glob("out*")]


def test_a_report_names_file_line_and_reasons(run, tmp_path):
    def translate(texts, numbers):
        return [Found("Hund", ["too short"]) for _ in texts]

    _, report = run(po("A very long dog, indeed"), translate)
    assert json.loads(json.dumps(report.records)) == [
        {"file": str(tmp_path / "in.po"), "line": 5, "name": "A very long dog, indeed",
         "reasons": ["too short"], "source": "A very long dog, indeed", "translation": "Hund"}
    ]  # fmt: skip


def test_a_model_with_slots_keeps_every_code_and_number(keeper, tmp_path):
    pytest.importorskip("polib")
    source, output = tmp_path / "in.po", tmp_path / "out.po"
    source.write_text(po("two <b>dogs</b> and %s of 47 dogs", "write %(a)s to %d %%"))
    report = keeper.translate_file(source, output, language="en")
    assert not [reason for reason in report.counts if re.search("missing|doubled", reason)]
    for text in strings(output.read_text()):
        spans = re.findall(r"</?b>|%\(a\)s|%[sd%]|\d+", text)
        assert sorted(spans) in ([], ["%s", "47", "</b>", "<b>"], ["%%", "%(a)s", "%d"])


def test_a_result_without_fault_is_read_once(run, monkeypatch):
    read = []
    compare = lambda before, after: read.append(before == after) or ""  # noqa: E731
    monkeypatch.setitem(module.FORMATS, ".po", Format(module.FORMATS[".po"].read, compare))
    run(po("A dog.", "A cat."))
    assert read == [True, False]  # the source as itself, then the result


def test_python_goes_on_only_with_the_same_model_and_settings(keeper, tmp_path, monkeypatch):
    pytest.importorskip("polib")
    monkeypatch.setattr(module, "_CHUNK", 1)
    source, output = tmp_path / "in.po", tmp_path / "out.po"
    source.write_text(po("two dogs", "write to order", "no span"))

    def stops(done, _):
        if done == 2:
            raise KeyboardInterrupt

    def translate(translator=keeper, **options):
        options = {"language": "en"} | options
        return translator.translate_file(source, output, **options)

    with pytest.raises(KeyboardInterrupt):
        translate(progress=stops)
    model = small_model(330)
    other = Translator(model, keeper.tokenizer, keeper.decoding)
    for again in (
        lambda: translate(other),
        lambda: translate(beam_size=2),
        lambda: translate(glossary={"dogs": "Hunde"}),
        lambda: translate(protect="none"),
        lambda: translate(language="fr"),
    ):
        with pytest.raises(UserError, match="holds work of other settings"):
            again()
    model.set_weights(keeper.model.get_weights())  # the same by its weights, not by its object
    done = []
    translate(other, progress=lambda *counts: done.append(counts), batch_tokens=500)
    assert output.exists() and done[0][0] == 3
