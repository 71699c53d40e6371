import pytest

from dubito.cli.audit import _findings
from dubito.errors import BadValueError

FIGURES = {"expected_calibration_error": 0.05, "accuracy": 0.9, "brier_score/high": 0.25}


@pytest.mark.parametrize(
    ("rule", "is_met"),
    [
        ("ece>0.03", True),
        ("ece > 0.05", False),
        ("ece>=0.05", True),
        ("ece<5e-2", False),
        ("ece<=5e-2", True),
        ("accuracy<0.95", True),
        ("accuracy<0.9", False),
        ("brier_score/high>0.2", True),
    ],
)
def test_a_rule_is_met_or_not(rule: str, is_met: bool) -> None:
    assert bool(_findings([rule], FIGURES)) == is_met


def test_findings_are_told_in_order() -> None:
    assert _findings(["accuracy<1", "ece>0.5", "ece>0"], FIGURES) == [
        "accuracy is 0.9, which is < 1",
        "expected_calibration_error is 0.05, which is > 0",
    ]


@pytest.mark.parametrize("rule", ["ece", "ece>", "ece=0.1", "ece>much", ">0.1", "ece>-", ""])
def test_what_is_no_rule_is_refused(rule: str) -> None:
    with pytest.raises(BadValueError) as caught:
        _findings([rule], FIGURES)
    assert str(caught.value) == (
        "`--fail-on` of dubito must be a figure, one of < <= > >=, and a number. "
        f"Got {rule!r}. Try 'ece>0.03'."
    )


def test_a_figure_that_is_not_there_is_told_with_the_nearest() -> None:
    with pytest.raises(BadValueError) as caught:
        _findings(["acuracy<0.8"], FIGURES)
    assert str(caught.value) == (
        "`--fail-on` of dubito must be about a figure that --json shows. Got acuracy. "
        "Try 'accuracy<0.8'."
    )
