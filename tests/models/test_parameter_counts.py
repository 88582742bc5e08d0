"""The size of the model in every row of the paper's Table 3."""

import keras
import pytest

from tf_transformer.config import ModelConfig
from tf_transformer.config.presets import TABLE3
from tf_transformer.models.transformer import Transformer

# Millions of parameters with the paper's V = 37,000, tied embeddings and no attention bias;
# then those that the paper prints, which no vocabulary size reproduces in every row.
PAPER_MILLIONS = {
    "base": (63.0, 65),
    "table3-A-h1": (63.0, None),
    "table3-A-h4": (63.0, None),
    "table3-A-h16": (63.0, None),
    "table3-A-h32": (63.0, None),
    "table3-B-dk16": (56.0, 58),
    "table3-B-dk32": (58.3, 60),
    "table3-C-N2": (33.6, 36),
    "table3-C-N4": (48.3, 50),
    "table3-C-N8": (77.7, 80),
    "table3-C-d256": (26.8, 28),
    "table3-C-d1024": (163.8, 168),
    "table3-C-ff1024": (50.5, 53),
    "table3-C-ff4096": (88.2, 90),
    "table3-D-drop0.0": (63.0, None),
    "table3-D-drop0.2": (63.0, None),
    "table3-D-ls0.0": (63.0, None),
    "table3-D-ls0.2": (63.0, None),
    "table3-E-learned": (63.6, None),
    "big": (214.2, 213),
}


def expected_parameters(config: ModelConfig) -> int:
    """The paper's matrices added up: paper 3.2.2, 3.3, 3.4 and Figure 1."""
    d_model = config.d_model
    head = d_model // config.num_heads
    key_dim, value_dim = config.key_dim or head, config.value_dim or head
    attention = 2 * d_model * config.num_heads * (key_dim + value_dim)
    feed_forward = 2 * d_model * config.d_ff + config.d_ff + d_model
    norm = 2 * d_model
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    positions = config.max_length * d_model if config.positions == "learned" else 0
    words = config.vocab_size * d_model
    return words + positions + config.num_layers * (encoder_layer + decoder_layer)


@pytest.fixture(scope="module")
def table3_counts():
    """Parameters of real models, whose variables are never initialised."""
    counts = {}
    for name, config in TABLE3.items():
        with keras.StatelessScope(initialize_variables=False):
            model = Transformer(**vars(config.model))
        counts[name] = model.count_params()
    keras.utils.clear_session()  # forgets the uninitialised variables
    return counts


def test_every_row_of_table_3_has_as_many_parameters_as_by_the_formula(table3_counts):
    formula = {name: expected_parameters(config.model) for name, config in TABLE3.items()}
    assert table3_counts == formula


def test_every_row_of_table_3_has_its_known_size(table3_counts):
    millions = {name: round(count / 1e6, 1) for name, count in table3_counts.items()}
    assert millions == {name: ours for name, (ours, _) in PAPER_MILLIONS.items()}
    assert all(
        ours == pytest.approx(paper, rel=0.07)
        for ours, paper in PAPER_MILLIONS.values()
        if paper
    )


def test_rows_of_one_width_differ_as_much_as_in_the_paper(table3_counts):
    # With another d_model, the paper's unknown vocabulary size would matter.
    same_width = [
        name
        for name, (_, paper) in PAPER_MILLIONS.items()
        if paper and TABLE3[name].model.d_model == 512
    ]
    assert len(same_width) == 8
    for name in same_width:
        ours = (table3_counts[name] - table3_counts["base"]) / 1e6
        paper = PAPER_MILLIONS[name][1] - PAPER_MILLIONS["base"][1]
        assert abs(ours - paper) < 1.0, name  # each printed number is rounded to a million
