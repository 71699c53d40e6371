import json

import numpy as np
import pytest

from dubito import Normal, Quantiles, Samples, audit
from dubito.data import Batch
from dubito.doubt import decompose_uncertainty
from dubito.errors import EmptyStateError, StateMismatchError
from dubito.measure import (
    RegressionAudit,
    RegressionState,
    continuous_ranked_probability_score,
    interval_coverage,
    negative_log_likelihood,
    pinball_loss,
    sharpness,
)
from dubito.monitor import compare, detect_drift
from dubito.outputs import RegressionMembers

RNG = np.random.default_rng(0)
MEAN, STD = RNG.normal(size=2000), np.exp(RNG.normal(size=2000) / 2)
Y = MEAN + STD * RNG.normal(size=2000)


def test_an_audit_holds_what_the_functions_return() -> None:
    outputs = Normal(MEAN, STD)
    result = audit(Y, outputs)
    assert isinstance(result, RegressionAudit)
    assert result.negative_log_likelihood == pytest.approx(negative_log_likelihood(Y, outputs))
    crps = continuous_ranked_probability_score(Y, outputs)
    assert result.continuous_ranked_probability_score == pytest.approx(crps)
    error = np.sqrt(((Y - MEAN) ** 2).mean())
    assert result.root_mean_squared_error == pytest.approx(error)
    for level, held, width in zip(result.levels, result.coverage, result.width, strict=True):
        assert held == pytest.approx(interval_coverage(Y, outputs, level=level))
        assert width == pytest.approx(sharpness(outputs, level=level))
    assert result.pit.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("factor", "words"),
    [(1.0, "No sign of miscalibration"), (0.7, "Over-confident"), (1.5, "Under-confident")],
)
def test_verdicts(factor: float, words: str) -> None:
    assert audit(Y, Normal(MEAN, factor * STD)).verdict.startswith(words)


def test_quantiles_are_audited_at_the_intervals_they_have() -> None:
    levels = [0.05, 0.25, 0.5, 0.75, 0.9, 0.95]
    array = MEAN[:, np.newaxis] + np.array([-1.645, -0.674, 0, 0.674, 1.282, 1.645])
    result = audit(Y, Quantiles(array, levels))
    assert result.levels == pytest.approx([0.5, 0.9])
    assert result.negative_log_likelihood is None
    assert result.pinball_loss == pytest.approx(pinball_loss(Y, Quantiles(array, levels)))
    assert "nan" not in str(result).lower()


def test_samples_and_vectors_are_audited() -> None:
    draws = MEAN.reshape(1000, 1, 2) + RNG.normal(size=(1000, 50, 2))
    result = audit(Y.reshape(1000, 2), Samples(draws))
    assert result.n_rows == 1000
    assert "1,000 rows" in str(result)


def test_states_pool_go_through_json_and_know_emptiness() -> None:
    batch = Batch.of(Y, Normal(MEAN, STD))
    whole = RegressionState.of(batch)
    parts = [RegressionState.of(batch.take(slice(i, i + 500))) for i in range(0, 2000, 500)]
    total = parts[0] + parts[1] + parts[2] + parts[3]
    text = json.dumps(total.to_dict(), allow_nan=False)
    again = RegressionState.from_dict(json.loads(text))
    for name, value in whole.to_dict().items():
        assert again.to_dict()[name] == pytest.approx(value)
    with pytest.raises(EmptyStateError):
        _ = RegressionState.of(batch.take(slice(0, 0))).value
    other = Batch.of(Y, Quantiles(MEAN[:, np.newaxis], [0.5]))
    with pytest.raises(StateMismatchError):
        _ = whole + RegressionState.of(other)


def test_a_dict_is_ready_for_json() -> None:
    assert json.loads(json.dumps(audit(Y, Normal(MEAN, STD)).to_dict()))["n_rows"] == 2000


