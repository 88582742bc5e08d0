"""The built-in corpus: a function from English to German, split without overlap."""

import re
from collections import Counter

import pytest

from tf_transformer.data import toy
from tf_transformer.data import toy_lexicon as lexicon

AUXILIARIES = {
    "habe", "hat", "haben", "bin", "ist", "sind", "war", "waren", "wurde", "wurden", "werde",
    "wird", "werden", "kann", "können", "sollte", "sollten", "will", "wollen", "muss", "müssen",
}  # fmt: skip


def _finite_forms() -> set[str]:
    verbs = [verb for verb, _ in lexicon.TRANSITIVE]
    verbs += [*lexicon.DATIVE, *lexicon.DITRANSITIVE, *lexicon.LOCAL, *lexicon.MOTION]
    verbs += [
        lexicon.LEAVE,
        lexicon.ARRIVE,
        lexicon.BEGIN,
        lexicon.END,
        lexicon.PAY,
        lexicon.COST,
    ]
    present = {
        verb.prefix + form for verb in verbs for form in (verb.first, verb.third, verb.german)
    }
    return present | AUXILIARIES


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str]]:
    return toy.generate(sum(toy.SIZES.values()))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> dict[str, tuple[list[str], list[str]]]:
    prefixes = toy.write_corpus(tmp_path_factory.mktemp("corpus"))
    return {split: tuple(map(_lines, _files(prefix))) for split, prefix in prefixes.items()}


def _files(prefix):
    return [prefix.with_name(f"{prefix.name}.{language}") for language in toy.LANGUAGES]


def _lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def _count_words(lines):
    return Counter(word for line in lines for word in re.findall(r"\w+", line))


def test_the_seed_decides_the_pairs(pairs):
    assert toy.generate(500) == pairs[:500]
    assert toy.generate(500, seed=1) != pairs[:500]


def test_no_sentence_occurs_twice_in_either_language(pairs):
    english, german = zip(*pairs, strict=True)
    assert len(set(english)) == len(set(german)) == len(pairs) == sum(toy.SIZES.values())


def test_no_english_sentence_has_two_translations():
    translations: dict[str, str] = {}
    for seed in range(3):
        for english, german in toy.generate(15_000, seed):
            assert translations.setdefault(english, german) == german
    assert len(translations) < 3 * 15_000  # so some sentences came up under several seeds


def test_sentences_are_short_capitalised_and_punctuated(pairs):
    for english, german in pairs:
        assert 4 <= len(english.split()) <= 16
        for sentence in (english, german):
            assert sentence[0].isupper() and sentence[-1] in ".?"
            assert "  " not in sentence and sentence == sentence.strip()


def test_negative_number_of_pairs_is_refused():
    with pytest.raises(ValueError, match="num_pairs=-1"):
        toy.generate(-1)


def test_splits_share_no_sentence_in_either_language(corpus):
    for side in range(2):
        held_out = corpus["dev"][side] + corpus["test"][side]
        assert len(set(held_out)) == len(held_out)
        assert not set(held_out) & set(corpus["train"][side])


def test_splits_have_their_sizes_and_aligned_sides(corpus):
    assert {split: len(sides[0]) for split, sides in corpus.items()} == dict(toy.SIZES)
    assert all(len(source) == len(target) for source, target in corpus.values())


@pytest.mark.parametrize("seed", range(3))
def test_held_out_words_all_occur_repeatedly_in_the_training_text(tmp_path, seed):
    files = {
        split: _files(prefix) for split, prefix in toy.write_corpus(tmp_path, seed).items()
    }
    for side in range(2):
        train, dev, test = (_count_words(_lines(files[split][side])) for split in toy.SIZES)
        assert {word for word in dev | test if train[word] < 3} == set()


def test_held_out_sentences_show_every_construction(corpus):
    german = "\n".join(corpus["test"][1])
    for pattern in (", dass ", ", ob ", ", weil ", r"^Wenn ", r", (der|die|das|den) \w+ .*,",
                    r"\?$", r"um halb ", r"\d,\d\d Euro", r"\d\. \w+ \d{4}", "kein", "nicht",
                    "geboren", r"\w+und(zwanzig|\w+ßig|\w+zig)"):  # fmt: skip
        assert re.search(pattern, german, re.MULTILINE), pattern


@pytest.mark.parametrize(
    "clause",
    [
        r", (?:dass|ob|weil) (.*)\.$",
        r"^Wenn ([^,]*),",
        r", (?:der|die|das|den) (.*), (?:ist|sind|w)",
    ],
    ids=["conjunction", "condition", "relative"],
)
def test_subordinate_clauses_end_with_the_finite_verb(pairs, clause):
    matches = [re.search(clause, german) for _, german in pairs]
    last_words = [match[1].split()[-1] for match in matches if match]
    assert len(last_words) > 500
    assert set(last_words) <= _finite_forms()


def test_main_clauses_with_two_verbs_end_with_the_infinitive_or_participle(pairs):
    second = re.compile(r"^\w+ (?:hat|habe|haben|wird|kann|muss|will) ([^,]*)\.$")
    last_words = [
        match[1].split()[-1] for _, german in pairs if (match := second.search(german))
    ]
    assert len(last_words) > 500
    assert all(re.search(r"(en|ern|t)$", word) and word[0].islower() for word in last_words)


def test_files_are_utf8_with_unix_line_ends(tmp_path):
    prefixes = toy.write_corpus(tmp_path, sizes={"train": 40, "dev": 10})
    assert prefixes == {"train": tmp_path / "train", "dev": tmp_path / "dev"}
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == ["dev.de", "dev.en", "train.de", "train.en"]
    for path in tmp_path.iterdir():
        data = path.read_bytes()
        assert data.endswith(b"\n") and b"\r" not in data
    assert len(_lines(tmp_path / "train.de")) == 40
    both = set()
    for prefix in prefixes.values():
        both |= set(zip(*map(_lines, _files(prefix)), strict=True))
    assert both == set(toy.generate(50))


def test_right_files_are_left_alone_and_wrong_ones_repaired(tmp_path):
    sizes = {"train": 40, "dev": 10}
    toy.write_corpus(tmp_path, sizes=sizes)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    right = (tmp_path / "dev.de").read_bytes()
    (tmp_path / "dev.de").write_bytes(right[:-5])
    toy.write_corpus(tmp_path, sizes=sizes)
    assert (tmp_path / "dev.de").read_bytes() == right
    unchanged = [path for path, time in before.items() if path.stat().st_mtime_ns == time]
    assert {path.name for path in unchanged} == {"train.en", "train.de", "dev.en"}
