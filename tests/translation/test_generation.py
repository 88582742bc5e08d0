"""Synthetic pairs: which are kept, why others are dropped, and interrupted generation."""

import dataclasses
import gzip
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tf_transformer.base.errors import UserError
from tf_transformer.config import SamplingConfig
from tf_transformer.decoding.interface import Translation
from tf_transformer.loading.translators import load_translator
from tf_transformer.run import Run
from tf_transformer.translation.generation import (
    Filters,
    GenerationSettings,
    generate,
    summary,
)
from tf_transformer.translation.translator import Translator

ALL = Filters(max_tokens=1_000, max_ratio=1_000, min_log_prob=-math.inf)
NO_TEXT = "not text (U+FFFD, a control character, an unknown piece)"
DRAW = SamplingConfig(seed=3)


@pytest.fixture(scope="module")
def translator(trained_run) -> Translator:
    run = Run.open(trained_run.path)
    return load_translator(run, "best")


@pytest.fixture(scope="module")
def lines(trained_run) -> list[str]:
    return trained_run.lines("train.en")[:23]


def pairs_of(path: Path) -> list[tuple[str, ...]]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [tuple(line.split("\t")) for line in data.decode().splitlines()]


@pytest.mark.parametrize("name", ["out.tsv", "out.tsv.gz"])
def test_each_line_is_paired_with_its_translation(translator, lines, tmp_path, name):
    best = translator.translate(lines)
    output = tmp_path / name
    counts = generate(
        translator, lines, output, GenerationSettings(filters=ALL, shard_lines=10)
    )
    assert pairs_of(output) == list(zip(lines, best, strict=True))
    assert counts == Counter(read=23, kept=23)
    assert list(tmp_path.iterdir()) == [output]
    generate(
        translator, lines, tmp_path / "back.tsv", GenerationSettings(filters=ALL, back=True)
    )
    assert pairs_of(tmp_path / "back.tsv") == list(zip(best, lines, strict=True))


class Stopped(Exception):
    pass


def stop_at(number: int) -> Callable[[int], None]:
    """A progress function that interrupts the generator after so many lines."""

    def progress(done: int) -> None:
        if done == number:
            raise Stopped

    return progress


@pytest.mark.parametrize("sampling", [None, DRAW])
def test_an_interrupted_generator_resumes_to_the_same_bytes(
    translator, lines, tmp_path, sampling
):
    settings = GenerationSettings(filters=ALL, sampling=sampling, shard_lines=5)
    whole, parts = tmp_path / "whole.tsv.gz", tmp_path / "parts.tsv.gz"
    expected = generate(translator, lines, whole, settings)
    for number in (10, 15):
        with pytest.raises(Stopped):
            generate(translator, lines, parts, settings, stop_at(number))
        assert not parts.exists()
    shards = sorted((tmp_path / "parts.tsv.gz.shards").glob("*.tsv"))
    assert len(shards) == 3
    kept = [shard.stat().st_mtime_ns for shard in shards]

    def check(done: int) -> None:
        assert [shard.stat().st_mtime_ns for shard in shards] == kept

    assert generate(translator, lines, parts, settings, check) == expected
    assert parts.read_bytes() == whole.read_bytes()


def test_shards_of_other_settings_are_refused(translator, lines, tmp_path):
    output = tmp_path / "out.tsv"
    settings = GenerationSettings(filters=ALL, shard_lines=5, origin={"--tag": None})
    with pytest.raises(Stopped):
        generate(translator, lines, output, settings, stop_at(5))
    for change, name in (
        ({"origin": {"--tag": "<2de>"}}, "--tag"),
        ({"shard_lines": 6}, "shard_lines"),
        ({"sampling": DRAW}, "sampling"),
    ):
        with pytest.raises(UserError, match=f"out.tsv.shards holds .* a different {name}"):
            generate(translator, lines, output, dataclasses.replace(settings, **change))


@pytest.mark.parametrize(
    ("text", "length", "translation", "log_prob", "tokens", "reason"),
    [
        ("a dog", 3, "ein Hund", -3.0, 3, ""),
        ("", 1, "", 0.0, 1, "empty"),
        ("a dog", 3, " \u200b", -3.0, 3, "empty"),
        ("a\tdog", 3, "ein Hund", -3.0, 3, "with a TAB or an end of line"),
        ("a dog", 3, "ein\nHund", -3.0, 3, "with a TAB or an end of line"),
        ("a dog", 3, "ein\0Hund", -3.0, 3, NO_TEXT),
        ("a d\ufffdg", 3, "ein Hund", -3.0, 3, NO_TEXT),
        ("a dog", 3, "ein ⁇", -3.0, 1, NO_TEXT),  # the token is UNK
        ("a dog", 9, "ein Hund", -3.0, 5, "longer than 8 tokens"),
        ("a dog", 3, "ein Hund", -3.0, 7, "with a length ratio above 2"),
        ("a dog", 3, "a dog ", -3.0, 3, "copied"),
        ("a dog", 3, "ein Hund", -3.1, 3, "less probable than -1 a token"),
    ],
)
def test_a_pair_is_dropped_for_its_first_reason(
    text, length, translation, log_prob, tokens, reason
):
    filters = Filters(max_tokens=8, max_ratio=2.0, min_log_prob=-1.0)
    found = Translation(translation, 0, log_prob, tokens, tokens=[tokens])
    assert filters.reason(text, length, found) == reason


def test_dropped_pairs_are_counted_by_reason(translator, lines, tmp_path):
    best = translator.translate(lines)
    means = sorted(one.log_prob / one.num_tokens for one in best)
    least = (means[9] + means[10]) / 2
    filters = Filters(max_tokens=1_000, max_ratio=1_000, min_log_prob=least)
    output = tmp_path / "o.tsv"
    settings = GenerationSettings(filters=filters, shard_lines=4)
    counts = generate(translator, [*lines, ""], output, settings)
    reason = f"less probable than {least:g} a token"
    assert counts == {"read": 24, "kept": 13, "empty": 1, reason: 10}
    assert len(pairs_of(output)) == 13
    line = summary(Counter(read=2_000, kept=1_999, empty=1))
    assert line == "2,000 lines read, 1,999 pairs kept; dropped: 1 empty"


def test_pairs_whose_input_was_cut_are_dropped(trained_run, lines, tmp_path):
    """Their translation is that of the beginning only."""
    run = Run.open(trained_run.path)
    decoding = dataclasses.replace(run.config.decoding, max_source_length=40)
    translator = load_translator(run, "best", decoding=decoding)
    output = tmp_path / "o.tsv"
    counts = generate(
        translator, [lines[0], lines[0] * 40], output, GenerationSettings(filters=ALL)
    )
    assert counts == {"read": 2, "kept": 1, "cut at 40 tokens, the limit of the model": 1}
