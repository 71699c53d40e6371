from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from dubito.arrays import FloatArray
from dubito.doubt import MultiLabelRiskControl, RiskControl
from dubito.errors import BadTypeError, BadValueError, DubitoError, EmptyStateError

GRID = np.linspace(0, 1, 21)


def masks(n_rows: int, seed: int = 0) -> tuple[FloatArray, Any]:
    """Return scores of the pixels of images, some harder than others, and true masks."""
    rng = np.random.default_rng(seed)
    shift = rng.normal(0, 1, (n_rows, 1))
    odds = rng.normal(0, 2, (n_rows, 30)) + shift
    truth = rng.random(odds.shape) < 1 / (1 + np.exp(-odds))
    truth[:, 0] = True
    return 1 / (1 + np.exp(shift - odds)), truth


def missed(n_rows: int, seed: int = 0, grid: FloatArray = GRID) -> FloatArray:
    """Return the fraction of true pixels below each threshold: rows x thresholds."""
    scores, truth = masks(n_rows, seed)
    below = scores[:, :, np.newaxis] < grid
    return np.asarray((below & truth[:, :, np.newaxis]).sum(axis=1) / truth.sum(axis=1)[:, None])


@pytest.mark.parametrize("scale", [1.0, 5.0])
@pytest.mark.parametrize(("n_rows", "target"), [(30, 0.1), (200, 0.05), (200, 0.3)])
def test_conformal_risk_control_is_that_of_the_paper(
    n_rows: int, target: float, scale: float
) -> None:
    losses = scale * missed(n_rows)
    found = RiskControl(scale * target, max_loss=scale).fit(losses, GRID)
    fine = []
    for k, threshold in enumerate(GRID):
        risk = sum(losses[:, k]) / n_rows
        if n_rows / (n_rows + 1) * risk + scale / (n_rows + 1) <= scale * target:
            fine.append(threshold)
    assert found.threshold_ == max(fine)
    assert found.mean_losses_ == pytest.approx(losses.mean(axis=0), rel=1e-12)


@pytest.mark.parametrize("scale", [1.0, 5.0])
@pytest.mark.parametrize("delta", [0.05, 0.2])
def test_learn_then_test_stops_at_the_first_failure(delta: float, scale: float) -> None:
    losses = missed(300)
    losses[:, 5] = np.maximum(losses[:, 5], 0.4)  # not monotone: later ones would pass again
    for rows in (missed(300), losses):
        found = RiskControl(0.2 * scale, "ltt", delta, scale).fit(scale * rows, GRID)
        p_values = []
        for mean in rows.mean(axis=0):
            low = min(mean, 0.2)
            entropy = low * np.log(low / 0.2) if low else 0
            entropy += (1 - low) * np.log((1 - low) / 0.8)
            bentkus = np.e * binom.cdf(np.ceil(300 * mean - 1e-9), 300, 0.2)
            p_values.append(min(np.exp(-300 * entropy), bentkus))
        assert found.bounds_ == pytest.approx(p_values, rel=1e-9)
        failed = [k for k, value in enumerate(p_values) if value > delta]
        assert found.threshold_ == GRID[failed[0] - 1]
    assert found.threshold_ == GRID[4]


def test_a_function_gives_what_its_matrix_gives() -> None:
    scores, truth = masks(100)

    def loss(threshold: float) -> FloatArray:
        return np.asarray(((scores < threshold) & truth).sum(axis=1) / truth.sum(axis=1))

    by_function = RiskControl(0.2).fit(loss, GRID)
    by_matrix = RiskControl(0.2).fit(missed(100), GRID)
    assert by_function.to_dict() == by_matrix.to_dict()


def test_labels_above_a_threshold_are_a_special_case() -> None:
    """The recall of sets of labels is that of a loss at all distinct probabilities."""
    rng = np.random.default_rng(3)
    p = np.round(rng.random((150, 4)), 2)
    y = (rng.random(p.shape) < p) * 1.0
    y[:, 0] = 1
    grid = np.unique(np.append(0, p))
    found = RiskControl(0.2).fit(lambda t: 1 - (y * (p >= t)).sum(axis=1) / y.sum(axis=1), grid)
    assert MultiLabelRiskControl(target=0.8).fit(p, y).thresholds_[0] == found.threshold_


def test_false_alarms_fall_with_the_threshold() -> None:
    rng = np.random.default_rng(1)
    scores = rng.random((200, 10))
    found = RiskControl(1.0, max_loss=10).fit(lambda t: (scores >= t).sum(axis=1), GRID[::-1])
    kept = [t for t in GRID if ((scores >= t).sum() + 10) / 201 <= 1]
    assert found.threshold_ == min(kept)


@pytest.mark.parametrize("options", [{}, {"method": "ltt", "delta": 0.1}])
def test_weights_are_counts(options: Any) -> None:
    losses = missed(80)
    count = np.random.default_rng(0).integers(0, 4, 80)
    losses[count == 0] = np.nan  # rows that are not there
    repeated = RiskControl(0.25, **options).fit(np.repeat(losses, count, axis=0), GRID)
    weighted = RiskControl(0.25, **options).fit(losses, GRID, sample_weight=count)
    assert weighted.threshold_ == repeated.threshold_
    assert weighted.bounds_ == pytest.approx(repeated.bounds_)
    assert weighted.n_rows_ == count.sum()


