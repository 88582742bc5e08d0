"""Scores that compare evaluations, and how an evaluation is shown and logged."""

import pytest
import tensorflow as tf

from tf_transformer.run.records import line, score_of, write_tensorboard

RECORD = {
    "step": 12_000,
    "loss": 2.3456,
    "perplexity": 5.678,
    "valid_perplexity": 4.321,
    "valid_bleu": 27.3,
    "valid_chrf": 55.5,
    "tokens_per_second": 12_345.6,
}


@pytest.mark.parametrize(
    ("best_by", "score"), [("bleu", 27.3), ("chrf", 55.5), ("perplexity", -4.321)]
)
def test_a_higher_score_or_a_lower_perplexity_is_better(best_by, score):
    assert score_of(RECORD, best_by) == score


def test_an_evaluation_is_one_line():
    assert line(RECORD, "BLEU 27.30", False) == (
        "step 12,000  loss 2.346  perplexity 5.68  dev perplexity 4.32  dev BLEU 27.30  "
        "12,346 tokens/s"
    )
    assert line(RECORD, "BLEU 27.30", True).endswith(" tokens/s  best")


def test_tensorboard_gets_every_value_at_its_step(tmp_path):
    write_tensorboard(str(tmp_path), RECORD)
    (file,) = tmp_path.iterdir()
    written = {
        value.tag: (event.step, float(tf.make_ndarray(value.tensor)))
        for event in tf.compat.v1.train.summary_iterator(str(file))
        for value in event.summary.value
    }
    assert written == {name: (12_000, pytest.approx(value)) for name, value in RECORD.items()}
