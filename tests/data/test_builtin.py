"""The built-in corpus: a function from English to German, split without overlap."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tf_transformer.data import builtin


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str]]:
    return builtin.pairs()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> dict[str, tuple[list[str], list[str]]]:
    prefixes = builtin.write_splits(tmp_path_factory.mktemp("corpus"))
    return {
        split: tuple(_lines(Path(f"{prefix}.{language}")) for language in builtin.LANGUAGES)
        for split, prefix in prefixes.items()
    }


def _lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def _count_words(lines):
    return Counter(word for line in lines for word in re.findall(r"\w+", line))


def test_no_sentence_occurs_twice_in_either_language(pairs):
    english, german = zip(*pairs, strict=True)
    assert len(set(english)) == len(set(german)) == len(pairs) == sum(builtin.SIZES.values())


def test_splits_have_their_sizes_and_together_all_pairs(corpus, pairs):
    assert {split: len(sides[0]) for split, sides in corpus.items()} == dict(builtin.SIZES)
    written = [pair for sides in corpus.values() for pair in zip(*sides, strict=True)]
    assert sorted(written) == sorted(pairs)


def test_all_held_out_words_recur_in_the_training_text(corpus):
    for side in range(2):
        train, dev, test = (_count_words(corpus[split][side]) for split in builtin.SIZES)
        assert {word for word in dev | test if train[word] < 3} == set()


def test_held_out_sentences_show_every_construction(corpus):
    german = "\n".join(corpus["test"][1])
    for pattern in (", dass ", ", ob ", ", weil ", r"^Wenn ", r", (der|die|das|den) \w+ .*,",
                    r"\?$", r"um halb ", r"\d,\d\d Euro", r"\d\. \w+ \d{4}", "kein", "nicht",
                    "geboren", r"\w+und(zwanzig|\w+ßig|\w+zig)"):  # fmt: skip
        assert re.search(pattern, german, re.MULTILINE), pattern


def test_correct_files_are_left_alone_and_damaged_ones_repaired(tmp_path):
    sizes = {"train": 40, "dev": 10}
    builtin.write_splits(tmp_path, sizes=sizes)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    right = (tmp_path / "dev.de").read_bytes()
    (tmp_path / "dev.de").write_bytes(right[:-5])
    builtin.write_splits(tmp_path, sizes=sizes)
    assert (tmp_path / "dev.de").read_bytes() == right
    unchanged = [path for path, time in before.items() if path.stat().st_mtime_ns == time]
    assert {path.name for path in unchanged} == {"train.en", "train.de", "dev.en"}
