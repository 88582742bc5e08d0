"""Slots in training: words that belong together, replaced on both sides, by seed and step."""

import re
from collections import Counter

import numpy as np
import pytest

from tf_transformer.config import PAD_ID, SLOTS
from tf_transformer.data.batches import make_dataset
from tf_transformer.data.encoded_corpus import EncodedCorpus, encode_corpus
from tf_transformer.data.plan import BatchPlan
from tf_transformer.data.subword_sampling import SubwordSampler
from tf_transformer.data.text import SIDES
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import symbol_pieces, train_tokenizer
from tf_transformer.terms.slot_sampler import SlotSampler

LENGTH = 64
RANDOM = np.random.default_rng(0)
SYLLABLES = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
SOURCE_WORDS = ["".join(RANDOM.choice(SYLLABLES, 3)) for _ in range(200)]
TARGET_WORDS = [word[::-1] + "x" for word in SOURCE_WORDS]
LEXICON = dict(zip(SOURCE_WORDS, TARGET_WORDS, strict=True))


def pair(number: int) -> tuple[str, str]:
    """A sentence of words that differ, and their translations in another order; and a name."""
    words = RANDOM.choice(SOURCE_WORDS, RANDOM.integers(3, 9), replace=False)
    name = f"{number}.{RANDOM.integers(100, 999)}@ab.de"
    target = [LEXICON[word] for word in RANDOM.permutation(words)]
    return f"The {' '.join(words)}, {name}!", f"De {name}: {' '.join(target)}."


PAIRS = [pair(number) for number in range(1_500)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    lines = [line for both in PAIRS for line in both]
    train_tokenizer(lines, path, vocab_size=800, symbols=symbol_pieces([*SLOTS, "<2x>"]))
    return Tokenizer(path)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, tokenizer) -> EncodedCorpus:
    folder = tmp_path_factory.mktemp("corpus") / "c"
    return encode_corpus([PAIRS], tokenizer, folder, max_length=LENGTH, max_ratio=9.0)


@pytest.fixture(scope="module")
def sampler(tmp_path_factory, corpus, tokenizer) -> SlotSampler:
    folder = tmp_path_factory.mktemp("slots") / "slots"
    return SlotSampler.mined(corpus, tokenizer, folder, 1.0, seed=1)


def with_slots(sampler, corpus, tokenizer, indices, step, tags=0) -> list[tuple[str, str]]:
    sides = []
    for side in SIDES:
        rows = corpus.padded(side, indices, 2 * LENGTH, tags if side == "source" else 0)
        found = sampler.put(side, rows, indices, step, tags)
        sides.append([tokenizer.texts([row[row != PAD_ID][:-1]])[0] for row in found])
    return list(zip(*sides, strict=True))


def test_text_without_words_in_common_has_no_slots(tmp_path, tokenizer, caplog):
    options = {"max_length": LENGTH, "max_ratio": 9.0}
    corpus = encode_corpus([[("...", "!!!")] * 3], tokenizer, tmp_path / "c", **options)
    sampler = SlotSampler.mined(corpus, tokenizer, tmp_path / "s", 1.0, seed=1)
    assert "data.slots has no effect: no words of the pairs could be aligned" in caplog.text
    assert with_slots(sampler, corpus, tokenizer, np.arange(3), 1) == [("...", "!!!")] * 3
    assert sampler.summary() == "slots: 0.0 aligned words a pair, slots in 100% of the pairs"


def test_words_that_belong_together_are_mined(corpus, sampler, tokenizer):
    pieces, found = tokenizer.vocabulary(), []
    for row in range(len(corpus)):
        for a, b, c, d, facts in sampler._spans[
            sampler._starts[row] : sampler._starts[row + 1]
        ]:
            sides = (corpus.source(row)[a:b], corpus.target(row)[c:d])
            found.append(tuple("".join(pieces[i] for i in ids).strip("▁") for ids in sides))
            assert facts == (3 if found[-1][0] == found[-1][1] else 1)  # spaced, and equal
    right = [LEXICON.get(source, source) == target for source, target in found]
    assert np.mean(right) > 0.99
    assert sum("@" in source for source, _ in found) == len(corpus)  # whole, though of parts
    assert sum(right) > 0.9 * sum(len(source.split()) - 1 for source, _ in PAIRS)
    assert "The" not in dict(found)  # too frequent


