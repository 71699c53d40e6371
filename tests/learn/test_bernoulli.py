from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import nn

from dubito import MultiLabel, audit
from dubito.data import LabelMatrix
from dubito.doubt import decompose_uncertainty
from dubito.errors import BadValueError
from dubito.learn import Bernoulli, DeepEnsemble, MonteCarloDropout, collect_outputs


def test_it_is_the_likelihood_of_scipy() -> None:
    rng = np.random.default_rng(0)
    log_odds, y = rng.normal(size=(30, 4)), rng.integers(2, size=(30, 4))
    expected = -stats.bernoulli(special.expit(log_odds)).logpmf(y).sum(axis=1)
    losses = Bernoulli(4).losses(torch.tensor(log_odds), torch.tensor(y))
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    log_likelihood = Bernoulli(4).predict(torch.tensor(log_odds)).log_prob(torch.tensor(y).double())
    np.testing.assert_allclose(-log_likelihood, expected, rtol=1e-12)


def test_shares_are_the_mean_of_both_answers() -> None:
    outputs = torch.tensor([[1.5]])
    no, yes, share = (Bernoulli().loss(outputs, torch.tensor([p])).item() for p in (0.0, 1.0, 0.25))
    assert share == pytest.approx(0.75 * no + 0.25 * yes)


def test_booleans_are_answers() -> None:
    outputs = torch.tensor([[1.5], [-0.5]])
    wanted = Bernoulli().loss(outputs, torch.tensor([1, 0]))
    assert torch.equal(Bernoulli().loss(outputs, torch.tensor([True, False])), wanted)


def test_answers_are_between_0_and_1() -> None:
    with pytest.raises(
        BadValueError,
        match=r"`y` .*, got -1 in row 1, column 0\. Fix the labels, or use NaN for an unknown one",
    ):
        Bernoulli().loss(torch.zeros(2, 1), torch.tensor([1, -1]))
    with pytest.raises(
        BadValueError,
        match="Bernoulli: `n_targets` must be an integer of at "
        r"least 1, got 0\. Use n_targets=1",
    ):
        Bernoulli(n_targets=0)


ODDS = np.random.default_rng(1).normal(size=(6, 3))
MARKED = np.array(
    [[0, 1, -1], [-1, -1, -1], [1, 0.25, np.nan], [np.nan] * 3, [1, -1, 0], [0, 1, 1]]
)


@pytest.mark.parametrize("policy", ["ignore", "zeros", "ones", 0.7])
def test_marks_are_taken_for_what_the_policy_says(policy: Any) -> None:
    meant = LabelMatrix.of(MARKED, MultiLabel.from_logits(ODDS), uncertain=policy).values
    both = np.stack([special.log_expit(-ODDS), special.log_expit(ODDS)])
    expected = -np.nansum((1 - meant) * both[0] + meant * both[1], axis=1)
    losses = Bernoulli(3, uncertain=policy).losses(torch.tensor(ODDS), torch.tensor(MARKED))
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    whole = torch.tensor([[0, 1, -1], [-1, 1, 0]])
    half = Bernoulli(3, uncertain=policy).losses(torch.tensor(ODDS[:2]).half(), whole)
    assert half.isfinite().all()


def test_uncertain_may_be_a_third_class() -> None:
    likelihood = Bernoulli(3, uncertain="multi-class")
    z = np.random.default_rng(2).normal(size=(6, 3, 3))  # rows x classes x labels
    outputs = torch.tensor(z.reshape(6, likelihood.n_outputs))
    log_p = special.log_softmax(z, axis=1)
    hard = np.where(np.isnan(MARKED), 0, MARKED)
    certain = (1 - hard) * log_p[:, 0] + hard * log_p[:, 1]
    each = np.where(MARKED == -1, log_p[:, 2], certain) * ~np.isnan(MARKED)
    losses = likelihood.losses(outputs, torch.tensor(MARKED))
    np.testing.assert_allclose(losses, -each.sum(axis=1), rtol=1e-12)
    p = np.exp(log_p)
    expected = p[:, 1] / (p[:, 0] + p[:, 1])
    np.testing.assert_allclose(likelihood.predict(outputs).mean, expected, rtol=1e-12)
    found = collect_outputs(nn.Identity(), [(outputs, torch.tensor(MARKED))], likelihood=likelihood)
    np.testing.assert_allclose(found.outputs.array, expected, rtol=1e-12)  # type: ignore[attr-defined]
    assert found.labels is not None
    assert (np.isnan(found.labels) == ((MARKED == -1) | np.isnan(MARKED))).all()


