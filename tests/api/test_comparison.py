"""A comparison of three systems, one with three seeds."""

import json

import pytest

from tf_transformer.api.compare import System, compare_outputs, members, shared_settings
from tf_transformer.base.output import MARKDOWN, Table, joined
from tf_transformer.config import Config
from tf_transformer.evaluation import make_metric
from tf_transformer.run import Run

REFERENCE = ["the cat sat on the mat", "a dog runs in the park", "it rains | today", "yes"]
FLAWED = ["the cat sat on the", "a dog runs in park", "it rains | today", "no"]
WRONG = ["x", "y", "z", "yes"]
SYSTEMS = [
    System("flawed", [FLAWED], {"model.d_ff": 8, "training.seed": 1}),
    System(
        "seeds_3", [WRONG, REFERENCE, FLAWED], {"model.d_ff": 8, "training.seed": [1, 2, 3]}
    ),
    System("file", [REFERENCE]),
]


@pytest.fixture(scope="module")
def report():
    metrics = {"chrf": make_metric("chrf", [REFERENCE])}
    return compare_outputs(SYSTEMS, metrics, [], [REFERENCE], most=1)


@pytest.fixture(scope="module")
def tables(report):
    """The rows of scores, sentences, largest differences and settings."""
    return [part.rows for part in report if isinstance(part, Table)]


def test_the_seed_nearest_to_the_mean_is_tested(tables):
    metric = make_metric("chrf", [REFERENCE])
    scores = [metric.corpus_score(output, None).score for output in SYSTEMS[1].outputs]
    row = tables[0][1]
    assert row[1].startswith(f"{sum(scores) / 3:.2f} ± ")
    assert row[4:] == ["1.0000", "1.0000"]  # the same output as the first's


def test_sentences_are_counted_and_the_largest_difference_is_shown(tables):
    first, same, better = tables[1]
    assert first[2:] == [""] * 4
    assert same[2:] == ["0", "0", "4", "+0.00"]
    assert better[2:5] == ["3", "0", "1"]
    assert tables[2] == [
        ["4", "+100.00", "reference", "yes"],
        ["", "", "flawed", "no"],
        ["", "", "file", "yes"],
    ]


def test_a_blank_line_of_another_reference_changes_nothing(report, caplog):
    both = [REFERENCE, ["", *REFERENCE[1:]]]
    metrics = {"chrf": make_metric("chrf", both)}
    found = compare_outputs(SYSTEMS, metrics, [], both, most=1)
    of_one, of_both = ([part.rows for part in parts if isinstance(part, Table)]
                       for parts in (report, found))  # fmt: skip
    assert of_both == of_one
    assert caplog.messages == ["blank lines of references, which count as no reference: 1"]


def test_length_ratios_compare_tokens_with_the_reference(tables):
    tokens = 6 + 6 + 4 + 1
    assert [row[1] for row in tables[1]] == [f"{15 / tokens:.3f}"] * 2 + ["1.000"]


def test_the_report_has_known_settings(report, tables):
    assert tables[3:] == [[["training.seed", "1", "[1, 2, 3]"]]]  # d_ff is the same in both
    text = joined(report, MARKDOWN)
    assert "not corrected" in text and "standard deviation over seeds" in text


def test_a_bar_in_a_sentence_does_not_break_a_markdown_table():
    metrics = {"bleu": make_metric("bleu", [REFERENCE])}
    both = compare_outputs([SYSTEMS[2], System("w", [WRONG])], metrics, [], [REFERENCE])
    assert "it rains \\| today" in joined(both, MARKDOWN)


@pytest.fixture
def seeds(tmp_path):
    """Folders of runs of 20 steps, 10 for seed 8."""
    for seed, step in {10: 20, 9: 20, 8: 10, 7: 20}.items():
        config = Config().replace({"training.steps": 20, "training.seed": seed})
        record = {"step": step, "valid_perplexity": 2.0, "valid_bleu": 30.0, "dev_set": "one"}
        record |= {"train_seconds": 36.0, "tokens_per_second": 400.0}
        folder = tmp_path / f"seed-{seed}"
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "config.json").write_text(config.to_json())
        (folder / "metrics.jsonl").write_text(json.dumps(record))
        (folder / "checkpoints" / "average.npz").touch()  # `average` writes it early
    (tmp_path / "seed-7" / "checkpoints" / "average.npz").unlink()
    return tmp_path


def test_finished_runs_in_a_folder_of_seeds_are_ordered_by_seed(seeds, caplog):
    assert [each.name for each in members(seeds)] == ["seed-9", "seed-10"]
    assert "seed-8 is skipped: its training has not ended" in caplog.text
    assert "seed-7 is skipped: its average.npz is missing" in caplog.text
    runs = [Run.open(folder) for folder in members(seeds)]
    assert shared_settings(runs)["training.seed"] == [9, 10]
    assert shared_settings(runs[:1])["training.seed"] == 9
    (seeds / "config.json").write_text("{}")
    assert members(seeds) == []
