"""`dubito demo`: what dubito does, on predictions that ship with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from dubito.calibrate import AbstractCalibrator
    from dubito.data import FashionMnist

__all__ = ["demo"]

STRANGERS = {
    "bags and boots, never seen": "unseen_classes",
    "handwritten digits": "digits",
    "corrupted clothes": "corrupted",
}


def demo() -> None:
    """Audit and calibrate the sample that ships with dubito: an over-confident network.

    Example: dubito demo
    """
    from dubito import Logits, audit
    from dubito.calibrate import AutoCalibrator
    from dubito.data import load_fashion_mnist

    sample = load_fashion_mnist()
    print("A small network learnt to tell eight kinds of clothes apart. Is its confidence true?\n")
    names = [sample.classes[label] for label in sample.test_labels]
    print(audit(names, Logits(sample.test_logits, sample.classes)))
    print(
        "\nWhat is the honest probability? Learnt from validation images, shown on test images:\n"
    )
    calibrator = AutoCalibrator().fit(Logits(sample.validation_logits), sample.validation_labels)
    print_before_and_after(sample, calibrator)
    print("\nHow sure is it of what it should not be sure of?\n")
    print_strangers(sample, calibrator)
    print("\nWhich doubt notices them? Learnt from validation images; found where 5 % of known")
    print("images may go to review:\n")
    print_doubts(sample)
    print("\nTry it on your own predictions: dubito audit FILE --label y --logits 'logit_*'")
    print("and in Python: AutoCalibrator().fit(Logits(logits), labels).predict_proba(...)")


def print_before_and_after(sample: FashionMnist, calibrator: AbstractCalibrator) -> None:
    """Tell what calibration does to images the calibrator has not seen."""
    from textwrap import fill

    from dubito import Logits, audit
    from dubito.measure import paired_difference

    before = Logits(sample.test_logits)
    after = calibrator.transform(before)
    reports = [audit(sample.test_labels, outputs, n_resamples=0) for outputs in (before, after)]
    figures = {
        "mean confidence": "confidence",
        "accuracy": "accuracy",
        "log loss": "log_loss",
        "Brier score": "brier_score",
        "ECE (15 uniform bins)": "expected_calibration_error",
        "ECE of a calibrated model": "expected_if_calibrated",
    }
    print(f"  {'':<26} {'before':>8} {'after':>8}")
    for name, figure in figures.items():
        was, now = (getattr(report, figure) for report in reports)
        print(f"  {name:<26} {was:>8.4f} {now:>8.4f}")
    gain = paired_difference("log_loss", sample.test_labels, before, after)
    print(f"\n  Log loss falls by {gain.value:.3f} ({gain.low:.3f} to {gain.high:.3f}, 95 %).")
    print(
        fill(
            f"Calibrator: {calibrator.summary()}.", 88, initial_indent="  ", subsequent_indent="  "
        )
    )


def print_strangers(sample: FashionMnist, calibrator: AbstractCalibrator) -> None:
    """Tell how sure the network is of images it never learnt, before and after calibration."""
    from dubito import Logits
    from dubito.doubt import least_confidence

    for name, field in STRANGERS.items():
        outputs = Logits(getattr(sample, f"{field}_logits"))
        says, means = (
            1 - least_confidence(one).mean() for one in (outputs, calibrator.transform(outputs))
        )
        print(
            f"  {name:<28} {len(outputs):>6,} images   it says {says:.1%}, calibrated {means:.1%}"
        )


def print_doubts(sample: FashionMnist) -> None:
    """Tell which doubts notice strangers, and what a region that spares known images catches."""
    import numpy as np

    from dubito import Logits
    from dubito.doubt import (
        MahalanobisDistance,
        NeighbourDistance,
        OutlierRegion,
        energy,
        least_confidence,
    )
    from dubito.measure import auroc

    half = len(sample.validation_labels) // 2
    features, labels = sample.validation_features[:half], sample.validation_labels[:half]
    distance = MahalanobisDistance(is_normalised=True).fit(features, labels)
    doubts: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "least confidence": ("logits", lambda rows: least_confidence(Logits(rows))),
        "energy": ("logits", lambda rows: energy(Logits(rows))),
        "neighbours": ("features", NeighbourDistance().fit(features).score),
        "Mahalanobis": ("features", distance.score),
    }
    print(f"  {'':<18}" + "".join(f"{name.split(',')[0]:>21}" for name in STRANGERS))
    print(f"  {'':<18}" + f"{'AUROC':>13}{'found':>8}" * len(STRANGERS))
    for name, (kind, score) in doubts.items():
        known = score(getattr(sample, f"test_{kind}"))
        held_back = score(getattr(sample, f"validation_{kind}")[half:])
        region = OutlierRegion(epsilon=0.05).fit(held_back)
        line = f"  {name:<18}"
        for field in STRANGERS.values():
            strange = score(getattr(sample, f"{field}_{kind}"))
            is_outlier = np.repeat([False, True], [known.size, strange.size])
            area = auroc(is_outlier, np.concatenate([known, strange]))
            line += f"{area:>13.3f}{region.contains(strange).mean():>8.1%}"
        print(line)
