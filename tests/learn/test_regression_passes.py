"""Passes and collected outputs of regressions and binary labels, beside torch and plain NumPy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import expit
from torch import distributions, nn

from dubito import (
    Logits,
    MultiLabel,
    MultiLabelMembers,
    Normal,
    Quantiles,
    RegressionMembers,
    audit,
)
from dubito.doubt import decompose_uncertainty
from dubito.errors import BadTypeError, BadValueError
from dubito.learn import (
    Bernoulli,
    DeepEnsemble,
    Gaussian,
    HeteroscedasticGaussian,
    Laplace,
    MonteCarloDropout,
    TestTimeAugmentation,
    collect_outputs,
    flip_views,
    identity_view,
)

torch.manual_seed(0)
X = torch.randn(7, 4)
Y = torch.randn(7)


def linear(n_outputs: int, seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(4, n_outputs)


def raw_outputs(models: list[nn.Linear]) -> Any:
    with torch.no_grad():
        return np.stack([model(X).double().numpy() for model in models])


def test_an_ensemble_of_normal_heads_obeys_the_law_of_total_variance() -> None:
    models = [linear(2, seed) for seed in range(5)]
    found = DeepEnsemble(models, likelihood=HeteroscedasticGaussian())(X)
    raw = raw_outputs(models)
    means, variances = raw[..., 0], np.exp(raw[..., 1])
    assert isinstance(found, RegressionMembers)
    assert (found.n_passes, found.n_rows, found.means.dtype.name) == (5, 7, "float32")
    np.testing.assert_allclose(found.mean, means.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.aleatoric_variance, variances.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(found.epistemic_variance, means.var(axis=0), rtol=1e-4)
    parts = decompose_uncertainty(found)
    np.testing.assert_allclose(parts.aleatoric, variances.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(parts.total, variances.mean(axis=0) + means.var(axis=0), rtol=1e-5)


@pytest.mark.parametrize("likelihood", [HeteroscedasticGaussian(), Laplace()])
def test_the_mixture_of_members_is_torchs(likelihood: Any) -> None:
    models = [linear(2, seed) for seed in range(4)]
    found = DeepEnsemble(models, likelihood=likelihood)(X)
    with torch.no_grad():
        outputs = torch.stack([model(X) for model in models], dim=1)
    means, raw = outputs.double().unbind(-1)
    spread = (raw / 2 if isinstance(likelihood, HeteroscedasticGaussian) else raw).exp()
    kind = distributions.Normal if found.family == "normal" else distributions.Laplace
    equal = distributions.Categorical(torch.ones(7, 4))
    mixture: Any = distributions.MixtureSameFamily(equal, kind(means, spread))
    np.testing.assert_allclose(found.log_density(Y), mixture.log_prob(Y), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.cdf(Y), mixture.cdf(Y), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.mean, mixture.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.variance, mixture.variance, rtol=1e-4)


def test_dropout_passes_of_a_fixed_variance_differ_in_their_means() -> None:
    model = nn.Sequential(nn.Dropout(0.5), linear(1))
    found = MonteCarloDropout(model, 20, likelihood=Gaussian(variance=0.25))(X)
    np.testing.assert_allclose(found.aleatoric_variance, 0.25, rtol=1e-6)
    np.testing.assert_allclose(
        found.epistemic_variance, found.means.astype(float).var(axis=0), rtol=1e-6
    )
    assert (found.epistemic_variance > 0).all()


def test_views_of_several_targets_keep_them_apart() -> None:
    model = linear(4)
    views = [identity_view, *flip_views()]
    found = TestTimeAugmentation(model, views, likelihood=HeteroscedasticGaussian(2))(X)
    with torch.no_grad():
        expected = torch.stack([model(X), model(X.flip(-1))]).double().numpy()
    assert found.means.shape == (2, 7, 2)
    np.testing.assert_allclose(found.mean, expected[..., :2].mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        found.aleatoric_variance, np.exp(expected[..., 2:]).mean(axis=0), rtol=1e-5
    )
    assert decompose_uncertainty(found).epistemic.shape == (7, 2)


def test_pixels_of_a_regression_are_rows() -> None:
    torch.manual_seed(0)
    model = nn.Conv2d(1, 2, 1)
    images = torch.randn(3, 1, 4, 5)
    found = DeepEnsemble([model], likelihood=HeteroscedasticGaussian())(images)
    with torch.no_grad():
        expected = model(images)[:, 0].flatten()
    np.testing.assert_allclose(found.means[0], expected, rtol=1e-6)
    collected = collect_outputs(
        model, [(images, images)], likelihood=HeteroscedasticGaussian(), layer=model
    )
    assert isinstance(collected.outputs, Normal)
    np.testing.assert_allclose(collected.outputs.mean, expected, rtol=1e-6)
    assert collected.labels is not None
    assert (collected.labels == images.flatten().numpy()).all()


def test_binary_labels_have_probabilities_of_each_member() -> None:
    models = [linear(3, seed) for seed in range(4)]
    found = DeepEnsemble(models, likelihood=Bernoulli(3))(X)
    assert isinstance(found, MultiLabelMembers)
    expected = expit(raw_outputs(models))
    np.testing.assert_allclose(found.array, expected, rtol=1e-5)
    parts = decompose_uncertainty(found)
    p = expected.mean(axis=0)
    total = -(p * np.log(p) + (1 - p) * np.log(1 - p))
    np.testing.assert_allclose(parts.total, total, rtol=1e-5)
    assert parts.epistemic.shape == (7, 3)


def test_saturated_log_odds_stay_apart_from_certainty() -> None:
    found = DeepEnsemble([nn.Identity()], likelihood=Bernoulli(2))
    assert (1 - found(torch.tensor([[20.0, 30.0]])).array > 0).all()


MODEL = linear(1)
ONE_OUTPUT = (
    r"`likelihood` must be given for a network with one output per row, got None\. Use "
    r"likelihood=Bernoulli\(\) for binary log odds, Gaussian\(\) or another regression likelihood "
    "for targets"
)


@pytest.mark.parametrize(
    "run",
    [
        lambda: MonteCarloDropout(nn.Sequential(MODEL, nn.Dropout(0.5)), 2)(X),
        lambda: DeepEnsemble([MODEL])(X),
        lambda: DeepEnsemble([nn.Sequential(MODEL, nn.Flatten(0))])(X),
        lambda: TestTimeAugmentation(MODEL, [identity_view])(X),
        lambda: collect_outputs(MODEL, [X]),
    ],
)
def test_a_single_output_is_not_guessed(run: Any) -> None:
    with pytest.raises(BadValueError, match=ONE_OUTPUT):
        run()


def test_a_single_output_may_have_no_axis() -> None:
    flat = nn.Sequential(MODEL, nn.Flatten(0))
    with torch.no_grad():
        expected = flat(X).numpy()
    assert (DeepEnsemble([flat], likelihood=Gaussian())(X).means[0] == expected).all()
    assert (collect_outputs(flat, [X], likelihood=Bernoulli()).logits.array[:, 1] == expected).all()


def test_outputs_that_are_not_finite_are_reported() -> None:
    bad = X.clone()
    bad[3] = torch.nan
    for likelihood in (Gaussian(), Bernoulli()):
        with pytest.raises(
            BadValueError,
            match=r"DeepEnsemble: `outputs` must be finite, got nan in row 3.*\. Drop invalid "
            "rows, or fix what produced them",
        ):
            DeepEnsemble([MODEL], likelihood=likelihood)(bad)


@pytest.mark.parametrize("targets", [Y, Y[:, None]])
@pytest.mark.parametrize("path", [None, "rows.parquet"])
def test_a_regression_is_collected(targets: torch.Tensor, path: str | None, tmp_path: Path) -> None:
    model, likelihood = linear(2), HeteroscedasticGaussian()
    place = None if path is None else tmp_path / path
    found = collect_outputs(
        model, [(X[:4], targets[:4]), (X[4:], targets[4:])], likelihood=likelihood, path=place
    )
    raw = raw_outputs([model])[0]
    assert isinstance(found.outputs, Normal)
    np.testing.assert_allclose(found.outputs.mean, raw[:, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.outputs.std, np.exp(raw[:, 1] / 2), rtol=1e-5)
    assert found.labels is not None
    assert (found.labels == Y.numpy()).all()
    assert found.features is not None
    assert (found.features == X.numpy()).all()
    assert found.weights is not None
    assert found.weights.shape == (2, 4)
    assert audit(found.labels, found.outputs).n_rows == 7
    with pytest.raises(BadTypeError, match=r"has logits of classes only, got Normal\. Use \.outp"):
        _ = found.logits


def test_one_weight_of_a_regression_stays_one() -> None:
    found = collect_outputs(MODEL, [(X, Y)], likelihood=Gaussian())
    assert isinstance(found.outputs, Normal)
    assert found.weights is not None
    assert found.bias is not None
    np.testing.assert_allclose(
        X.numpy() @ found.weights[0] + found.bias, found.outputs.mean, rtol=1e-5, atol=1e-6
    )


def test_missing_targets_come_back_from_a_file(tmp_path: Path) -> None:
    targets = Y.clone()
    targets[2] = torch.nan
    found = collect_outputs(
        MODEL, [(X, targets)], likelihood=Gaussian(), path=tmp_path / "rows.parquet"
    )
    assert found.labels is not None
    assert np.isnan(found.labels).tolist() == [row == 2 for row in range(7)]


def test_a_laplace_distribution_is_collected_by_its_quantiles() -> None:
    model = linear(2)
    found = collect_outputs(model, [(X, Y)], likelihood=Laplace()).outputs
    raw = raw_outputs([model])[0]
    assert isinstance(found, Quantiles)
    expected = stats.laplace.ppf(found.levels, raw[:, :1], np.exp(raw[:, 1:]))
    np.testing.assert_allclose(found.array, expected, rtol=1e-4, atol=1e-5)
    assert audit(Y.numpy(), found).n_rows == 7


def test_binary_labels_are_collected() -> None:
    model, labels = linear(3), torch.randn(7, 3) > 0
    found = collect_outputs(model, [(X, labels)], likelihood=Bernoulli(3))
    assert isinstance(found.outputs, MultiLabel)
    np.testing.assert_allclose(found.outputs.array, expit(raw_outputs([model])[0]), rtol=1e-6)
    assert found.labels is not None
    assert (found.labels == labels.numpy()).all()
    assert audit(found.labels[:, 1].astype(int), found.outputs.label(1), n_resamples=0).n_rows == 7


def test_a_binary_label_may_have_an_axis_of_its_own() -> None:
    labels = (Y > 0).long()
    found = collect_outputs(MODEL, [(X, labels[:, None])], likelihood=Bernoulli())
    assert isinstance(found.outputs, Logits)
    assert found.labels is not None
    assert (found.labels == labels.numpy()).all()


@pytest.mark.parametrize(
    ("likelihood", "labels", "message"),
    [
        (
            Gaussian(2),
            Y,
            r"`labels` must have shape \(rows, 2\), got shape \(7,\)\. Order the targ",
        ),
        (Bernoulli(2), X, r"`labels` must have shape \(rows, 2\), got shape \(7, 4\)\. Order the"),
        (HeteroscedasticGaussian(), X, r"`labels` must have shape \(rows, 1\), got shape \(7, 4\)"),
    ],
)
def test_targets_must_fit_the_outputs(likelihood: Any, labels: torch.Tensor, message: str) -> None:
    with pytest.raises(BadValueError, match=rf"collect_outputs \(batch 0\): {message}"):
        collect_outputs(linear(2), [(X, labels)], likelihood=likelihood)


@pytest.mark.parametrize("likelihood", [Laplace(), Gaussian(2)])
def test_files_hold_one_normal_target(likelihood: Any, tmp_path: Path) -> None:
    with pytest.raises(
        BadValueError,
        match=rf"`path` must be None for {type(likelihood).__name__}\(.*\), got '.*rows\.parquet'"
        r"\. Leave it out, and keep the rows in memory",
    ):
        collect_outputs(linear(2), [X], likelihood=likelihood, path=tmp_path / "rows.parquet")
    assert not list(tmp_path.iterdir())
