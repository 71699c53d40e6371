"""A comparison reads as plain sentences, in 80 columns."""

from typing import Any

import numpy as np
import pytest

from dubito import Logits, Normal
from dubito.measure import Interval
from dubito.monitor import Comparison, Difference, compare

FAR, NEAR = Interval(-0.031, -0.035, -0.027), Interval(0.001, -0.002, 0.004)


def one(
    model: str, baseline: str, metric: str, interval: Interval, is_better: bool | None
) -> Difference:
    return Difference(model, baseline, metric, interval, 0.5, is_better)


def made(differences: list[Difference], models: tuple[str, ...] = ("A", "B")) -> Comparison:
    metrics = dict.fromkeys(d.metric for d in differences)
    figures = {m: dict.fromkeys(metrics, Interval(0.25, 0.2, 0.3)) for m in models}
    return Comparison(models, "B", "log_loss", figures, tuple(differences), 0.95, 1200, 3)


def test_what_is_sure_comes_with_its_size() -> None:
    found = made([one("B", "A", "log_loss", FAR, True), one("B", "A", "accuracy", NEAR, None)])
    assert found.verdict == (
        "B is better than A in log loss by 0.031 (0.027 to 0.035); no sure difference in accuracy."
    )
    mixed = made(
        [
            one("B", "A", "log_loss", FAR, True),
            one("B", "A", "brier_score", NEAR, False),
            one("B", "A", "accuracy", FAR, False),
        ]
    )
    assert mixed.verdict == (
        "B is better than A in log loss by 0.031 (0.027 to 0.035) but worse in Brier score by "
        "0.001 (-0.002 to 0.004) and accuracy by 0.031 (0.027 to 0.035)."
    )


def test_worse_and_unsure_models_are_told() -> None:
    worse = made([one("B", "A", "log_loss", FAR, False)])
    assert worse.verdict == "B is worse than A in log loss by 0.031 (0.027 to 0.035)."
    unsure = made([one("B", "A", m, NEAR, None) for m in ("log_loss", "accuracy", "brier_score")])
    assert unsure.verdict == (
        "No sure difference between B and A in log loss, accuracy and Brier score."
    )


def test_of_several_the_best_is_named() -> None:
    models = ("A", "B", "C", "D")
    found = made(
        [
            one("B", "A", "log_loss", FAR, True),
            one("C", "A", "log_loss", NEAR, None),
            one("D", "A", "log_loss", NEAR, None),
            one("C", "B", "log_loss", NEAR, None),
            one("D", "B", "log_loss", NEAR, False),
        ],
        models,
    )
    assert found.verdict.endswith(
        "Best by log loss on these rows: B, surely better than A and D, not surely than C."
    )
    alone = made([one(m, "A", "log_loss", NEAR, None) for m in "BC"], ("A", "B", "C"))
    assert alone.verdict.endswith("Best by log loss on these rows: B, not surely than A and C.")


def test_few_rows_and_infinite_losses_are_told() -> None:
    few = compare([0] * 5, {"A": [[0.9, 0.1]] * 5, "B": [[0.1, 0.9]] * 5}, n_resamples=40)
    assert few.verdict == "Too few rows to tell (5)."
    sure = np.array([[1.0, 0.0]] * 30)
    endless = compare([1] + [0] * 29, {"A": sure, "B": sure * 0.9 + 0.05}, n_resamples=40)
    assert endless.verdict.endswith(
        "Log loss is infinite for A: a class of probability 0 happened."
    )


def test_the_whole_fits_into_80_columns() -> None:
    found = made([one("B", "A", "log_loss", FAR, True), one("B", "A", "accuracy", NEAR, None)])
    assert str(found).splitlines() == [
        "B is better than A in log loss by 0.031 (0.027 to 0.035); no sure difference in",
        "accuracy.",
        "",
        "1,200 rows; 3 more without a truth left out. Each interval holds at 95%; what is",
        "said to be better or worse holds for all 2 comparisons together (Holm).",
        "",
        "  A",
        "    log loss                       0.25 (0.2 to 0.3)",
        "    accuracy                       0.25 (0.2 to 0.3)",
        "",
        "  B",
        "    log loss                       0.25 (0.2 to 0.3)",
        "    accuracy                       0.25 (0.2 to 0.3)",
        "",
        "  B less A",
        "    log loss                       -0.031 (-0.035 to -0.027)  better",
        "    accuracy                       +0.001 (-0.002 to +0.004)",
    ]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_long_names_and_large_numbers_fit_too(scale: float) -> None:
    rng = np.random.default_rng(0)
    y = scale * rng.normal(size=50)
    models: dict[str, Any] = {
        "x" * 200: Normal(y, np.full(50, scale)),
        "y" * 200: Normal(-y, np.full(50, scale)),
    }
    lines = str(compare(y, models, n_resamples=40)).splitlines()
    indented = [line for line in lines if line.startswith("  ")]
    assert max(map(len, indented)) <= 80
    z = Logits(rng.normal(size=(50, 3)))
    found = compare([0] * 50, {"old": z, "new": Logits(2 * z.array)}, n_resamples=40)
    assert max(map(len, str(found).splitlines())) <= 80
