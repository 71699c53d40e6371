"""Drift reads as plain sentences that name what moved and what to do, in 80 columns."""

from typing import Any

import numpy as np
import pytest

from dubito.decide import PriorEstimate
from dubito.measure import Interval
from dubito.monitor import DistributionShift, Drift

BETWEEN = Interval(-0.05, -0.06, -0.04)
KNOWN = ("confidence", "predicted classes", "entropy", "energy")
LABELED = ("accuracy", "over-confidence", "log loss", "labels")
PRIOR = PriorEstimate(
    prior=np.array([0.6, 0.4]),
    low=np.array([0.55, 0.35]),
    high=np.array([0.65, 0.45]),
    is_identified=np.array([True, False]),
    classes=("cat", "dog"),
    level=0.95,
    method="em",
    n_rows=100,
)


def made(*moved: str, others: tuple[str, ...] = KNOWN, **known: Any) -> Drift:
    shifts = {
        name: DistributionShift(0.001, 0.125, 0.9, 0.85, BETWEEN, True)
        if name in moved
        else DistributionShift(0.5, 0.125, 0.9, 0.85, BETWEEN)
        for name in dict.fromkeys([*others, *moved])
    }
    settings: dict[str, Any] = {
        "n_reference": 1000,
        "n_current": 200,
        "level": 0.95,
        "shifts": shifts,
        "wasserstein": 0.1,
        "expected_accuracy": 0.85,
        "thresholded_accuracy": None,
        "prior": None,
        "reference_prior": None,
        "classes": None,
    }
    return Drift(**{**settings, **known})


MEANS = "mean confidence 90.0%, now 85.0%"
ALL = (*KNOWN, *LABELED)
WORDS = [
    (made(), "No sign of drift between 1,000 and 200 rows."),
    (made("confidence", n_current=19), "Too few rows to tell (1,000 and 19 rows)."),
    (
        made("confidence", "energy"),
        f"Confidence moved ({MEANS}) while the classes predicted did not: recalibrate.",
    ),
    (
        made("confidence", others=("confidence",)),
        f"Confidence moved ({MEANS}): recalibrate.",
    ),
    (
        made("energy"),
        f"The size of logits moved, the confidence did not ({MEANS}): look at the inputs.",
    ),
    (
        made("predicted classes"),
        "The prior moved, as far as predictions tell: adjust_prior.",
    ),
    (
        made(
            "predicted classes",
            "confidence",
            prior=PRIOR,
            reference_prior=np.array([0.3, 0.7]),
            classes=("cat", "dog"),
        ),
        "The prior moved, as far as predictions tell (class cat from 30.0% to about 60.0%, 55.0% "
        f"to 65.0%): adjust_prior. Confidence moved too ({MEANS}), as another prior can make it: "
        "look again after that.",
    ),
    (
        made("strange inputs", "predicted classes", "entropy"),
        "Inputs are strange: 85.0% of them are further out than all but 90% of known rows. Look at "
        "them before anything else. The prior moved, as far as predictions tell: adjust_prior. "
        "Only if inputs of a class look as they did: strange ones may not. Confidence moved too "
        f"({MEANS}), as strange inputs can make it: look again after that.",
    ),
    (
        made("labels", others=ALL),
        "The prior moved, by the labels (distance 0.125): adjust_prior.",
    ),
    (
        made("predicted classes", others=ALL),
        "Other classes are predicted while labels are as common as before: retrain.",
    ),
    (
        made("confidence", others=ALL),
        f"Confidence moved ({MEANS}), and is as true as before: nothing to recalibrate.",
    ),
    (
        made("accuracy", others=ALL),
        "Accuracy fell from 90.0% to 85.0%. Outputs look as before: what labels mean may have "
        "changed. Retrain.",
    ),
    (made("log loss", others=ALL), "Log loss went from 0.9 to 0.85."),
    (
        made("confidence", "over-confidence", "accuracy", others=ALL),
        f"Confidence moved ({MEANS}). Accuracy fell from 90.0% to 85.0%. Confidence less accuracy "
        "went from +90.0% to +85.0%: recalibrate on rows of this period.",
    ),
]


@pytest.mark.parametrize(("found", "words"), WORDS)
def test_the_verdict_names_what_moved_and_what_to_do(found: Drift, words: str) -> None:
    assert found.verdict == words


def test_a_prior_that_is_not_identified_is_not_named() -> None:
    found = made(
        "predicted classes", prior=PRIOR, reference_prior=np.array([0.6, 0.4]), classes=None
    )
    assert found.verdict == "The prior moved, as far as predictions tell: adjust_prior."


def test_the_whole_is_a_table() -> None:
    found = made(
        "confidence",
        others=("confidence", "labels"),
        thresholded_accuracy=Interval(0.8, 0.75, 0.85),
        prior=PRIOR,
        reference_prior=np.array([0.5, 0.5]),
        classes=("cat", "dog"),
    )
    found.shifts["ECE (15 uniform bins)"] = DistributionShift(None, None, 0.01, 0.02, BETWEEN)
    found.shifts["strange inputs"] = DistributionShift(1e-9, None, 0.05, 0.3)
    assert str(found).splitlines()[1:] == [
        "",
        "1,000 reference rows, 200 current ones. All 3 tests together raise a false alarm",
        "in at most 5% of cases (Holm).",
        "",
        "                           before      now  change (95%)         apart       p",
        "  confidence                  0.9     0.85  -0.06 to -0.04       0.125  0.0010 *",
        "  labels                      0.9     0.85  -0.06 to -0.04       0.125  0.5000",
        "  ECE (15 uniform bins)      0.01     0.02  -0.06 to -0.04",
        "  strange inputs             0.05      0.3                             <0.0001",
        "",
        "  accuracy expected if calibrated      85.0%",
        "  accuracy expected by its threshold   80.0% (75.0% to 85.0%)",
        "",
        "  class                    before      now  (estimated, em)",
        "  cat                       50.0%    60.0%  55.0% to 65.0%",
        "  dog                       50.0%    40.0%  not identified",
    ]
    assert max(map(len, str(found).splitlines())) <= 80
