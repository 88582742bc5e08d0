"""The paper's figures, copied here a second time, and what follows from them."""

import pytest

from tf_transformer.config.presets import TABLE3
from tf_transformer.studies.paper import SUSTAINED_TFLOPS, TABLE2_FLOPS, TABLE3_PRINTED

# Table 3 from top to bottom: perplexity, BLEU, parameters in millions where printed.
TABLE_3 = """
4.92 25.8 65
5.29 24.9
5.00 25.5
4.91 25.8
5.01 25.4
5.16 25.1 58
5.01 25.4 60
6.11 23.7 36
5.19 25.3 50
4.88 25.5 80
5.75 24.5 28
4.66 26.0 168
5.12 25.4 53
4.75 26.2 90
5.77 24.6
4.95 25.5
4.67 25.3
5.47 25.7
4.92 25.7
4.33 26.4 213
"""
HOUR, DAY = 3600, 86_400


def test_table_3_is_the_papers_in_the_order_of_the_presets():
    rows = [tuple(map(float, line.split())) for line in TABLE_3.split("\n") if line]
    printed = [
        (row.perplexity, row.bleu) + ((row.millions,) if row.millions else ())
        for row in TABLE3_PRINTED.values()
    ]
    assert printed == rows
    assert list(TABLE3_PRINTED) == list(TABLE3)


@pytest.mark.parametrize(("model", "seconds"), [("base", 12 * HOUR), ("big", 3.5 * DAY)])
def test_table_2_is_time_times_gpus_times_their_rate(model, seconds):
    """5.2: eight P100, 12 hours for base and 3.5 days for big; two digits are printed."""
    flops = seconds * 8 * SUSTAINED_TFLOPS["P100"] * 1e12
    assert f"{flops:.1e}" == f"{TABLE2_FLOPS[model]:.1e}"
