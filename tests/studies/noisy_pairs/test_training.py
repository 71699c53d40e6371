"""Labels are noisy where they should be, and the figures of a run are those of scikit-learn."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score

from studies.common.networks import conv_net, seeded
from studies.common.study import Options
from studies.noisy_pairs.losses import learning
from studies.noisy_pairs.training import (
    FASHION,
    PAIRS,
    Curves,
    auroc_or_guess,
    evaluate,
    fashion,
    work,
)


@pytest.fixture
def options(tiny_fashion: Path) -> Options:
    """The settings of a quick run."""
    return Options((0,), is_quick=True, folder=tiny_fashion)


def test_only_labels_to_learn_and_choose_by_are_noisy(options: Options) -> None:
    clean, noisy = (fashion(options, "faithful", rate, 0).parts() for rate in (0.0, 0.4))
    assert torch.equal(clean.test.labels, noisy.test.labels)
    partner = {a: b for pair in PAIRS[FASHION] for a, b in (pair, pair[::-1])}
    for before, after in ((clean.train, noisy.train), (clean.validation, noisy.validation)):
        assert torch.equal(before.pixels, after.pixels)
        is_swapped = before.labels != after.labels
        is_paired = before.labels < 8
        assert 0.2 < is_swapped[is_paired].double().mean() < 0.6
        assert not is_swapped[~is_paired].any()
        for old, new in zip(before.labels[is_swapped], after.labels[is_swapped], strict=True):
            assert partner[int(old)] == int(new)


def test_figures_are_scikit_learns(options: Options) -> None:
    test = fashion(options, "joint, floor -4", 0.4, 0).parts().test
    seeded(0)
    network, used = conv_net(3, 4, 11).eval(), learning("joint, floor -4", 1)
    found = evaluate(network, test, used, PAIRS[FASHION])
    with torch.no_grad():
        outputs = network(test.pixels)
    labels, s = test.labels.numpy(), outputs[:, -1].clamp(min=-4).numpy()
    is_wrong = outputs[:, :10].argmax(1).numpy() != labels
    assert found["s for noisy classes"] == pytest.approx(roc_auc_score(labels < 8, s))
    assert found["s for errors"] == pytest.approx(roc_auc_score(is_wrong, s))
    assert found["s by class"][3] == pytest.approx(s[labels == 3].mean(), rel=1e-5)
    curves = Curves(network, fashion(options, "joint, floor -4", 0.4, 0).parts(), used)
    curves.batch_losses += [1.0, 3.0]
    curves.note(1)
    arrays = curves.arrays()
    expected = log_loss(labels, outputs[:, :10].double().softmax(1).numpy(), labels=range(10))
    assert arrays["training loss"].tolist() == [2.0]
    assert arrays["test log loss"][0] == pytest.approx(expected, rel=1e-5)
    assert arrays["test accuracy"][0] == pytest.approx(1 - is_wrong.mean())


def test_only_voters_vote_and_those_with_views_by_these(options: Options) -> None:
    assert fashion(options, "GCE", 0.4, 0).voted == ()
    assert fashion(options, "faithful", 0.2, 0).voted == ()
    assert fashion(options, "faithful", 0.4, 0).voted == ("shifts", "mirrors")
    assert fashion(options, "faithful", 0.4, 0, "mirrors").voted == ("mirrors",)
    found = work(fashion(options, "cross-entropy", 0.0, 0, "shifts"))
    voted = {name.split(": ")[0] for name in found if ": " in name}
    assert voted == {"shifts"}
    assert np.isfinite(found["test log loss"]).all()


def test_rows_that_are_all_wrong_cannot_be_ranked() -> None:
    assert auroc_or_guess(np.array([True, True]), np.array([1.0, 2.0])) == 0.5
    assert auroc_or_guess(np.array([False, True]), np.array([1.0, 2.0])) == 1.0
