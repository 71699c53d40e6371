"""Members predict in batches and are evaluated by plain formulas."""

import numpy as np
import pytest
import torch
from sklearn import metrics

from dubito import Members, Probabilities
from dubito.learn import Categorical, MonteCarloDropout
from studies.common.asking import dropout_passes, figures_of, members_over
from studies.common.images import READ_ROWS
from studies.common.networks import lenet5, seeded

LIKELIHOOD = Categorical(10)


def test_batches_are_put_together_in_order() -> None:
    sizes: list[int] = []

    def ask(pixels: torch.Tensor) -> Members:
        sizes.append(len(pixels))
        share = pixels.flatten(1).mean(1).numpy()
        return Members(np.stack([np.stack([share, 1 - share], 1)] * 2))

    pixels = torch.linspace(0, 1, READ_ROWS + 3).reshape(-1, 1, 1, 1)
    found = members_over(ask, pixels)
    assert sizes == [READ_ROWS, 3]
    assert found.array[1, :, 0] == pytest.approx(pixels.flatten().numpy(), abs=1e-6)


def test_passes_are_those_of_the_whole_network() -> None:
    seeded(0)
    network = lenet5(dropout=0.3).eval()
    pixels = torch.rand(5, 1, 28, 28)
    found = members_over(dropout_passes(network, 4, LIKELIHOOD), pixels).array
    whole = MonteCarloDropout(network, 4, likelihood=LIKELIHOOD)(pixels).array
    assert found == pytest.approx(whole, abs=1e-6)
    assert np.ptp(found, axis=0).max() > 0.01


def test_figures_are_those_of_plain_numpy() -> None:
    rng = np.random.default_rng(0)
    outputs = rng.dirichlet(np.ones(4), 500)
    labels = rng.integers(0, 4, 500)
    confidence, is_right = outputs.max(1), outputs.argmax(1) == labels
    bins = np.ceil(confidence * 15)
    gaps = [abs((confidence - is_right)[bins == one].sum()) for one in np.unique(bins)]
    expected = is_right.mean(), sum(gaps) / 500, metrics.log_loss(labels, outputs)
    assert figures_of(labels, Probabilities(outputs)) == pytest.approx(expected)
