"""`dubito demo`: what dubito does, on predictions that ship with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dubito.calibrate import AbstractCalibrator
    from dubito.data import FashionMnist

__all__ = ["demo"]


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
    from dubito.data import Batch

    strangers = {
        "bags and boots, never seen": sample.unseen_classes_logits,
        "handwritten digits": sample.digits_logits,
        "corrupted clothes": sample.corrupted_logits,
    }
    for name, logits in strangers.items():
        outputs = Logits(logits)
        says, means = (
            Batch.of(None, one).rows.confidence.mean()
            for one in (outputs, calibrator.transform(outputs))
        )
        print(f"  {name:<28} {len(logits):>6,} images   it says {says:.1%}, calibrated {means:.1%}")
