"""The base and big rows of the paper's Table 3 are presets: columns, weights and recipe.

Fails when a row is changed, such as the `d_ff` of big from 4096 to 2048.
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
