import re
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest

from dubito import Logits, Probabilities, TopLabel, audit
from dubito.arrays import FloatArray
from dubito.errors import BadValueError
from dubito.measure import Interval
from dubito.measure.audit import ClassReport
from dubito.measure.text import _no_strong_evidence, miscalibrated_class, verdict_on

RNG = np.random.default_rng(0)
TRUE = audit([0, 1] * 50, [[0.75, 0.25], [0.25, 0.75]] * 50, n_resamples=0)


@pytest.mark.slow
def test_lines_fit_a_terminal() -> None:
    groups = RNG.choice(["a", "b" * 40], 3000)
    names = [f"a class of a long name, number {k}" for k in range(12)]
    logits = Logits(RNG.normal(0, 3, (3000, 12)), classes=names)
    printed = str(audit(RNG.choice(names, 3000), logits, groups=groups))
    assert max(len(line) for line in printed.splitlines()) <= 80
    assert "class (worst 10)" in printed
    assert printed.splitlines()[0].startswith("Over-confident:")


@pytest.mark.slow
def test_tiny_values_are_printed_as_a_bound_and_infinite_ones_as_inf() -> None:
    y = np.repeat([0, 1], [700, 300])
    printed = str(audit(y, Probabilities(np.tile([0.999, 0.001], (1000, 1)))))
    assert "<0.0001" in printed
    assert "inf " in str(audit([1], [[1.0, 0.0]]))


def test_intervals_are_left_out_where_there_are_none() -> None:
    result = audit([0, 1, 1], [[0.2, 0.7, 0.1]] * 3, n_resamples=0)
    assert "interval" not in str(result)
    assert verdict_on(result) == result.verdict


def test_two_classes_have_a_table_of_classes_too() -> None:
    table = str(audit([0, 1, 1], [0.2, 0.7, 0.6])).split("  class  ")[1]
    assert table.splitlines()[1].split() == ["1", "50.0", "%", "66.7", "%", "0.3000"]


def test_escaped_names_of_classes_keep_the_columns_aligned() -> None:
    outputs = Probabilities([[0.2, 0.8], [0.7, 0.3]], ("plain", "\x1b[31mred"))
    *_, first, second = str(audit(["plain", "plain"], outputs, n_resamples=0)).splitlines()
    assert len(first) == len(second)
    assert {"plain", "\\x1b[31mred"} == {first.split()[0], second.split()[0]}


def skewed(n_rows: int = 2000) -> tuple[NDArray[np.str_], Probabilities]:
    """Return scores of "bad" that are too high, whose errors cancel in the top label."""
    rng = np.random.default_rng(0)
    score = rng.beta(2, 2, n_rows)
    is_bad = rng.uniform(size=n_rows) < score**1.5
    both = np.stack([1 - score, score], axis=1)
    return np.where(is_bad, "bad", "good"), Probabilities(both, ("good", "bad"))


def test_an_overpredicted_class_is_in_the_verdict_though_confidence_matches_accuracy() -> None:
    y, outputs = skewed()
    result = audit(y, outputs)
    assert result.calibration_p_value > 0.001
    says, true = outputs.array[:, 1].mean(), np.mean(y == "bad")
    assert result.verdict == (
        f"Miscalibrated by class: mean confidence {result.confidence * 100:.1f} %, accuracy "
        f"{result.accuracy * 100:.1f} %, but class 'bad' has mean probability {says * 100:.1f} % "
        f"and observed frequency {true * 100:.1f} %."
    )


@pytest.mark.parametrize("n_classes", [2, 30])
def test_chance_alone_accuses_no_class(n_classes: int) -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        p = rng.dirichlet(np.full(n_classes, 0.05), 100)
        y = (p.cumsum(axis=1) > rng.uniform(size=(100, 1))).argmax(axis=1)
        frequency = np.bincount(y, minlength=n_classes) / 100
        lines = zip(range(n_classes), frequency.tolist(), p.mean(axis=0).tolist(), strict=True)
        classes = tuple(ClassReport(*line, 0.0) for line in lines)
        assert miscalibrated_class(replace(TRUE, n_effective=100.0, classes=classes)) is None


@pytest.mark.parametrize(
    ("says", "true", "n_rows"), [(0.5, 0.4, 400), (0.5, 0.45, 400), (0.01, 0.03, 600), (0, 0.01, 9)]
)
def test_a_class_is_accused_where_the_bound_is_passed(
    says: float, true: float, n_rows: int
) -> None:
    other = ClassReport("other", 1 - true, 1 - says, 0.0)
    classes = (ClassReport("this", true, says, 0.0), other)
    found = miscalibrated_class(replace(TRUE, n_effective=float(n_rows), classes=classes))
    floor = max(says, 1e-12)
    surprise = true * np.log(true / floor) + (1 - true) * np.log((1 - true) / (1 - floor))
    expected = classes[0 if says > true else 1] if 4 * np.exp(-n_rows * surprise) < 0.001 else None
    assert found is expected
    # An exact binomial of that many rows is at most the bound.
    exact = binomtest(round(true * n_rows), n_rows, says).pvalue
    assert exact < 0.001 / 2 or expected is None


