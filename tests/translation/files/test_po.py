"""Catalogs of gettext: which entries are translated, how they are written, and what stays."""

import time

import pytest

from tf_transformer.base.errors import UserError
from tf_transformer.translation.files import po, second_reading
from tf_transformer.translation.files.entries import Code

HEADER = r"""msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Language: {}\n"
"Plural-Forms: {}\n"

"""
RULES = {
    "ja": "nplurals=1; plural=0;",
    "de": "nplurals=2; plural=(n != 1);",
    "pl": "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2);",
    "ru": "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2);",
}
DOGS = '#, c-format\nmsgid "A dog"\nmsgid_plural "%d dogs"\nmsgstr[0] ""\n'


def capitals(text):
    """Translates a text: capitals, and the number that stands for a placeholder before it."""
    pieces = []
    for piece in text.pieces:
        number, code = text.stands_in or ("-", None)
        if isinstance(piece, str) and number in piece:
            pieces += [f"({number})", code, piece.replace(number, "").upper()]
        else:
            pieces.append(piece if isinstance(piece, Code) else piece.upper())
    return pieces


def translated(text, language="de", fuzzy=False, translate=capitals):
    content = text.encode()
    document = po.read(content, ("en", language), fuzzy)
    found = [entry.edits([*map(translate, entry.texts)]) for entry in document.entries]
    written, _ = document.with_edits(
        [edit for each in [*found, document.edits] for edit in each]
    )
    assert second_reading.compare_po(content, written) == ""  # and msgfmt accepts it
    return written.decode()


def after(body, language="de", **arguments):
    """Returns what follows the header of a catalog after its translation."""
    header = HEADER.format(language, RULES[language])
    return translated(header + body, language, **arguments).removeprefix(header)


def test_a_translation_is_written_like_its_source():
    body = 'msgid "a \\"b\\"\\t\\\\"\nmsgstr ""\n\n'
    body += 'msgid ""\n"a\\n"\n"\\303\\244\\x41\\n"\nmsgstr ""\n'
    found = after(body)
    assert 'msgstr "A \\"B\\"\\t\\\\"\n' in found
    assert found.endswith('msgstr ""\n"A\\n"\n"ÄA\\n"\n')
    text = ("\ufeff" + HEADER.format("de", "") + body).replace("\n", "\r\n")
    assert translated(text).replace("\r\n", "\n").endswith(found)
    assert translated(text).count("\r\n") == translated(text).count("\n")


def test_control_characters_are_written_so_that_no_letter_follows_their_digits():
    found = after('msgid "\\a\\vBeef \\007face \\x01"\nmsgstr ""\n')
    assert found.endswith('msgstr "\\a\\vBEEF \\aFACE \\001"\n')


def test_line_ends_are_those_of_each_line():
    first, last = (
        '#, fuzzy\nmsgid "a"\nmsgstr "b"\n\n',
        '#, fuzzy, x\r\n#| msgid "x"\nmsgid "c"\r\n',
    )
    assert after(f'{first}{last}msgstr "d"\r\n') == (
        'msgid "a"\nmsgstr "A"\n\n#, x\r\nmsgid "c"\r\nmsgstr "C"\r\n'
    )


def test_a_long_message_takes_little_time():
    start = time.perf_counter()
    document = po.read(
        ('msgid ""\n' + '"a dog and a cat\\n"\n' * 40_000 + 'msgstr ""').encode(), ("", "")
    )
    assert len(document.entries[0].texts[0].pieces[0]) == 640_000
    assert time.perf_counter() - start < 10


def test_translated_and_old_entries_stay():
    body = '#~ # old\n#~ msgid "a"\n#~ msgstr "b"\n\nmsgid "c"\nmsgstr "d"\n'
    assert after(body) == body
    assert po.read(body.encode(), ("en", "de")).kept == 1


def test_a_fuzzy_entry_is_translated_and_final_or_marked_as_fuzzy():
    body = '# x\n#, fuzzy, c-format\n#| msgid "old"\n#| "more"\nmsgid "a"\nmsgstr "b"\n'
    assert after(body) == '# x\n#, c-format\nmsgid "a"\nmsgstr "A"\n'
    assert after(body.replace(", c-format", "")) == '# x\nmsgid "a"\nmsgstr "A"\n'
    others = 'msgid "b"\nmsgstr ""\n\nmsgid "c"\nmsgstr "d"\n'
    assert after(body + others, fuzzy=True) == (
        '# x\n#, fuzzy, c-format\nmsgid "a"\nmsgstr "A"\n'
        '#, fuzzy\nmsgid "b"\nmsgstr "B"\n\nmsgid "c"\nmsgstr "d"\n'
    )


