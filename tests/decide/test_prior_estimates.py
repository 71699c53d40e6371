"""How common classes are, from outputs alone: known shifts are found, or a warning is given."""

import re
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy.stats import dirichlet

from dubito import Probabilities
from dubito.decide import estimate_prior
from dubito.errors import BadTypeError, BadValueError, DubitoWarning

Floats = NDArray[np.floating[Any]]

TRAIN = np.array([0.4, 0.3, 0.2, 0.1])
DEPLOYED = np.array([0.05, 0.1, 0.15, 0.7])
SHAPES = np.ones((4, 4)) + 2 * np.eye(4)


def made(n_rows: int, prior: Floats, seed: int = 0) -> tuple[NDArray[np.int64], Floats]:
    """Return labels of a prior, and exact posteriors under the training prior: Dirichlet inputs."""
    rng = np.random.default_rng(seed)
    y = rng.choice(4, n_rows, p=prior)
    x = np.stack([rng.dirichlet(SHAPES[label]) for label in y])
    logs = np.stack([dirichlet.logpdf(x.T / x.T.sum(axis=0), shape) for shape in SHAPES], axis=1)
    joint = np.exp(logs) * TRAIN
    return y, joint / joint.sum(axis=1, keepdims=True)


def saerens(p: Floats, train: Floats, n_steps: int = 3000) -> Floats:
    """Return the prior by the published steps, plainly."""
    prior = np.asarray(train)
    for _ in range(n_steps):
        adjusted = p * prior / train
        prior = (adjusted / adjusted.sum(axis=1, keepdims=True)).mean(axis=0)
    return prior


@pytest.mark.slow
def test_em_recovers_a_known_shift() -> None:
    _, p = made(20_000, DEPLOYED, seed=2)
    found = estimate_prior(p, TRAIN, level=0.999)
    close(found.prior, DEPLOYED, atol=0.015)
    assert ((found.low <= DEPLOYED) & (found.high >= DEPLOYED)).all()
    assert (found.high - found.low < 0.04).all()
    assert found.is_identified.all()


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [40, 1000])
def test_em_ends_where_the_published_steps_do(n_rows: int) -> None:
    _, p = made(n_rows, DEPLOYED, seed=3)
    close(estimate_prior(p, TRAIN, n_resamples=40).prior, saerens(p, TRAIN), atol=2e-4)


@pytest.mark.slow
def test_bbse_recovers_a_known_shift_from_outputs_that_are_not_calibrated() -> None:
    y, validation = made(8000, np.full(4, 0.25), seed=1)
    _, p = made(20_000, DEPLOYED, seed=2)
    sharp = [q**3 / (q**3).sum(axis=1, keepdims=True) for q in (validation, p)]
    found = estimate_prior(sharp[1], method="bbse", validation=(y, sharp[0]), level=0.999)
    close(found.prior, DEPLOYED, atol=0.05)
    assert ((found.low <= DEPLOYED) & (found.high >= DEPLOYED)).all()
    counts = np.zeros((4, 4))
    np.add.at(counts, (validation.argmax(axis=1), y), 1)
    tops = np.bincount(p.argmax(axis=1), minlength=4) / len(p)
    close(found.prior, np.linalg.solve(counts / counts.sum(axis=0), tops), rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["em", "bbse"])
def test_intervals_hold_the_truth_about_as_often_as_they_say(method: Any) -> None:
    hits = 0
    for seed in range(40):
        _, p = made(400, DEPLOYED, seed=100 + seed)
        if method == "em":
            found = estimate_prior(p, TRAIN, level=0.8, n_resamples=60)
        else:
            validation = made(1000, np.full(4, 0.25), seed=seed)
            found = estimate_prior(
                p, method="bbse", validation=validation, level=0.8, n_resamples=60
            )
        hits += int(((found.low <= DEPLOYED) & (found.high >= DEPLOYED)).sum())
    assert 0.68 < hits / 160 < 0.92


@pytest.mark.slow
def test_the_same_seed_gives_the_same_interval() -> None:
    _, p = made(200, DEPLOYED)
    first, second, third = (estimate_prior(p, TRAIN, random_state=seed) for seed in (1, 1, 2))
    assert first.low.tolist() == second.low.tolist()
    assert first.low.tolist() != third.low.tolist()


