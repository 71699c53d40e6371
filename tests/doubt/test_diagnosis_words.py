"""The words of a diagnosis follow from its figures."""

from dataclasses import replace

import pytest

from dubito import Logits
from dubito.data import load_fashion_mnist
from dubito.doubt.diagnosis import OODDiagnosis, Separation, diagnose_ood

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
    margin_uncertainty=NONE,
    energy=None,
    negative_feature_norm=None,
    unfamiliarity=None,
)
LAYER = replace(PLAIN, id_norm=20.0, ood_norm=35.0, negative_feature_norm=NONE, unfamiliarity=NONE)

ELSEWHERE = (
    "No doubt measured here does clearly better: try distances in features "
    "(MahalanobisDistance, NearestNeighborDistance), those of an earlier layer, or another model."
)
NO_MENDING = "Calibration will not mend this: it only sees known rows."
GIVE = "Give features and weights to learn whether norms or angles would do."


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
Partial saturation: strangers are less confident than known rows on the whole
(AUROC of least confidence 0.689), yet 89.4% of them pass a threshold that 95%
of known rows pass. Norms do not tell them apart (AUROC 0.507). Angles tell them
apart (AUROC 0.790).
Flag strangers by unfamiliarity (AUROC 0.790) rather than by confidence.
Calibration will not mend this: it only sees known rows.

  1,000 strangers, 4,000 known rows          known   strange
  median confidence                         0.9999    0.9891
  median norm                                26.73     28.07
  at least the known median's confidence               21.7%
  pass where 95 % of known rows do                     89.4%

                       AUROC      +-   (0.5 is guessing, +- a standard error)
  unfamiliarity       0.7902  0.0077
  entropy             0.6901  0.0084
  least_confidence    0.6890  0.0084
  margin_uncertainty       0.6885  0.0084
  energy              0.6845  0.0091
  negative_feature_norm     0.5071  0.0094"""
    )


def test_saturation() -> None:
    assert PLAIN.verdict == (
        "Saturation: strangers are about as confident as known rows (AUROC of least confidence "
        "0.500); 93.0% of them pass a threshold that 95% of known rows pass."
    )
    assert PLAIN.advice == f"{ELSEWHERE} {NO_MENDING} {GIVE}"
    assert "norm" not in str(PLAIN).partition("\n\n")[2]


def test_extrapolation() -> None:
    found = replace(PLAIN, kind="extrapolation", least_confidence=BAD)
    assert found.verdict == (
        "Extrapolation: strangers are more confident than known rows (AUROC of least confidence "
        "0.100); 93.0% of them pass a threshold that 95% of known rows pass."
    )
    assert found.advice == f"{ELSEWHERE} {NO_MENDING} {GIVE}"


def test_separation() -> None:
    found = replace(PLAIN, kind="separation", least_confidence=GOOD, fpr95=0.1)
    assert found.verdict == (
        "Separation: strangers are less confident than known rows (AUROC of least confidence "
        "0.900); 10.0% of them pass a threshold that 95% of known rows pass."
    )
    advice = "Flag strangers by confidence: nothing measured here does clearly better."
    assert found.advice == f"{advice} {GIVE}"


def test_too_few_rows() -> None:
    found = replace(PLAIN, kind="unclear", least_confidence=UNCLEAR)
    assert found.verdict == (
        "Too few rows to say whether strangers are less confident than known rows "
        "(AUROC of least confidence 0.550)."
    )
    assert found.advice == f"Give more rows of either kind. {GIVE}"


def test_a_clearly_better_doubt_is_named() -> None:
    found = replace(PLAIN, kind="partial saturation", least_confidence=FAIR, energy=GOOD)
    better = "Flag strangers by energy (AUROC 0.900) rather than by confidence."
    assert found.advice == f"{better} {NO_MENDING} {GIVE}"
    hardly = replace(found, energy=Separation(0.76, 0.01, 0.01))
    assert hardly.advice == f"{ELSEWHERE} {NO_MENDING} {GIVE}"


LONGER = (
    "Their features are longer (median norm 35 against 20) than those of known rows, "
    "which makes a softmax surer."
)
CLOSER = (
    "Their features are closer to some class's weights than those of known rows, "
    "which makes a softmax surer."
)


@pytest.mark.parametrize(
    ("norms", "angles", "words"),
    [
        (
            NONE,
            NONE,
            "Norms do not tell them apart (AUROC 0.500). Angles do not tell them apart "
            "(AUROC 0.500). They overlap with known rows in the last layer.",
        ),
        (
            GOOD,
            FAIR,
            "Norms tell them apart (AUROC 0.900). Angles tell them apart (AUROC 0.750).",
        ),
        (BAD, GOOD, f"{LONGER} Angles tell them apart (AUROC 0.900)."),
        (NONE, BAD, f"Norms do not tell them apart (AUROC 0.500). {CLOSER}"),
        (
            UNCLEAR,
            NONE,
            "Whether norms tell them apart takes more rows to say (AUROC 0.550). "
            "Angles do not tell them apart (AUROC 0.500).",
        ),
        (GOOD, None, "Norms tell them apart (AUROC 0.900)."),
    ],
)
def test_norms_and_angles(norms: Separation, angles: Separation | None, words: str) -> None:
    found = replace(LAYER, negative_feature_norm=norms, unfamiliarity=angles)
    assert found.verdict == f"{PLAIN.verdict} {words}"
    assert found.advice.endswith(GIVE) == (angles is None)
    assert "  median norm                                   20        35" in str(found)


def test_no_line_is_wider_than_80_columns() -> None:
    assert max(map(len, str(LAYER).splitlines())) <= 80