@pytest.mark.parametrize("n_draws", [5, 10, 20, 100])
def test_draws_from_the_truth_are_calibrated_however_few(n_draws: int) -> None:
    rng = np.random.default_rng(1)
    draws = Samples(MEAN[:, np.newaxis] + rng.normal(size=(2000, n_draws)))
    result = audit(MEAN + rng.normal(size=2000), draws)
    assert result.verdict.startswith("No sign of miscalibration")
    assert max(result.levels) <= (n_draws - 1) / (n_draws + 1) + 1e-12


def test_groups_figures_and_notebooks() -> None:
    groups = np.where(np.arange(2000) < 1000, "a", "b")
    result = audit(Y, Normal(MEAN, STD), groups=groups)
    alone = audit(Y[:1000], Normal(MEAN[:1000], STD[:1000]))
    assert result.groups["a"].figures == pytest.approx(alone.figures)
    assert result.figures["group.a.coverage.0.9"] == pytest.approx(alone.coverage[2])
    assert f"<strong>{result.verdict}".replace(" %", "\u00a0%") in result._repr_html_()
    assert "a: No sign" in str(result)


def test_few_rows_prove_nothing() -> None:
    assert audit(Y[:1], Normal(MEAN[:1], STD[:1])).verdict.startswith(
        "Too few rows for a verdict (1 row):"
    )


def test_members_are_audited_by_their_moments_with_both_parts_of_the_variance() -> None:
    means, stds = MEAN + RNG.normal(size=(3, 2000)), STD * [[0.5], [1.0], [1.5]]
    members = RegressionMembers(means, stds)
    result, parts = audit(Y, members), decompose_uncertainty(members)
    assert result.aleatoric_std == pytest.approx(np.sqrt(parts.aleatoric.mean()))
    assert result.epistemic_std == pytest.approx(np.sqrt(parts.epistemic.mean()))
    assert "epistemic std" in str(result)
    total = np.sqrt((stds**2).mean(axis=0) + means.var(axis=0))
    expected = audit(Y, Normal(means.mean(axis=0), total))
    assert result.coverage.tolist() == expected.coverage.tolist()
    assert expected.aleatoric_std is None
    score = continuous_ranked_probability_score(Y, members)
    assert score == pytest.approx(expected.continuous_ranked_probability_score)


def test_sorted_rows_are_counted() -> None:
    array = np.sort(RNG.normal(size=(2000, 3)), axis=1)
    array[:7] = array[:7, ::-1]
    result = audit(Y, Quantiles(array, [0.1, 0.5, 0.9], rearrange=True))
    assert result.n_rearranged == 7
    assert "7 rows with crossing quantiles sorted" in str(result)
    assert "CRPS (from quantiles)" in str(result)


def test_quantiles_on_one_side_of_the_median_have_no_point_prediction() -> None:
    upper = Quantiles(MEAN[:, None] + STD[:, None] * [1.0, 2.0], [0.84, 0.977])
    result = audit(Y, upper)
    assert result.root_mean_squared_error is None
    assert "root mean squared error" not in str(result)
    assert result.pinball_loss == pytest.approx(pinball_loss(Y, upper))
    found = compare(Y, {"a": upper, "b": upper})
    assert list(found.metrics["a"]) == ["crps_from_quantiles", "pinball_loss"]
    assert "bias" not in detect_drift(upper, upper, y_reference=Y, y_current=Y).shifts


def test_figures_of_any_size_are_readable_without_numpy_warnings() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=40)
    for size, shown in ((1e-7, "e-0"), (1e9, "e+0"), (1e200, "e+20")):
        text = str(audit(size * y, Normal(np.zeros(40), np.full(40, size))))
        assert shown in text
        assert max(map(len, text.splitlines()[2:])) < 60
    y[3] = 1e300
    found = audit(y, Normal(np.zeros(40), np.ones(40)))
    assert found.root_mean_squared_error == np.inf
    assert audit(y[:3], Samples(np.zeros((3, 30)))).verdict.count("93.5 %") == 1
