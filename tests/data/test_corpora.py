"""Corpora by the names that --train takes: pairs of files, tables, names with languages."""

import gzip
from pathlib import Path

import pytest

from tf_transformer.config import DataConfig
from tf_transformer.data.text import all_pairs, corpora, split_name
from tf_transformer.errors import UserError

PAIRS = [("a dog", "ein Hund"), ("", "x"), ("two  cats", "zwei Katzen\u2028")]
DATA = DataConfig(source="en", target="de")


def table(path: Path, pairs=PAIRS) -> Path:
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def aligned(prefix: Path, languages: tuple[str, str], pairs=PAIRS) -> Path:
    for side, language in enumerate(languages):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        Path(f"{prefix}.{language}").write_text(text, "utf-8")
    return prefix


@pytest.mark.parametrize("name", ["t.tsv", "t.tsv.gz"])
def test_a_table_holds_the_pairs_of_two_files(tmp_path, name):
    names = [str(table(tmp_path / name)), str(aligned(tmp_path / "t", ("en", "de")))]
    one, other = corpora(names, DATA)
    assert list(one.pairs()) == list(other.pairs()) == PAIRS
    assert len(one) == len(other) == len(PAIRS)
    assert (one.file("source"), one.file("target")) == (tmp_path / name, tmp_path / name)
    assert other.file("target") == tmp_path / "t.de"
    assert list(all_pairs([one, other])) == [*PAIRS, *PAIRS]


@pytest.mark.parametrize(("line", "columns"), [("a dog", 1), ("0.9\ta dog\tein Hund", 3)])
def test_a_line_without_two_columns_is_refused_by_its_number(tmp_path, line, columns):
    path = table(tmp_path / "t.tsv")
    path.write_text(path.read_text("utf-8") + f"{line}\n", "utf-8")
    (corpus,) = corpora([str(path)], DATA)
    with pytest.raises(UserError, match=rf"t.tsv:4: .* TAB .*Received: {columns} columns"):
        corpus.check()


def test_a_name_may_end_in_its_languages(tmp_path):
    prefix = aligned(tmp_path / "t", ("fr", "en"))
    one, other = corpora([f"{prefix}:fr-en", f"{prefix}:en-fr"], DATA)
    assert (one.source, one.languages) == (tmp_path / "t.fr", ("fr", "en"))
    assert list(other.pairs()) == [(target, source) for source, target in PAIRS]
    with pytest.raises(UserError, match="There is no .*t.de"):
        corpora([str(prefix)], DATA)


@pytest.mark.parametrize(
    ("source", "target"),
    [("en", "pt-BR"), ("pt-BR", "en"), ("zh-Hans-CN", "es-419"), ("EN", "DE"), ("de_AT", "en")],
)
def test_a_language_may_have_a_script_and_a_region(source, target):
    name = f"a-b/x:{source}-{target}"
    assert split_name(name, DATA) == (Path("a-b/x"), (source, target))


def test_source_and_target_may_be_the_same_file(tmp_path):
    """A copied corpus (Currey et al. 2017)."""
    (tmp_path / "mono.de").write_text("eins\tzwei\ndrei\n")
    (text,) = corpora([f"{tmp_path / 'mono'}:de-de"], DataConfig(source="en", target="de"))
    text.check()
    assert list(text.pairs()) == [("eins\tzwei", "eins\tzwei"), ("drei", "drei")]


def test_a_prefix_may_end_like_a_table(tmp_path):
    prefix = aligned(tmp_path / "t.tsv", ("en", "de"))
    (corpus,) = corpora([str(prefix)], DATA)
    assert corpus.source == tmp_path / "t.tsv.en"


def test_a_tag_precedes_every_source_that_is_not_blank(tmp_path):
    data = DataConfig(source="en", target="de", tag=("de=<2de>",))
    (tagged,) = corpora([str(table(tmp_path / "t.tsv"))], data)
    expected = [("<2de> a dog", "ein Hund"), PAIRS[1], ("<2de> two  cats", PAIRS[2][1])]
    assert list(tagged.pairs()) == expected
    assert list(tagged.plain_pairs()) == PAIRS
