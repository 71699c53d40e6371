"""What is known of swapped labels is that of SciPy."""

import pytest
from scipy.stats import entropy as scipy_entropy

from studies.input_noise.picture import RATES
from studies.input_noise.reporting import known_entropy


def test_entropy_of_swaps_is_scipys() -> None:
    for rate in RATES:
        assert known_entropy(rate) == pytest.approx(scipy_entropy([rate, 1 - rate]))
