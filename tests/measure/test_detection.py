import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from dubito.errors import BadTypeError, BadValueError
from dubito.measure import average_precision, false_positive_rate_at_recall, roc_auc

FUNCTIONS = [roc_auc, average_precision, false_positive_rate_at_recall]


def plain_false_positive_rate(
    is_outlier: np.ndarray, uncertainty: np.ndarray, recall: float
) -> float:
    """Return the lowest fraction of in-distribution rows flagged at enough recall."""
    rates = []
    for threshold in np.unique(uncertainty):
        flagged = uncertainty >= threshold
        if flagged[is_outlier].mean() >= recall:
            rates.append(flagged[~is_outlier].mean())
    return float(min(rates))


@pytest.mark.slow
@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 80),
    step=st.sampled_from([0.0, 0.1, 0.5]),
    recall=st.sampled_from([0.5, 0.8, 0.95, 1.0]),
)
def test_figures_equal_scikit_learn_and_a_plain_search(
    seed: int, n: int, step: float, recall: float
) -> None:
    rng = np.random.default_rng(seed)
    uncertainty = rng.normal(size=n)
    uncertainty = np.round(uncertainty / step) * step if step else uncertainty
    is_outlier = rng.random(n) < 0.4
    is_outlier[0], is_outlier[1] = True, False
    assert roc_auc(is_outlier, uncertainty) == pytest.approx(
        metrics.roc_auc_score(is_outlier, uncertainty)
    )
    precision = metrics.average_precision_score(is_outlier, uncertainty)
    assert average_precision(is_outlier, uncertainty) == pytest.approx(precision)
    rate = false_positive_rate_at_recall(is_outlier, uncertainty, recall=recall)
    assert rate == pytest.approx(plain_false_positive_rate(is_outlier, uncertainty, recall))


def test_weights_count_rows() -> None:
    rng = np.random.default_rng(0)
    uncertainty, is_outlier = np.round(rng.random(50), 1), rng.random(50) < 0.5
    weight = rng.integers(0, 4, 50)
    for function in FUNCTIONS:
        repeated = function(np.repeat(is_outlier, weight), np.repeat(uncertainty, weight))
        weighted = function(is_outlier, uncertainty, sample_weight=weight)
        assert weighted == pytest.approx(repeated)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_invalid_labels_and_scores_raise(function: object) -> None:
    assert callable(function)
    with pytest.raises(BadValueError, match=r"got only 1\. Add rows of 0"):
        function([True, True], [0.1, 0.2])
    with pytest.raises(BadValueError, match=r"got only 0\. Add rows of 1"):
        function([False, False], [0.1, 0.2])
    with pytest.raises(BadValueError, match="must be finite"):
        function([True, False], [0.1, np.nan])
    with pytest.raises(BadTypeError, match="an array of real numbers"):
        function([True, False], ["a", "b"])