def test_names_and_words() -> None:
    outputs = Probabilities([[0.9, 0.1]] * 20 + [[0.2, 0.8]] * 80, classes=["cat", "dog"])
    found = estimate_prior(outputs, {"dog": 0.5, "cat": 0.5})
    assert found.classes == ("cat", "dog")
    low, high = found.low, found.high
    assert found.summary() == (
        "em, 100 rows, 95 % intervals\n"
        f"cat: 16.7 % ({100 * low[0]:.1f} % to {100 * high[0]:.1f} %)\n"
        f"dog: 83.3 % ({100 * low[1]:.1f} % to {100 * high[1]:.1f} %)"
    )


def test_outputs_that_say_nothing_leave_the_prior_open() -> None:
    with pytest.warns(DubitoWarning) as caught:
        found = estimate_prior(np.tile(TRAIN, (1000, 1)), TRAIN)
    assert re.search("classes 0, 1, 2, 3 .*flat.*Use more rows", str(caught[0].message))
    assert caught[0].filename == __file__
    close(found.prior, TRAIN)
    assert not found.is_identified.any()
    assert found.low.tolist() == [0] * 4
    assert found.high.tolist() == [1] * 4
    assert found.summary().endswith(", not identified")


def test_only_the_classes_that_look_alike_are_left_open() -> None:
    _, p = made(5000, DEPLOYED)
    together = p[:, :2].sum(axis=1, keepdims=True)
    alike = np.hstack([together * TRAIN[:2] / TRAIN[:2].sum(), p[:, 2:]])
    with pytest.warns(DubitoWarning, match="the classes 0, 1 is not"):
        found = estimate_prior(alike, TRAIN)
    assert found.is_identified.tolist() == [False, False, True, True]
    assert found.prior[:2].sum() == pytest.approx(0.15, abs=0.03)


def test_a_singular_confusion_matrix_warns() -> None:
    y = np.arange(400) % 2
    same = np.tile([[0.6, 0.4], [0.6, 0.4], [0.4, 0.6], [0.4, 0.6]], (100, 1))
    with pytest.warns(DubitoWarning) as caught:
        found = estimate_prior(same, method="bbse", validation=(y, same))
    assert re.search("classes 0, 1 .*singular.*Use more rows", str(caught[0].message))
    assert found.high.tolist() == [1, 1]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_sure_outputs_in_low_precision_are_counted(dtype: Any) -> None:
    p = np.repeat(np.eye(2, dtype=dtype), [30, 90], axis=0)
    found = estimate_prior(p, [0.5, 0.5])
    close(found.prior, [0.25, 0.75], atol=1e-9)
    assert (found.low < found.prior).all()
    assert (found.prior < found.high).all()


def test_a_single_row_is_answered_with_a_warning() -> None:
    with pytest.warns(DubitoWarning, match="not identified"):
        found = estimate_prior([[0.9, 0.1]], [0.5, 0.5])
    close(found.prior, [1, 0], atol=1e-4)


ROW = [[0.9, 0.1]]
EVEN = [0.5, 0.5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"outputs": np.empty((0, 2)), "train_prior": EVEN},
            r"`outputs` .*got 0\. Pass the outputs of",
        ),
        (
            {"outputs": ROW, "train_prior": EVEN, "method": "mle"},
            r"`method` .*got 'mle'\. Use method='em'",
        ),
        (
            {"outputs": ROW, "train_prior": [1.0, 0.0]},
            r"`train_prior` .*got 0 for class 1\. Drop columns that no",
        ),
        (
            {"outputs": ROW},
            r"`train_prior` .*got None\. Pass the class frequencies",
        ),
        (
            {"outputs": ROW, "train_prior": EVEN, "validation": ([0], ROW)},
            r"`validation` .*got tuple\. Use method='bbse', which learns",
        ),
        (
            {"outputs": ROW, "method": "bbse"},
            r"`validation` .*got NoneType\. Pass validation=\(y, outputs\) of",
        ),
        (
            {"outputs": ROW, "train_prior": EVEN, "level": 95},
            r"`level`.*95\.",
        ),
        (
            {"outputs": ROW, "train_prior": EVEN, "n_resamples": 3},
            r"`n_resamples` .*got 3\. Use n_resamples",
        ),
        (
            {"outputs": ROW, "train_prior": EVEN, "random_state": -1},
            r"`random_state` .*got -1\. Pass random_state=0",
        ),
    ],
)
def test_what_cannot_be_estimated(arguments: Any, message: str) -> None:
    with pytest.raises((BadValueError, BadTypeError)) as caught:
        estimate_prior(**arguments)
    assert re.search(message, str(caught.value))