def test_both_sides_lose_words_that_belong_together_or_the_target_alone(
    corpus, sampler, tokenizer
):
    kinds = Counter()
    texts = with_slots(sampler, corpus, tokenizer, np.arange(len(corpus)), step=3)
    for original, sides in zip(PAIRS, texts, strict=True):
        slots = [re.findall("<[1-9]>", text) for text in sides]
        assert slots[0] == sorted(slots[0]) and {*slots[0]} == {*slots[1]}
        assert len({*slots[1]}) == len(slots[1])
        # A term: its words stay in the source, and its slot touches each.
        terms = re.findall(r"(\S*\w)<[1-9]>", sides[0])
        sides = re.sub(r"(?<=\w)<[1-9]>", "", sides[0]), sides[1]
        lost = []
        for text, whole in zip(sides, original, strict=True):
            words = [re.sub("[,:!]|[.]$", "", word) for word in whole.split()]
            rest = [re.sub("[,:!]|[.]$", "", word) for word in text.split() if "<" not in word]
            lost.append(Counter(words) - Counter(rest))
        gone = lost[0] + Counter(terms)
        assert Counter({LEXICON.get(w, w): count for w, count in gone.items()}) == lost[1]
        kinds["stay"] += len(slots[1]) > sum(lost[1].values())
        kinds["words"] += bool(lost[0])
        kinds["terms"] += bool(terms)
        kinds["long terms"] += len(slots[0]) > len(slots[1])
        kinds[len(slots[1])] += 1
    assert min(kinds[name] for name in ("stay", "words", "terms", "long terms")) > 50
    assert {1, 2, 3, 4, 5} < kinds.keys()


def test_slots_depend_on_seed_step_and_pair(tmp_path, corpus, sampler, tokenizer, caplog):
    def drawn(one=sampler, step=5, rows=range(50)):
        return with_slots(one, corpus, tokenizer, np.array(rows), step)

    assert drawn() == drawn() and drawn(step=6) != drawn()
    assert drawn(rows=[7]) == drawn()[7:8]  # whatever else is in the batch
    again = SlotSampler.mined(corpus, tokenizer, tmp_path / "s", 1.0, seed=1)
    kept = {file: file.stat().st_mtime_ns for file in (tmp_path / "s").iterdir()}
    other = SlotSampler.mined(corpus, tokenizer, tmp_path / "s", 1.0, seed=2)
    assert drawn(again) == drawn() != drawn(other)
    assert kept == {file: file.stat().st_mtime_ns for file in (tmp_path / "s").iterdir()}
    never = SlotSampler.mined(corpus, tokenizer, tmp_path / "s", 0.0, seed=1)
    assert drawn(never) == [tuple(map(str, both)) for both in PAIRS[:50]]
    (tmp_path / "s" / "made_from.txt").write_text(f"1 {corpus.fingerprint}")
    assert drawn(SlotSampler.mined(corpus, tokenizer, tmp_path / "s", 1.0, seed=1)) == drawn()
    assert "not bit for bit" in caplog.text


def test_joined_pairs_get_slots_in_each_part(tmp_path, tokenizer):
    tagged = [(f"<2x> {source}", target) for source, target in PAIRS[:200]]
    options = {"max_length": LENGTH, "max_ratio": 9.0}
    corpus = encode_corpus([tagged], tokenizer, tmp_path / "c", **options)
    sampler = SlotSampler.mined(corpus, tokenizer, tmp_path / "s", 1.0, seed=1)
    indices = np.array([[row, row + 1] for row in range(0, 200, 2)])
    second = 0
    for sides in with_slots(sampler, corpus, tokenizer, indices, 1, np.ones(100, int)):
        slots = [re.findall("<[1-9]>", text) for text in sides]
        assert {*slots[0]} == {*slots[1]} and sides[0].startswith("<2x>")
        assert sides[0].count("The") == sides[1].count("De") == 2
        second += "<" in sides[0].rpartition("The")[2]
    assert second > 50


def test_batches_resume_with_the_same_slots(corpus, sampler, tokenizer):
    lengths = [corpus.lengths(side) for side in SIDES]
    plan = BatchPlan(*lengths, batch_tokens=512, max_length=LENGTH, seed=1)
    subwords = SubwordSampler(corpus, tokenizer, 0.1, seed=1)
    options = {"sampler": subwords, "put_slots": sampler.put}
    unbroken = list(make_dataset(corpus, plan, num_steps=5, **options).as_numpy_iterator())[3:]
    resumed = make_dataset(corpus, plan, start_step=3, num_steps=2, **options)
    for (inputs, labels), (again, same) in zip(
        unbroken, resumed.as_numpy_iterator(), strict=True
    ):
        np.testing.assert_array_equal(labels, same)
        np.testing.assert_array_equal(inputs["source"], again["source"])
        ids = tokenizer.slots()
        assert np.isin(labels, ids).any()
        for row, other in zip(inputs["source"], labels, strict=True):
            counts = [[np.isin(forms, side).any() for forms in ids] for side in (row, other)]
            assert counts[0] == counts[1]
