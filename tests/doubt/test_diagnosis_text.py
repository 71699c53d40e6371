"""The words of a diagnosis follow from its figures."""

import re
from dataclasses import replace

import pytest

from dubito import Logits
from dubito.data import load_fashion_mnist
from dubito.doubt import OODDiagnosis, diagnose_ood
from dubito.doubt.diagnosis import Separation

GOOD, BAD, NONE = (
    Separation(0.9, 0.01, 0.01),
    Separation(0.1, 0.01, 0.01),
    Separation(0.5, 0.01, 0.01),
)
FAIR, UNCLEAR = Separation(0.75, 0.01, 0.01), Separation(0.55, 0.2, 0.2)

PLAIN = OODDiagnosis(
    kind="saturation",
    n_id=1000,
    n_ood=1000,
    id_confidence=0.99,
    ood_confidence=0.98,
    fraction_as_confident=0.5,
    fpr95=0.93,
    id_norm=None,
    ood_norm=None,
    least_confidence=NONE,
    entropy=NONE,
    generalized_entropy=NONE,
    margin_uncertainty=NONE,
    energy=None,
    negative_feature_norm=None,
    unfamiliarity=None,
)
LAYER = replace(PLAIN, id_norm=20.0, ood_norm=35.0, negative_feature_norm=NONE, unfamiliarity=NONE)

ELSEWHERE = "No score measured here is clearly better: try a distance on features"
NO_CALIBRATION = "Calibration cannot fix this"
PASS_FEATURES = "Pass features and weights"
ACCEPTED = "A threshold that accepts 95 % of in-distribution inputs accepts 93.0 % of OOD inputs."


def test_a_real_diagnosis_from_top_to_bottom() -> None:
    sample = load_fashion_mnist()
    found = diagnose_ood(
        Logits(sample.test_logits),
        Logits(sample.unseen_classes_logits),
        id_features=sample.test_features,
        ood_features=sample.unseen_classes_features,
        weights=sample.weight,
    )
    assert (
        str(found)
        == """\
Partial saturation: confidence separates OOD inputs only in part (AUROC 0.689).
A threshold that accepts 95 % of in-distribution inputs accepts 89.4 % of OOD
inputs. Feature norms do not separate them (AUROC 0.507). Feature angles
separate them (AUROC 0.790).
Detect OOD inputs with unfamiliarity (AUROC 0.790, 0.101 above that of
confidence). Calibration cannot fix this: it only sees in-distribution data.

                                                   in-distr.       OOD
  rows                                                 4,000     1,000
  median confidence                                   0.9999    0.9891
  median feature norm                                  26.73     28.07
  at or above the median in-distr. confidence                   21.7 %
  accepted at 95 % in-distribution acceptance                   89.4 %

  score                   AUROC      +-     gain      +-
  unfamiliarity          0.7902  0.0077  +0.1012  0.0074
  generalized_entropy    0.7002  0.0085  +0.0112  0.0034
  entropy                0.6901  0.0084  +0.0011  0.0004
  least_confidence       0.6890  0.0084
  margin_uncertainty     0.6885  0.0084  -0.0005  0.0002
  energy                 0.6845  0.0091  -0.0044  0.0056
  negative_feature_norm  0.5071  0.0094  -0.1819  0.0085
  (AUROC 0.5 is chance; gain over least confidence; +- standard error)"""
    )


def assert_advice(found: OODDiagnosis, *parts: str) -> None:
    """Check the beginnings of the sentences, in order."""
    places = [found.advice.index(part) for part in parts]
    assert places == sorted(places)
    assert found.advice.startswith(parts[0])


def test_saturation() -> None:
    assert PLAIN.verdict == (
        "Saturation: confidence does not separate OOD inputs (AUROC 0.500); they are about as "
        f"confident as in-distribution inputs. {ACCEPTED}"
    )
    assert_advice(PLAIN, ELSEWHERE, NO_CALIBRATION, PASS_FEATURES)
    assert "norm" not in str(PLAIN).partition("\n\n")[2]


def test_extrapolation() -> None:
    found = replace(PLAIN, kind="extrapolation", least_confidence=BAD)
    assert found.verdict == (
        "Extrapolation: confidence does not separate OOD inputs (AUROC 0.100); they are more "
        f"confident than in-distribution inputs. {ACCEPTED}"
    )
    assert_advice(found, ELSEWHERE, NO_CALIBRATION, PASS_FEATURES)


def test_separation() -> None:
    found = replace(PLAIN, kind="separation", least_confidence=GOOD, fpr95=0.1)
    assert found.verdict == (
        "Separation: confidence separates OOD inputs (AUROC 0.900). A threshold that accepts 95 % "
        "of in-distribution inputs accepts 10.0 % of OOD inputs."
    )
    assert_advice(found, "Detect OOD inputs by confidence:", PASS_FEATURES)
    assert NO_CALIBRATION not in found.advice


def test_too_few_rows() -> None:
    found = replace(PLAIN, kind="inconclusive", least_confidence=UNCLEAR)
    assert found.verdict.startswith("Inconclusive: too few rows")
    assert "AUROC 0.550" in found.verdict
    assert_advice(found, "Provide more rows of both kinds.", PASS_FEATURES)
    assert NO_CALIBRATION not in found.advice


def test_a_clearly_better_score_is_named() -> None:
    best = replace(GOOD, gain=0.15, gain_error=0.05)
    found = replace(PLAIN, kind="partial saturation", least_confidence=FAIR, energy=best)
    better = "Detect OOD inputs with energy (AUROC 0.900, 0.150 above that of confidence)."
    assert_advice(found, better, NO_CALIBRATION, PASS_FEATURES)
    # Of five scores, the best must gain 2.58 standard errors.
    hardly = replace(found, energy=replace(best, gain_error=0.06))
    assert_advice(hardly, ELSEWHERE, NO_CALIBRATION, PASS_FEATURES)


LONGER = (
    "OOD features have a larger norm (median 35, in-distribution 20), which increases softmax "
    "confidence (AUROC 0.100)."
)
CLOSER = (
    "OOD features point closer to the weights of some class, which increases softmax confidence "
    "(AUROC 0.100)."
)


@pytest.mark.parametrize(
    ("by_norm", "by_angle", "words"),
    [
        (
            NONE,
            NONE,
            "Feature norms do not separate them (AUROC 0.500). Feature angles do not separate "
            "them (AUROC 0.500). OOD and in-distribution features overlap in the last layer.",
        ),
        (
            GOOD,
            FAIR,
            "Feature norms separate them (AUROC 0.900). Feature angles separate them "
            "(AUROC 0.750).",
        ),
        (BAD, GOOD, f"{LONGER} Feature angles separate them (AUROC 0.900)."),
        (NONE, BAD, f"Feature norms do not separate them (AUROC 0.500). {CLOSER}"),
        (
            UNCLEAR,
            NONE,
            "Feature norms are inconclusive with so few rows (AUROC 0.550). "
            "Feature angles do not separate them (AUROC 0.500).",
        ),
        (GOOD, None, "Feature norms separate them (AUROC 0.900)."),
    ],
)
def test_norms_and_angles(by_norm: Separation, by_angle: Separation | None, words: str) -> None:
    found = replace(LAYER, negative_feature_norm=by_norm, unfamiliarity=by_angle)
    assert found.verdict == f"{PLAIN.verdict} {words}"
    assert (PASS_FEATURES in found.advice) == (by_angle is None)
    assert re.search("median feature norm +20 +35\n", str(found))


def test_no_line_is_wider_than_80_columns() -> None:
    assert max(map(len, str(LAYER).splitlines())) <= 80
