"""Every row of the paper's Table 3 is a preset: its columns, its weights and its recipe.

Fails when a row is changed, such as the `key_dim` of table3-B-dk16 from 16 to 32.
"""

import keras
import pytest

from tf_transformer import Transformer, preset

BASE = {
    "N": 6, "d_model": 512, "d_ff": 2048, "h": 8, "d_k": 64, "d_v": 64, "P_drop": 0.1,
    "eps_ls": 0.1, "steps": 100_000, "positions": "sinusoidal",
}  # fmt: skip
# Each row as printed, blanks being as in base; the millions of parameters in its last column,
# which no vocabulary size reproduces in every row; and the exact number with the paper's 37,000
# subwords, one matrix for embeddings and projection, and no biases in attention.
TABLE_3 = {
    "base": ({}, 65, 63_045_632),
    "table3-A-h1": ({"h": 1, "d_k": 512, "d_v": 512}, None, 63_045_632),
    "table3-A-h4": ({"h": 4, "d_k": 128, "d_v": 128}, None, None),
    "table3-A-h16": ({"h": 16, "d_k": 32, "d_v": 32}, None, None),
    "table3-A-h32": ({"h": 32, "d_k": 16, "d_v": 16}, None, None),
    "table3-B-dk16": ({"d_k": 16}, 58, 55_967_744),
    "table3-B-dk32": ({"d_k": 32}, 60, 58_327_040),
    "table3-C-N2": ({"N": 2}, 36, 33_644_544),
    "table3-C-N4": ({"N": 4}, 50, 48_345_088),
    "table3-C-N8": ({"N": 8}, 80, 77_746_176),
    "table3-C-d256": ({"d_model": 256, "d_k": 32, "d_v": 32}, 28, 26_816_512),
    "table3-C-d1024": ({"d_model": 1024, "d_k": 128, "d_v": 128}, 168, 163_815_424),
    "table3-C-ff1024": ({"d_ff": 1024}, 53, 50_450_432),
    "table3-C-ff4096": ({"d_ff": 4096}, 90, 88_236_032),
    "table3-D-drop0.0": ({"P_drop": 0.0}, None, None),
    "table3-D-drop0.2": ({"P_drop": 0.2}, None, None),
    "table3-D-ls0.0": ({"eps_ls": 0.0}, None, None),
    "table3-D-ls0.2": ({"eps_ls": 0.2}, None, None),
    "table3-E-learned": ({"positions": "learned"}, None, None),
    "big": (
        {"d_model": 1024, "d_ff": 4096, "h": 16, "P_drop": 0.3, "steps": 300_000},
        213, 214_171_648,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE_3)
def test_a_preset_has_the_columns_of_its_row(name):
    model, training = preset(name).model, preset(name).training
    head = model.d_model // model.num_heads
    assert BASE | TABLE_3[name][0] == {
        "N": model.num_layers, "d_model": model.d_model, "d_ff": model.d_ff,
        "h": model.num_heads, "d_k": model.key_dim or head, "d_v": model.value_dim or head,
        "P_drop": model.dropout, "eps_ls": training.label_smoothing, "steps": training.steps,
        "positions": model.positions,
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name, row in TABLE_3.items() if row[2]])
def test_its_model_has_as_many_parameters(name):
    columns, printed, exact = TABLE_3[name]
    assert parameters(name) == exact
    if printed and "d_model" not in columns:  # the paper's vocabulary cancels out
        _, base_printed, base = TABLE_3["base"]
        assert (exact - base) / 1e6 == pytest.approx(printed - base_printed, abs=1.0)


def parameters(name: str) -> int:
    model = preset(name).model
    sizes = ("vocab_size", "num_layers", "d_model", "d_ff", "num_heads", "key_dim", "value_dim")
    with keras.StatelessScope(initialize_variables=False):
        count = Transformer(**{size: getattr(model, size) for size in sizes}).count_params()
    keras.utils.clear_session()  # forgets the variables, which were never initialised
    return count


@pytest.mark.parametrize("name", TABLE_3)
def test_it_trains_as_in_section_5_and_searches_as_in_section_6_1(name):
    model, training, decoding = (
        getattr(preset(name), section) for section in ("model", "training", "decoding")
    )
    assert model.vocab_size == 37_000 and model.tie_embeddings and not model.norm_first
    assert (training.beta_1, training.beta_2, training.epsilon) == (0.9, 0.98, 1e-9)
    assert (training.warmup_steps, training.learning_rate_scale) == (4_000, 1.0)
    assert training.batch_tokens == 25_000 and not training.clip_norm
    assert training.average_last == (20 if name == "big" else 5)
    assert (decoding.beam_size, decoding.alpha, decoding.max_extra_length) == (4, 0.6, 50)
