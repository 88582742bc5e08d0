"""Which side of a corpus a line belongs to."""

import random

import numpy as np
import pytest

from tf_transformer.data import builtin
from tf_transformer.doctor.pair_checks import learn_direction, swapped_pairs

PAIRS = builtin.pairs(2_000)


def swap(
    pairs: list[tuple[str, str]], share: float
) -> tuple[list[tuple[str, str]], np.ndarray]:
    """The pairs, with a random share of them the other way round; which these are."""
    rng = random.Random(1)
    swapped = np.array([rng.random() < share for _ in pairs])
    return [
        (t, s) if swap else (s, t) for (s, t), swap in zip(pairs, swapped, strict=True)
    ], swapped


def found(pairs: list[tuple[str, str]], learned_from: list[tuple[str, str]]) -> np.ndarray:
    weights = learn_direction(*zip(*learned_from, strict=True))
    return swapped_pairs(weights, *zip(*pairs, strict=True))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.25])
def test_swapped_pairs_are_found_among_those_they_spoil(share):
    pairs, swapped = swap(PAIRS, share)
    hits = found(pairs, learned_from=pairs)
    assert not np.any(hits & ~swapped)
    assert np.sum(hits & swapped) >= 0.9 * np.sum(swapped)


def test_text_of_one_language_on_both_sides_has_no_direction():
    english = [source for source, _ in PAIRS]
    pairs = list(zip(english[:1_000], english[1_000:], strict=True))
    assert not np.any(found(pairs, learned_from=pairs))


def test_names_numbers_and_copies_are_no_swap():
    odd = [("Tom!", "Tom!"), ("1984", "1984"), ("", ""), ("OK", "Berlin"), ("x" * 99, "1")]
    odd += [(target, target) for _, target in PAIRS[:50]]  # untranslated, but not swapped
    odd += [(source, source) for source, _ in PAIRS[:50]]
    assert not np.any(found(odd, learned_from=PAIRS))


def test_another_script_is_told_apart():
    rng = random.Random(2)
    greek = ["".join(rng.choice("αβγδε ") for _ in range(30)) for _ in PAIRS]
    pairs = [(source, line) for (source, _), line in zip(PAIRS, greek, strict=True)]
    hits = found([(t, s) for s, t in pairs[:100]], learned_from=pairs)
    assert hits.all()
    assert not np.any(found(pairs, learned_from=pairs))


def test_no_pairs_are_no_swaps():
    assert len(swapped_pairs(learn_direction([], []), [], [])) == 0


def test_long_corpora_are_looked_at_in_chunks(monkeypatch):
    weights = learn_direction(*zip(*PAIRS, strict=True))
    sides = [list(side) for side in zip(*swap(PAIRS, 0.2)[0], strict=True)]
    whole = swapped_pairs(weights, *sides)
    monkeypatch.setattr("tf_transformer.doctor.pair_checks.CHUNK_PAIRS", 7)
    np.testing.assert_array_equal(swapped_pairs(weights, *sides), whole)
    np.testing.assert_array_equal(learn_direction(*zip(*PAIRS, strict=True)), weights)