@pytest.mark.parametrize("language", RULES)
def test_each_form_of_a_plural_is_of_its_kind(language):
    dogs = {"ja": "%d", "de": "A %d", "pl": "A (2)%d (5)%d", "ru": "(21)%d (2)%d (5)%d"}
    forms = dogs[language].split()
    forms = [
        f'msgstr[{at}] "{form} DOG{"S" * (form != "A")}"\n' for at, form in enumerate(forms)
    ]
    assert after(DOGS, language) == DOGS.replace('msgstr[0] ""\n', "".join(forms))
    there = DOGS.replace('""', '"%d x"')
    forms[0] = 'msgstr[0] "%d x"\n'
    assert after(there, language) == there.replace(forms[0], "".join(forms))


def test_a_form_whose_translation_has_a_fault_is_as_another():
    def translate(text):
        return None if text.stands_in and text.stands_in[0] == "2" else capitals(text)

    found = after(DOGS, "pl", translate=translate)
    assert found.endswith('"A DOG"\nmsgstr[1] "(5)%d DOGS"\nmsgstr[2] "(5)%d DOGS"\n')


def test_arguments_beside_the_number_are_numbered():
    found = after(DOGS.replace("A dog", "%s: %d dog").replace('"%d dogs', '"%s: %d dogs'), "pl")
    assert '"%s: %d DOG"\nmsgstr[1] "%1$s: (2)%2$d DOGS"' in found


def test_all_formats_of_an_entry_are_kept():
    body = '#, python-brace-format, python-format\nmsgid "in %(dir)s{sep}x"\nmsgstr ""\n'
    assert after(body).endswith('msgstr "IN %(dir)s{sep}X"\n')


def test_a_template_is_completed_for_the_language_of_the_model():
    names = (
        r'"PO-Revision-Date: YEAR-MO-DA\n" "Language: \n" "Content-Type: ; charset=CHARSET\n"'
    )
    header = '#, fuzzy\nmsgid ""\nmsgstr ""\n' + names.replace(' "', '\n"') + "\n\n"
    found, _, entry = translated(header + DOGS + 'msgstr[1] ""\n').partition("\n\n")
    assert found.startswith('msgid ""\nmsgstr ""\n"PO-Revision-Date: 20')
    for line in ("Language: de", "charset=UTF-8", f"Plural-Forms: {RULES['de']}"):
        assert f'{line}\\n"' in found
    assert entry.endswith('msgstr[0] "A DOG"\nmsgstr[1] "%d DOGS"\n')
    assert second_reading._fault(f"{found}\n\n{entry}".encode()) == ""
    assert translated(header + DOGS, "ja").endswith('msgstr[0] "%d DOGS"\n')
    unknown = po.read((header + DOGS).encode(), ("en", ""))
    assert [each.reason for each in unknown.left] == ["a plural without Plural-Forms"]


def test_a_header_may_lack_its_last_line_end_and_only_its_charset_counts():
    named = '"charset=latin1 é—"'
    text = '# {0}\nmsgid ""\nmsgstr "Content-Type: text/plain; charset={1}"\n\n'
    text += '#. {0}\nmsgid {0}\nmsgstr ""\n'
    found = translated(text.format(named, "CHARSET"))
    assert 'charset=UTF-8\\n"\n"Language: de\\n"\n' in found
    document = po.read(text.format(named, "UTF-8").encode(), ("en", "de"))
    assert document.text[slice(*document.declaration)] == "UTF-8"
    assert document.declaration[0] == document.text.index("UTF-8")


def test_what_cannot_be_read_is_refused():
    for text, message in (
        (HEADER.format("fr", ""), "The file is to fr, the model to de"),
        ('msgid "a"\n\nmsgid "b"\nmsgstr ""\n', "line 3 is not"),
        ('msgid "a"\nmsgstr "\n', "line 2 is not"),
        ('msgid ""\nmsgstr "charset=no-such\\n"\n', "not in no-such"),
    ):
        with pytest.raises(UserError, match=message):
            po.read(text.encode(), ("en", "de"))


def test_another_encoding_is_kept_until_it_lacks_letters():
    header = HEADER.format("de", "").replace("UTF-8", "ISO-8859-1")
    content = (header + 'msgid "é"\nmsgstr ""\n').encode("latin-1")
    document = po.read(content, ("en", "de"))
    for letter, encoding in (("É", "ISO-8859-1"), ("Ж", "UTF-8")):
        written, name = document.with_edits(document.entries[0].edits([[letter]]))
        assert name == encoding
        assert f"charset={encoding}" in written.decode(name)
        assert second_reading.compare_po(content, written) == ""


def test_the_second_reading_finds_what_has_changed():
    entry = '#, python-format\nmsgid "%d of %s"\nmsgstr "{}"\n\nmsgid "a"\nmsgstr "b"\n'
    before, good = (HEADER.format("de", "") + entry.format(text) for text in ("", "%d von %s"))
    assert second_reading.compare_po(before.encode(), good.encode()) == ""
    changes = (
        "%d von>von|%d von %s>%s von %d|#, p>#. p|e: de>e: fr|%d of>%d in|b>c|%d of>%d\\nof"
    )
    for old, new in (change.split(">") for change in changes.split("|")):
        assert second_reading.compare_po(before.encode(), good.replace(old, new).encode())