def test_certain_classes_that_always_or_never_happen_are_no_finding() -> None:
    classes = (ClassReport(0, 1.0 + 1e-16, 1.0, 0.0), ClassReport(1, 1e-16, 0.0, 0.0))
    assert miscalibrated_class(replace(TRUE, n_effective=1e9, classes=classes)) is None


@pytest.mark.slow
def test_the_interval_of_a_verdict_keeps_its_sign() -> None:
    result = replace(
        audit(None, TopLabel(np.full(400, 0.9), np.arange(400) < 300)),
        intervals={"gap": Interval(0.15, -0.02, 0.25)},
    )
    assert "(gap 15.0 points, 95 % interval -2.0 to 25.0)" in result.verdict
    under = audit(None, TopLabel(np.full(400, 0.6), np.arange(400) < 360))
    low, high = re.findall(r"interval ([\d.]+) to ([\d.]+)", under.verdict)[0]
    assert float(low) < 30 < float(high)


@pytest.mark.slow
def test_rows_are_worth_what_their_weights_make_them() -> None:
    top = TopLabel(np.full(1000, 0.9), np.arange(1000) >= 100)
    light = audit(None, top, sample_weight=np.full(1000, 0.01)).verdict
    assert light.startswith("Too few rows for a verdict (1,000 rows, effectively 10 by weight)")
    heavy = audit(None, top, sample_weight=np.full(1000, 3.0)).verdict
    assert "on 1,000 rows, effectively 3,000 by weight" in heavy
    three = np.where(np.arange(1000) < 3, 1.0, 0.0)
    result = audit(None, top, sample_weight=three)
    assert result.n_rows == 3
    assert result.verdict.startswith("Too few rows for a verdict (3 rows)")


def test_two_classes_are_audited_by_their_positive_one() -> None:
    rng = np.random.default_rng(0)
    truth = rng.beta(1, 20, 6000)
    y = rng.random(6000) < truth
    names = np.where(y, "fraud", "ok")
    odds = np.log(truth / (1 - truth))

    def said(scores: FloatArray) -> str:
        p = 1 / (1 + np.exp(-scores))
        outputs = Probabilities(np.column_stack([1 - p, p]), ["ok", "fraud"])
        return audit(names, outputs, pos_label="fraud", n_resamples=0).verdict

    assert said(odds).startswith("No sign of miscalibration of P(fraud) on 6,000 rows: mean 4.")
    assert said(odds + 0.7).startswith("P(fraud) is too high: calibration slope 0.95")
    assert said(odds - 0.7).startswith("P(fraud) is too low: calibration slope 0.95")
    assert said(1.9 * odds).startswith("P(fraud) is too low and too extreme: calibration slope 0.5")
    assert said(np.clip(odds, -3, -1)).startswith("P(fraud) is too")
    outputs = Probabilities(np.column_stack([1 - truth, truth]), ["ok", "fraud"])
    unstated = audit(names, outputs, n_resamples=0)
    assert unstated.positive is None  # never inferred from the order of names
    text = str(audit(names, outputs, pos_label="fraud", n_resamples=0))
    assert "ECE (10 quantile bins)" in text
    top = text.split("decile lift")[1].split("\n")[1].split()
    best = np.argsort(-truth)[:600]
    assert top[:2] == ["10.0", "%"]
    assert top[3:] == [
        f"{y[best].sum() / y.sum() * 100:.1f}",
        "%",
        f"{y[best].mean() / y.mean():.2f}",
    ]
    assert "predicted ok" in text
    assert "true ok" in text
    with pytest.raises(BadValueError, match="one of the two classes, got 'fruad'"):
        audit(names, outputs, pos_label="fruad")


def test_a_p_value_between_the_levels_is_weak_evidence() -> None:
    assert _no_strong_evidence(0.2) == "No sign of miscalibration"
    assert _no_strong_evidence(0.0014) == "Weak evidence of miscalibration (p = 0.0014)"


def test_hard_and_separable_probabilities_are_miscalibrated() -> None:
    rng = np.random.default_rng(0)
    hard = rng.integers(0, 2, 500).astype(float)
    y = (rng.random(500) < np.where(hard == 1, 0.7, 0.2)).astype(int)
    found = audit(y, hard, n_resamples=0)
    assert "too extreme: calibration slope 0.0" in found.verdict
    assert found.positive is not None
    assert found.positive.curve.confidence.tolist() == [0.0, 1.0]  # not in one bin
    p = rng.random(500)
    separable = audit((p > 0.5).astype(int), p, n_resamples=0)
    assert separable.verdict.startswith("P(1) is not extreme enough: mean ")
    alone = audit(np.zeros(800, int), rng.beta(1, 30, 800), n_resamples=0)
    assert alone.verdict.startswith("P(1) is too high: mean 3.")


def test_a_column_of_the_other_class_is_recognized() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.95, 500)
    y = np.where(rng.random(500) < p, "fraud", "ok")
    found = audit(y, Probabilities(1 - p, ["ok", "fraud"]), pos_label="fraud", n_resamples=0)
    assert re.fullmatch(
        r"P\(fraud\) ranks the classes backwards \(calibration slope -\d\.\d\d\)\. Check that the "
        r"column is P\(fraud\) and not P\(ok\)\.",
        found.verdict,
    )