def test_a_loss_that_falls_is_rejected_with_its_place_and_remedy() -> None:
    losses = missed(50)
    losses[17, 7:] = np.maximum(losses[17, 7:], 0.5)
    losses[17, 8] = losses[17, 7] - 0.25
    with pytest.raises(BadValueError) as caught:
        RiskControl(0.2).fit(losses, GRID)
    text = str(caught.value)
    assert f"{losses[17, 7]:g} at 0.35 and {losses[17, 8]:g} at 0.4 in row 17" in text
    assert "a fall by 0.25" in text
    assert "monotonize=True" in text
    assert "method='ltt'" in text
    with pytest.raises(BadValueError, match="from the safest to the boldest"):
        RiskControl(0.2).fit(losses[:, ::-1], GRID[::-1])


def test_the_envelope_is_the_largest_loss_so_far() -> None:
    rng = np.random.default_rng(0)
    losses = np.clip(missed(60) + rng.normal(0, 0.05, (60, GRID.size)), 0, 1)
    before = losses.copy()
    found = RiskControl(0.3, monotonize=True).fit(losses, GRID)
    expected = RiskControl(0.3).fit(
        [[max(row[: k + 1]) for k in range(21)] for row in losses], GRID
    )
    assert (found.threshold_, found.mean_losses_.tolist()) == (
        expected.threshold_,
        expected.mean_losses_.tolist(),
    )
    assert (losses == before).all()


def test_without_a_threshold_that_is_safe_the_reason_is_given() -> None:
    with pytest.raises(BadValueError) as caught:
        RiskControl(0.1).fit(missed(5), GRID)
    assert "bound is at most 0.1, got 0.1667 at the safest, 0, of 5 rows" in str(caught.value)
    with pytest.raises(BadValueError, match=r"p-value is at most 0\.1, got"):
        RiskControl(0.1, "ltt", 0.1).fit(missed(10), GRID)


def test_json_and_text() -> None:
    found = RiskControl(0.2, "ltt", 0.1).fit(missed(100), GRID)
    again = RiskControl.from_dict(found.to_dict())
    assert again.to_dict() == found.to_dict()
    assert str(again).startswith(f"Threshold {found.threshold_:g}: the mean loss is at most 0.2 ")
    values = found.to_dict()
    values["fitted"]["threshold_"] = 0.123
    with pytest.raises(BadValueError, match=r"threshold_.* one of thresholds_, got 0\.123"):
        RiskControl.from_dict(values)
    assert str(RiskControl(0.2)) == "RiskControl(target=0.2)"


@pytest.mark.parametrize(
    ("options", "losses", "thresholds", "words"),
    [
        ({"target": 0.0}, [[0.0]], [0.5], "`target` must be a finite number above 0"),
        ({"target": 2.0}, [[0.0]], [0.5], "`target` must be below max_loss=1, got 2"),
        ({"method": "rcps"}, [[0.0]], [0.5], "`method` must be 'crc' or 'ltt'"),
        ({"method": "ltt"}, [[0.0]], [0.5], "`delta` must be given for method='ltt'"),
        ({"delta": 0.1}, [[0.0]], [0.5], "`delta` must be None for method='crc'"),
        ({"method": "ltt", "delta": 0.1, "monotonize": True}, [[0.0]], [0.5], "must be False for"),
        ({"max_loss": 0}, [[0.0]], [0.5], "`max_loss` must be a finite number above 0"),
        ({}, [[0.0, 2.0]], [0.1, 0.2], "from 0 to max_loss=1, got 2 in row 0, threshold 0.2"),
        ({}, [[0.0, -0.5]], [0.1, 0.2], "got -0.5 in row 0"),
        ({}, [[0.0, np.nan]], [0.1, 0.2], "got nan in row 0"),
        ({}, [[0.0, 0.5]], [0.1], "one column per threshold (1), got 2 columns"),
        ({}, [[0.0] * 3], [0.1, 0.3, 0.2], "must rise or fall"),
        ({}, [[0.0] * 2], [0.1, 0.1], "must rise or fall"),
        ({}, [0.0], [0.1], "`losses` must be rows x thresholds"),
        ({}, lambda t: np.zeros(3 + (t > 0.1)), [0.1, 0.2], "must return 3 losses for every"),
    ],
)
def test_invalid_input_is_reported(
    options: Any, losses: Any, thresholds: list[float], words: str
) -> None:
    with pytest.raises(BadValueError) as caught:
        RiskControl(**options).fit(losses, thresholds)
    assert words in str(caught.value)


def test_what_is_no_number_or_no_row_is_reported() -> None:
    with pytest.raises(BadTypeError, match="real numbers"):
        RiskControl().fit([["a"]], [0.5])
    with pytest.raises(EmptyStateError):
        RiskControl().fit(np.zeros((0, 1)), [0.5])
    with pytest.raises(EmptyStateError):
        RiskControl().fit([[0.0]], [0.5], sample_weight=[0])
    with pytest.raises(DubitoError, match="not fitted"):
        RiskControl().to_dict()
