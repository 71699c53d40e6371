"""Networks are those of the choices, and their figures those by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax

from dubito import Logits
from studies.training_choices.image_networks import (
    Choices,
    Figures,
    Size,
    Trained,
    by_choices,
    scatter_ratio,
    template_cosine,
    trained,
)


def test_figures_are_those_by_hand() -> None:
    rng = np.random.default_rng(0)
    labels, logits = rng.integers(0, 3, 500), rng.normal(size=(500, 3))
    logits[np.arange(500), labels] += 1
    found = Figures.of(labels, Logits(logits))
    shares = softmax(logits, axis=1)
    confidence, is_right = shares.max(axis=1), shares.argmax(axis=1) == labels
    bins = np.ceil(15 * confidence)
    gaps = [abs((confidence - is_right)[bins == one].sum()) for one in range(1, 16)]
    loss = -log_softmax(logits, axis=1)[np.arange(500), labels].mean()
    expected = (loss, 1 - is_right.mean(), sum(gaps) / 500, confidence.mean() - is_right.mean())
    assert found == pytest.approx(expected, abs=1e-12)


def test_clusters_are_as_tight_as_they_were_made() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 50_000)
    features = np.where(labels, 1.0, -1.0)[:, np.newaxis] * [1.0, 0.0]
    noisy = features + 0.5 * rng.normal(size=features.shape)
    assert scatter_ratio(noisy, labels) == pytest.approx(2 * 0.25, rel=0.02)
    weights = np.array([[-2.0, 0.0], [2.0, 0.0]]) + 7
    assert template_cosine(features + 3, labels, weights) == pytest.approx(1)
    turned = np.array([[0.0, -1.0], [0.0, 1.0]])
    assert template_cosine(features, labels, turned) == pytest.approx(0)


def test_choices_make_the_network_and_the_loss_that_they_say() -> None:
    outputs, labels = torch.tensor([[2.0, *[0.0] * 9]]), torch.tensor([0])
    plain, smooth, square, raw = (
        one.likelihood().loss(outputs, labels).item()
        for one in (
            Choices(),
            Choices(smoothing=0.1),
            Choices(loss="square"),
            Choices(loss="square on scores"),
        )
    )
    assert raw == (1 - 2) ** 2  # of the scores themselves: the other nine are 0, as they should be
    shares = softmax(outputs.numpy()[0])
    assert plain == pytest.approx(-np.log(shares[0]), rel=1e-5)
    assert smooth == pytest.approx(plain + 0.1 * 0.9 * 2, rel=1e-5)
    assert square == pytest.approx((1 - shares[0]) ** 2 + (shares[1:] ** 2).sum(), rel=1e-5)
    kinds = [type(one).__name__ for one in Choices(2, 4, "batch").network()]
    assert (kinds.count("Conv2d"), kinds.count("BatchNorm2d")) == (2, 2)


def test_a_followed_network_is_measured_after_each_epoch_and_at_the_end(
    tiny_fashion: Path,
) -> None:
    choices, size = Choices(n_layers=1, width=2), Size(64, 2, 1, 50, 60)
    setting = Trained(choices, size, seed=0, is_followed=True, folder=tiny_fashion)
    run = trained(setting)
    assert run["curves"].shape == (3, 2, 4)
    seen = by_choices({setting: {name: np.asarray(one) for name, one in run.items()}})
    figures = [seen[choices][name][0] for name in Figures._fields]
    assert figures == pytest.approx(run["curves"][-1, 1])
    decayed = trained(replace(setting, choices=replace(choices, weight_decay=1.0)))
    assert np.abs(decayed["test_logits"]).mean() < np.abs(run["test_logits"]).mean()
