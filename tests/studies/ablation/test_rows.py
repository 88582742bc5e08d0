"""Scaled rows of Table 3: divided and kept settings, and impossible rows."""

import dataclasses

import keras
import pytest

from tf_transformer.config.presets import TABLE3
from tf_transformer.errors import UserError
from tf_transformer.models.transformer import Transformer
from tf_transformer.studies.ablation.rows import (
    BASE,
    ROWS,
    Scale,
    change,
    plan_rows,
    select_rows,
)
from tf_transformer.studies.cost import parameter_count


def plan(divisor, rows=tuple(ROWS), values=None, overrides=(), steps=None):
    return plan_rows(rows, Scale.of(divisor, steps), values or {}, overrides)


def test_all_rows_are_chosen_by_default():
    assert [ROWS[row] for row in select_rows([])] == list(TABLE3)


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        (["big", "base"], ["base", "big"]),
        (["B"], ["B-dk16", "B-dk32"]),
        (["E", "table3-C-N2", "C-N2"], ["C-N2", "E-learned"]),
    ],
)
def test_rows_are_chosen_by_name_preset_or_letter(words, rows):
    assert select_rows(words) == rows


@pytest.mark.parametrize("word", ["C-N3", "F", "", "AB", "tiny"])
def test_an_unknown_row_is_refused(word):
    with pytest.raises(UserError, match="Table 3 has no row"):
        select_rows([word])


def test_at_scale_1_a_row_is_its_preset_without_averaging():
    for row, config in plan(1).items():
        expected = TABLE3[ROWS[row]]
        assert config.model == expected.model
        assert config.decoding == expected.decoding
        assert config.training == dataclasses.replace(
            expected.training, keep_last=1, average_last=1
        )


def test_a_scale_divides_widths_and_steps_and_nothing_else():
    small = plan(8)
    assert change(small["base"], plan(1)["base"]) == (
        "d_model 64, d_ff 256, d_k 8, d_v 8, steps 12,500"
    )
    assert small["base"].training.warmup_steps == 500
    assert small["base"].training.evaluate_every == 188
    assert small["big"].training.steps == 3 * 12_500
    assert small["big"].training.warmup_steps == 500


# The first column of differences of Table 3, divided by 8 where it is a width.
@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("base", ""),
        ("A-h1", "h 1, d_k 64, d_v 64"),
        ("A-h32", "h 32, d_k 2, d_v 2"),
        ("B-dk16", "d_k 2"),
        ("C-N8", "N 8"),
        ("C-d1024", "d_model 128, d_k 16, d_v 16"),
        ("C-ff4096", "d_ff 512"),
        ("D-drop0.0", "P_drop 0"),
        ("D-ls0.2", "eps_ls 0.2"),
        ("E-learned", "positions learned"),
        ("big", "d_model 128, d_ff 512, h 16, P_drop 0.3, steps 37,500"),
    ],
)
def test_rows_keep_their_meaning(row, expected):
    small = plan(8)
    assert change(small[row], small[BASE]) == expected


def test_chosen_steps_keep_all_proportions():
    small = plan(8, steps=1_000)
    assert (small["base"].training.steps, small["big"].training.steps) == (1_000, 3_000)
    assert small["base"].training.warmup_steps == 40
    assert small["base"].model.d_model == 64


@pytest.mark.parametrize("scale", [2, 16])
def test_parameter_counts_of_scaled_rows_are_those_of_real_models(scale):
    for config in plan(scale).values():
        with keras.StatelessScope(initialize_variables=False):
            model = Transformer(**vars(config.model))
        assert parameter_count(config.model) == model.count_params()
    keras.utils.clear_session()


@pytest.mark.parametrize(
    ("scale", "rows", "expected"),
    [
        (32, ROWS, r"A-h32 \(d_k 16 / 32\), B-dk16 \(d_k 16 / 32\)\."),
        (3, ["base"], r"base \(d_model 512 / 3\)"),
        (512, ["A-h1"], r"A-h1 \(d_model 512 / 512 is not even\)"),
    ],
)
def test_impossible_rows_are_named(scale, rows, expected):
    with pytest.raises(UserError, match=expected):
        plan(scale, rows)


def test_possible_rows_of_such_a_scale_are_planned():
    rows = [row for row in ROWS if row not in ("A-h32", "B-dk16")]
    assert plan(32, rows)["A-h16"].model.d_model == 16


def test_leaving_rows_out_is_advised_only_where_it_helps():
    with pytest.raises(UserError, match=r"Leave these rows out with --rows"):
        plan(32)
    with pytest.raises(UserError, match=r"base itself is impossible") as error:
        plan(3)
    assert "--rows" not in str(error.value)


def test_settings_apply_to_every_row():
    for config in plan(
        8, values={"training.batch_tokens": 99}, overrides=["model.vocab_size=9"]
    ).values():
        assert (config.training.batch_tokens, config.model.vocab_size) == (99, 9)


@pytest.mark.parametrize(
    ("rows", "setting", "expected"),
    [
        (ROWS, "model.dropout=0.3", "undo .* D-drop0.0, D-drop0.2, big"),
        (["base", "B-dk32"], " model.key_dim =7", "undo .* B-dk32"),
        (["base", "E-learned"], "model.positions=sinusoidal", "undo .* E-learned"),
        (["base", "A-h4", "A-h32"], "model.key_dim=2", r"key_dim would undo .* A-h4, A-h32\."),
        (["base", "C-d256", "C-N2"], "model.value_dim=2", r"value_dim would undo .* C-d256\."),
        (["base"], "training.seed=2", "Use --seeds"),
        (["base"], "training.steps=2", "Use --steps"),
    ],
)
def test_a_setting_that_would_undo_a_row_is_refused(rows, setting, expected):
    with pytest.raises(UserError, match=expected):
        plan(8, rows, overrides=[setting])


def test_a_setting_that_undoes_no_row_is_accepted():
    small = plan(8, ["base", "A-h4"], overrides=["model.dropout=0.3"])
    assert {config.model.dropout for config in small.values()} == {0.3}
    widths = ["model.d_model=32", "model.d_ff=64"]
    narrow = plan(8, ["base", "A-h4"], overrides=widths)
    assert change(narrow["A-h4"], narrow["base"]) == "h 4, d_k 8, d_v 8"
    assert plan(8, ["base", "C-N2"], overrides=["model.key_dim=2"])[BASE].model.key_dim == 2
