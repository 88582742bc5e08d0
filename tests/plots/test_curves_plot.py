"""Learning curves: separate axes for each kind of score."""

from dataclasses import replace

import pytest

from tf_transformer.plots.curves import LearningCurve, draw_curves

pytest.importorskip("matplotlib")


def curve(label: str, score_name: str) -> LearningCurve:
    return LearningCurve(
        label, [10, 20], [9.0, 8.0], [7.0, 6.0], [0.9, 0.5], score_name, (0.5, 20)
    )


def test_scores_of_different_kinds_have_different_axes(tmp_path):
    curves = [curve("one", "BLEU"), curve("two", "accuracy"), curve("three", "BLEU")]
    draw_curves(curves, tmp_path / "curves.svg")
    text = (tmp_path / "curves.svg").read_text("utf-8")
    assert text.count("<!-- dev BLEU -->") == text.count("<!-- dev accuracy -->") == 1
    assert all(f"<!-- {each.label}, highest 0.5 -->" in text for each in curves)


def test_the_old_dev_set_of_a_fine_tuned_run_is_drawn_beside_the_new_one(tmp_path):
    curves = [curve("general", "BLEU"), replace(curve("law", "BLEU"), old_scores=[0.4, 0.3])]
    draw_curves(curves, tmp_path / "curves.svg")
    text = (tmp_path / "curves.svg").read_text("utf-8")
    assert "<!-- law, old dev set -->" in text and "<!-- general, old" not in text
