"""Norms, patterns and fractions of OOD images are those of plain NumPy."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

from studies.softmax_ood.evaluation import (
    SCORES,
    OODEvaluator,
    Seen,
    detection_auroc,
    layers_of,
    look,
)


def small_network() -> nn.Sequential:
    """A network with two hidden layers, for images of 2 x 2."""
    torch.manual_seed(0)
    hidden = nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6), nn.ReLU()
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(6, 3)).eval()


def seen_of(n_rows: int, seed: int) -> Seen:
    """What a small network makes of images of noise."""
    pixels = torch.rand((n_rows, 1, 2, 2), generator=torch.Generator().manual_seed(seed))
    return look(small_network(), pixels)


def test_patterns_and_layers_are_those_of_the_weights() -> None:
    network = small_network()
    pixels = torch.rand(7, 1, 2, 2)
    first, second = (network[i] for i in (1, 3))
    rows = pixels.flatten(1).numpy()
    weights = [one.detach().numpy() for layer in (first, second) for one in layer.parameters()]
    hidden = np.maximum(rows @ weights[0].T + weights[1], 0)
    last = np.maximum(hidden @ weights[2].T + weights[3], 0)
    seen = look(network, pixels)
    assert seen.features == pytest.approx(last, abs=1e-6)
    assert seen.patterns.tolist() == (np.concatenate([hidden, last], axis=1) > 0).tolist()
    found = layers_of(network, {"known": pixels})
    expected = [np.median(np.linalg.norm(one, axis=1)) for one in (rows, hidden, last)]
    assert found[0, :, 0] == pytest.approx(expected, rel=1e-5)
    assert found[0, :, 1] == pytest.approx([(one > 0).mean() for one in (rows, hidden, last)])


def test_regions_flag_about_alpha_of_in_distribution_images() -> None:
    labels = np.arange(400) % 3
    evaluator = OODEvaluator(seen_of(400, seed=1), labels)
    shares = evaluator.flagged_fractions(seen_of(3_000, seed=2))
    assert len(shares) == len(SCORES)
    assert max(shares) < 0.12  # the fraction of 200 images has an error of 0.015
    assert min(shares[:2]) > 0.01


def test_auroc_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    known, ood = rng.normal(size=50), rng.normal(1, 2, size=30)
    expected = roc_auc_score([0] * 50 + [1] * 30, [*known, *ood])
    assert detection_auroc(known, ood) == pytest.approx(expected)
