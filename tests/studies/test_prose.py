"""What the pages say about the studies is what their tables show: numbers and directions."""

import re
from pathlib import Path

import numpy as np
import pytest

from studies.claims import CLAIMS
from studies.verdicts import Evidence, Place

ROOT = Path(__file__).parents[2]
REPORTS = {name: (ROOT / "docs" / "studies" / f"{name}.md").read_text() for name in CLAIMS}
README = (ROOT / "studies" / "README.md").read_text()
OVERVIEW = " ".join((ROOT / "docs" / "studies" / "README.md").read_text().split())
DECIMAL = r"\d+\.\d{3,}"


def found(name: str) -> str:
    """Return the paragraph on what a study found, on one line."""
    section = README.split(f"<!-- end of {name} -->")[1].split("\n## ")[0]
    return " ".join(section.split("**Found.**")[1].split())


def in_tables(number: str, text: str, signs: str = "+-") -> bool:
    """Return whether a report has a number of one of the signs that rounds to this one."""
    unit = 10.0 ** -len(number.partition(".")[2])
    values = np.array([float(one) for one in re.findall(r"-?\d+\.\d+", text)])
    if signs != "+-":
        values = values[np.signbit(values) == (signs == "-")]
    return bool((np.abs(np.abs(values) - float(number)) <= 0.5 * unit + 1e-12).any())


@pytest.mark.parametrize("name", CLAIMS)
def test_numbers_of_the_prose_are_in_the_tables(name: str) -> None:
    for number in re.findall(DECIMAL, found(name)):
        assert in_tables(number, REPORTS[name]), f"{name}: {number}"


@pytest.mark.parametrize("name", CLAIMS)
def test_lower_and_higher_by_have_the_sign_of_the_tables(name: str) -> None:
    for word, numbers in re.findall(
        rf"\b(lower|higher)s?\b[^.;:]*?\bby ({DECIMAL}(?: and {DECIMAL})*)", found(name)
    ):
        for number in numbers.split(" and "):
            sign = "-" if word == "lower" else "+"
            assert in_tables(number, REPORTS[name], sign), f"{name}: {word} by {number}"


def test_a_wrong_number_or_direction_is_noticed() -> None:
    text = "| a | -0.1068 ± 0.0424 | 0.500 (0.400 to 0.600) |"
    assert in_tables("0.107", text)
    assert in_tables("0.1068", text, "-")
    assert not in_tables("0.1068", text, "+")
    assert not in_tables("0.108", text)