def test_policies_for_marks_are_checked() -> None:
    with pytest.raises(
        BadValueError, match=r"itself, e\.g\. uncertain=0\.5\. For the frequency.*LabelMatrix\.of\("
    ):
        Bernoulli(2, uncertain="soft")
    with pytest.raises(BadValueError, match=r"or a probability, got 1\.5"):
        Bernoulli(2, uncertain=1.5)
    with pytest.raises(BadValueError, match=r"uncertain='ignore' if -1 marks"):
        Bernoulli(3).loss(torch.tensor(ODDS), torch.tensor(MARKED))
    with pytest.raises(BadValueError, match=r"must be between 0 and 1, or -1, got 2 in row 0"):
        Bernoulli(1, uncertain="ones").loss(torch.zeros(1, 1), torch.tensor([2]))


@pytest.mark.parametrize(("policy", "expected"), [("ones", [0, 1, 1]), ("ignore", [0, np.nan, 1])])
def test_one_label_may_be_uncertain_too(policy: Any, expected: list[float]) -> None:
    rows = [(torch.zeros(3, 1), torch.tensor([0, -1, 1]))]
    found = collect_outputs(nn.Identity(), rows, likelihood=Bernoulli(uncertain=policy)).labels
    np.testing.assert_array_equal(found, expected)
    soft = collect_outputs(nn.Identity(), rows, likelihood=Bernoulli(uncertain=0.7)).labels
    np.testing.assert_allclose(soft, [[1, 0], [0.3, 0.7], [0, 1]])  # type: ignore[arg-type]


def test_several_labels_reach_the_rest_of_dubito(tmp_path: Any) -> None:
    torch.manual_seed(0)
    inputs, likelihood = torch.randn(40, 5), Bernoulli(3, uncertain="ignore")
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
    y = torch.where(torch.rand(40, 3) < 0.2, -1, (torch.rand(40, 3) < 0.5).long())
    rows = [(inputs[:25], y[:25]), (inputs[25:], y[25:])]
    found = collect_outputs(model, rows, likelihood=likelihood)
    in_file = collect_outputs(model, rows, likelihood=likelihood, path=tmp_path / "rows.parquet")
    outputs = found.outputs
    assert isinstance(outputs, MultiLabel)
    for one in (found, in_file):
        assert isinstance(one.outputs, MultiLabel)
        raw = model.eval()(inputs).detach().numpy()
        np.testing.assert_allclose(one.outputs.log_odds, raw, rtol=1e-5, atol=1e-6)
        expected = np.where(y == -1, np.nan, y.numpy())
        np.testing.assert_array_equal(one.labels, expected)
        assert one.features is not None
        assert one.features.shape == (40, 16)
    figures = audit(found.labels, outputs, n_resamples=0)
    assert figures.n_known == dict(zip("012", (y >= 0).sum(0).tolist(), strict=True))
    passes = MonteCarloDropout(model, n_passes=7, likelihood=likelihood)(inputs)
    models = DeepEnsemble([model, nn.Linear(5, 3)], likelihood=likelihood)(inputs)
    for members, n in ((passes, 7), (models, 2)):
        assert members.array.shape == (n, 40, 3)
        assert (decompose_uncertainty(members).epistemic >= 0).all()
        assert audit(expected, members.mean, n_resamples=0).n_rows == figures.n_rows
