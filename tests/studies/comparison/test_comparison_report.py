"""A comparison of three systems, one with three seeds, in three formats."""

import json

import pytest

from tf_transformer.config import Config
from tf_transformer.evaluation.metrics import make_metric
from tf_transformer.output import MARKDOWN, joined
from tf_transformer.studies.comparison.report import FORMATS, draw_comparison, parts, sections
from tf_transformer.studies.comparison.results import System, compare, members

REFERENCE = ["the cat sat on the mat", "a dog runs in the park", "it rains | today", "yes"]
FLAWED = ["the cat sat on the", "a dog runs in park", "it rains | today", "no"]
WRONG = ["x", "y", "z", "yes"]
SYSTEMS = [
    System("flawed", [FLAWED], {"model.d_ff": 8, "training.seed": 1}, {"updates": "10"}),
    System(
        "seeds_3",
        [WRONG, REFERENCE, FLAWED],
        {"model.d_ff": 8, "training.seed": [1, 2, 3]},
        {"updates": "30"},
    ),
    System("file", [REFERENCE]),
]


@pytest.fixture(scope="module")
def compared():
    metrics = {"chrf": make_metric("chrf", [REFERENCE])}
    return compare(SYSTEMS, metrics, [], [REFERENCE], most=1)


def test_the_seed_nearest_to_the_mean_is_tested(compared):
    assert compared.scores["chrf"].tested[1].bootstrap == 1.0  # the same output as the first's
    mean = sum(
        make_metric("chrf", [REFERENCE]).corpus_score(output, None).score
        for output in SYSTEMS[1].outputs
    )
    assert compared.scores["chrf"].spreads[1].mean == pytest.approx(mean / 3)
    assert compared.scores["chrf"].spreads[1].deviation > 0


def test_sentences_are_counted_and_the_largest_difference_is_shown(compared):
    [same, better] = compared.wins
    assert same.counts == (0, 0, 4) and not same.largest
    assert better.counts == (3, 0, 1)
    [shown] = better.largest
    assert shown.number == 4 and shown.gain == pytest.approx(100)
    assert shown.texts == {"reference": "yes", "flawed": "no", "file": "yes"}


def test_length_ratios_compare_tokens_with_the_reference(compared):
    tokens = 6 + 6 + 4 + 1
    assert compared.length_ratios[0] == pytest.approx(15 / tokens)
    assert compared.length_ratios[2] == 1


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("text", "training.seed  1         1, 2, 3"),
        ("markdown", "| training.seed | 1        | 1, 2, 3   |"),
        ("latex", r" seeds\_3"),
    ],
)
def test_the_report_has_known_settings_and_costs_in_every_format(compared, form, expected):
    text = joined(parts(sections(compared), form), FORMATS[form][0])
    assert expected in text
    assert "model.d_ff" not in text  # the same in both
    assert "not corrected" in text and "±" in text


def test_a_bar_in_a_sentence_does_not_break_a_markdown_table(compared):
    metrics = {"bleu": make_metric("bleu", [REFERENCE])}
    both = compare([SYSTEMS[2], System("w", [WRONG])], metrics, [], [REFERENCE])
    assert "it rains \\| today" in joined(parts(sections(both), "markdown"), MARKDOWN)


def test_the_picture_names_every_system(compared, tmp_path):
    pytest.importorskip("matplotlib")
    draw_comparison(compared, tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text("utf-8")
    assert all(f"<!-- {each.name} -->" in text for each in SYSTEMS)


def test_finished_runs_in_a_folder_of_seeds_are_ordered_by_seed(tmp_path, caplog):
    steps = {"seed-10": 20, "seed-9": 20, "seed-8": 10, "seed-7": 20, "other": 20}
    config = Config().replace({"training.steps": 20})
    for name, step in steps.items():
        record = {"step": step, "valid_perplexity": 2.0, "valid_bleu": 30.0, "dev_set": "one"}
        record |= {"train_seconds": 3.0, "tokens_per_second": 400.0}
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        (tmp_path / name / "config.json").write_text(config.to_json())
        (tmp_path / name / "metrics.jsonl").write_text(json.dumps(record))
        (tmp_path / name / "checkpoints" / "average.npz").touch()  # `average` writes it early
    (tmp_path / "seed-7" / "checkpoints" / "average.npz").unlink()
    assert [each.name for each in members(tmp_path)] == ["seed-9", "seed-10"]
    assert "seed-8 is skipped: its training has not ended" in caplog.text
    assert "seed-7 is skipped: its average.npz is missing" in caplog.text
    (tmp_path / "config.json").write_text("{}")
    assert members(tmp_path) == []