ECE = "ECE by corruption"
SAME = "Log loss of averages minus the same network"
RIVALS = "Log loss of averages minus a frequentist"
EPISTEMIC, ALEATORIC = "Epistemic uncertainty", "Aleatoric uncertainty"
ERROR, COMBINED = "Error of generative", "Log loss of two models"
MORE, FEW = "16,000 rows", "250 rows"
DICE = "With few labeled"
TO_TEMPERATURE = "Difference to temperature"
Places = list[tuple[Place, Place | None]]
STATED: list[tuple[str, str, str, Places]] = [
    (
        "grows with depth, width and batch norm and decreases with weight decay",
        "training_choices",
        "higher",
        [
            (("Depth", "6 layers", "ECE minus first row"), None),
            (("Width", "32 channels", "ECE minus first row"), None),
            (("Batch norm", "batch norm, rate 0.0005", "ECE minus first row"), None),
        ],
    ),
    (
        "decreases with weight decay",
        "training_choices",
        "lower",
        [(("Weight decay", "0.02", "ECE minus first row"), None)],
    ),
    (
        "has a lower calibration error than modern ones with batch norm, of its size or larger",
        "training_choices",
        "higher",
        [
            (("Old and new", f"6 layers of {n}, batch norm", "ECE minus first row"), None)
            for n in (32, 64)
        ],
    ),
    (
        "matrix scaling, a forest and `auto` have a lower log loss",
        "calibrators",
        "lower",
        [((TO_TEMPERATURE, one, "log loss"), None) for one in ("matrix", "forest", "auto")],
    ),
    (
        "at severity 5 it lowers log loss",
        "shift",
        "lower",
        [(("Log loss minus", "temperature", "severity 5"), None)],
    ),
    (
        "not significantly ECE",
        "shift",
        "undecided",
        [(("ECE at severity 5 minus", "temperature "), None)],
    ),
    (
        "Ensembles lower log loss",
        "shift",
        "lower",
        [(("Log loss minus", "ensemble", "severity 5"), None)],
    ),
    (
        "calibration error is lower under occlusion and shift",
        "shift",
        "lower",
        [((ECE, "ensemble", one), (ECE, "plain", one)) for one in ("occlusion", "shift")],
    ),
    (
        "higher under low contrast and noise",
        "shift",
        "higher",
        [((ECE, "ensemble", one), (ECE, "plain", one)) for one in ("contrast", "noise")],
    ),
    (
        "for the noisy and the easy classes",
        "more_data",
        "lower",
        [
            ((EPISTEMIC, f"{one}, stopped", MORE), (EPISTEMIC, f"{one}, stopped", FEW))
            for one in ("swapped pair", "easy classes")
        ],
    ),
    (
        "not significantly for hard classes or digits",
        "more_data",
        "undecided",
        [
            ((EPISTEMIC, f"{one}, stopped", MORE), (EPISTEMIC, f"{one}, stopped", FEW))
            for one in ("hard classes", "digits")
        ],
    ),
    (
        "their aleatoric uncertainty grows with the data",
        "more_data",
        "higher",
        [
            ((ALEATORIC, f"{one}, to the end", MORE), (ALEATORIC, f"{one}, to the end", FEW))
            for one in ("swapped pair", "easy classes", "hard classes")
        ],
    ),
    (
        "on blurred clothes density is worse than entropy",
        "input_noise",
        "lower",
        [(("Noise in inputs at level 3", "Fashion-MNIST blur "), None)],
    ),
    (
        "on diabetes the gain is not significant",
        "regression_noise",
        "undecided",
        [(("**Diabetes**", "NLL after scaling "), None)],
    ),
    (
        "lowers the log loss of overfitted networks a lot",
        "bayesian",
        "lower",
        [
            ((SAME, f"50 rows, width {n}", "Laplace, full minus as trained"), None)
            for n in (4, 16, 64)
        ],
    ),
    (
        "not below that of a temperature or early stopping",
        "bayesian",
        "not lower",
        [
            ((RIVALS, f"50 rows, width {n}", f"Laplace, {kind} minus {rival}"), None)
            for n in (4, 16, 64)
            for kind in ("full", "diagonal")
            for rival in ("temperature", "stopped early")
        ],
    ),
    (
        "densities with a covariance per class have a higher error than logistic regression",
        "textbook_claims",
        "higher",
        [((ERROR, "covariance per class, minus logistic regression", "few rows"), None)],
    ),
    (
        "with a shared covariance, which is right here, or naive Bayes",
        "textbook_claims",
        "lower",
        [
            ((ERROR, "shared covariance, minus logistic regression", "few rows"), None),
            (
                (ERROR, "naive Bayes minus logistic regression without penalty", "few rows"),
                None,
            ),
        ],
    ),
    (
        "something if they are not",
        "textbook_claims",
        "higher",
        [((COMBINED, one, "many rows"), None) for one in ("dependent parts", "breast cancer")],
    ),
    (
        "Nor is a gain by a mean teacher",
        "segmentation",
        "undecided",
        [((DICE, "mean teacher", "Dice minus labels only"), None)],
    ),
    (
        "weighting it by certainty is better than not",
        "segmentation",
        "higher",
        [((DICE, "mean teacher, weighted by certainty", "minus mean teacher"), None)],
    ),
]


@pytest.mark.parametrize(("text", "name", "direction", "places"), STATED)
def test_directions_of_the_overview_are_those_of_the_intervals(
    text: str, name: str, direction: str, places: Places
) -> None:
    assert text in OVERVIEW
    for at, minus in places:
        interval = Evidence("", at, minus=minus).interval(REPORTS[name])
        assert {
            "higher": interval.low > 0,
            "lower": interval.high < 0,
            "undecided": interval.low <= 0 <= interval.high,
            "not lower": interval.high >= 0,
        }[direction], f"{text}: {interval}"
