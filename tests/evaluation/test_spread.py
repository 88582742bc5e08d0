"""Mean and spread over seeds."""

import numpy as np
import pytest

from tf_transformer.evaluation.spread import Spread


def test_a_spread_is_the_standard_deviation_of_a_sample():
    values = [3.0, 4.5, 4.0]
    spread = Spread.of(values)
    assert spread.mean == pytest.approx(np.mean(values))
    assert spread.deviation == pytest.approx(np.std(values, ddof=1))
    assert Spread.of([3.0]) == Spread(3.0, None)
    assert [str(Spread(3.456, 0.5)), str(Spread(3.0))] == ["3.46 ± 0.50", "3.00"]
