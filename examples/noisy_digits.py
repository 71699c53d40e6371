"""Train a network on digits with noisy labels, and put its uncertainty to use.

Usage: python examples/noisy_digits.py [FOLDER]

Needs PyTorch. Prints what the network learned about its own errors, and writes a report, a policy
and decisions to FOLDER.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dubito.arrays import BoolArray
from dubito.data import Batch, Sink
from dubito.decide import CostMatrix, OODGate, Policy, write_decisions
from dubito.decide.policy.decide import OUT_OF_DISTRIBUTION
from dubito.doubt import MahalanobisDistance, decompose_uncertainty, least_confidence, vote
from dubito.formatting import percent, short_percent
from dubito.learn.class_likelihoods import UncertaintyAware
from dubito.learn.collect import CollectedOutputs, collect_outputs
from dubito.learn.label_noise import flip_labels
from dubito.learn.passes import (
    MonteCarloDropout,
    TestTimeAugmentation,
    evaluation_mode,
    identity_view,
    seeded,
    shift_views,
)
from dubito.measure import accuracy, audit, log_loss, roc_auc
from dubito.outputs import Members
from dubito.report import make_report

N_CLASSES = 8  # 8 and 9 are not in the training set
SWAPPED = [(0, 6), (1, 7), (3, 5)]
SWAP_RATE = 0.2
N_TRAIN, N_VALIDATION = 700, 370
N_EPOCHS = 60
LIKELIHOOD = UncertaintyAware(N_CLASSES)
VIEWS = [identity_view, *shift_views(1)]
REJECT_COST, OOD_ALPHA = 0.2, 0.02

Say = Callable[[str], object]


class Digits(NamedTuple):
    """Images of shape (n_rows, 1, 8, 8) between 0 and 1, and their true labels."""

    images: torch.Tensor
    labels: torch.Tensor

    @property
    def is_swapped_class(self) -> BoolArray:
        """Which rows are of a class whose labels are swapped in training."""
        return np.isin(self.labels.numpy(), SWAPPED)


class DigitParts(NamedTuple):
    """Digits to train, calibrate and test on, and those of classes outside the training set."""

    train: Digits
    validation: Digits
    test: Digits
    ood: Digits


@final
@dataclass(frozen=True, slots=True, eq=False)
class TrainedDemo:
    """The results of the demo, for a report.

    `validation` is what the policy was fitted on, `test` what it is evaluated on, `ood` holds
    digits of classes outside the training set. `members` are dropout passes over the test rows.
    """

    validation: CollectedOutputs
    test: CollectedOutputs
    ood: Batch
    members: Members
    policy: Policy


def train_demo(folder: Path, say: Say = print) -> TrainedDemo:
    """Train, collect, audit, calibrate and decide on scikit-learn's digits, with comments.

    Collected outputs, the policy and its decisions are written to `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = _digit_parts()
    with _one_thread(), seeded(0):
        model = _train(parts, say)
        members = _run_passes(model, parts, say)
        validation, test, ood = (
            collect_outputs(
                model,
                [part.images if part is parts.ood else tuple(part)],
                likelihood=LIKELIHOOD,
                path=folder / f"{name}.parquet",
            )
            for name, part in list(parts._asdict().items())[1:]
        )
    say(f"\nIs the confidence calibrated? On {len(test.batch)} test digits:\n")
    say(f"{audit(test.labels, test.logits)}")
    policy = _fit_policy(validation, test, say)
    policy.save(folder / "policy.json")
    _decide(policy, {"test digits": test, "8 and 9 (OOD)": ood}, folder, say)
    return TrainedDemo(validation, test, ood.batch, members, policy)


def _digit_parts(seed: int = 0) -> DigitParts:
    """Return scikit-learn's digits in four parts, with correct labels.

    >>> [len(part.labels) for part in _digit_parts()]
    [700, 370, 373, 354]
    """
    pixels, labels = load_digits(return_X_y=True)
    is_known = labels < N_CLASSES
    known = np.random.default_rng(seed).permutation(np.flatnonzero(is_known))
    rows = [*np.split(known, [N_TRAIN, N_TRAIN + N_VALIDATION]), np.flatnonzero(~is_known)]
    images = torch.from_numpy(pixels / 16).float().reshape(-1, 1, 8, 8)
    return DigitParts(*(Digits(images[one], torch.from_numpy(labels[one])) for one in rows))


def _trained_network(
    digits: Digits, seed: int = 0, n_epochs: int = N_EPOCHS
) -> tuple[nn.Module, torch.Tensor, BoolArray]:
    """Return a network, the labels it was trained on, and which of them are wrong.

    Images are shifted at random, as test-time augmentation will shift them.
    """
    noisy, is_flipped = flip_labels(digits.labels, SWAP_RATE, SWAPPED, random_state=seed)
    model = _network()
    rows = TensorDataset(digits.images, noisy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    for _ in range(n_epochs):
        for images, labels in DataLoader(rows, batch_size=64, shuffle=True):
            view = VIEWS[int(torch.randint(len(VIEWS), (1,)))]
            optimizer.zero_grad()
            torch.autograd.backward(LIKELIHOOD.loss(model(view(images)), labels))
            optimizer.step()
    return model.eval(), noisy, is_flipped.numpy()


def _network() -> nn.Module:
    """Return an untrained network with dropout."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 128),
        nn.BatchNorm1d(128),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(64, LIKELIHOOD.n_outputs),
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit torch to one thread, which is faster for a network this small."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def _train(parts: DigitParts, say: Say) -> nn.Module:
    """Train a network on partly wrong labels, and show what its log variance captures."""
    pairs = ", ".join(f"{a} and {b}" for a, b in SWAPPED)
    say(f"A small network learns the digits 0 to {N_CLASSES - 1} and its own expected error.")
    swapped = f"{short_percent(SWAP_RATE)} of the labels of {pairs} are swapped"
    say(f"{swapped}. Training takes a moment ...")
    model, noisy, is_flipped = _trained_network(parts.train)
    with evaluation_mode(model):
        outputs = model(parts.train.images)
        losses = LIKELIHOOD.losses(outputs, noisy).numpy()
        expected_error = LIKELIHOOD.log_variance(outputs).exp().sqrt().numpy()
    is_swapped = parts.train.is_swapped_class
    say(f"\n  swapped labels                        {is_flipped.sum():5d} of {is_flipped.size}")
    say(f"  AUROC of the loss for swapped labels  {roc_auc(is_flipped, losses):.3f}")
    say(f"  expected error, swapped classes       {expected_error[is_swapped].mean():.3f}")
    say(f"  expected error, other classes         {expected_error[~is_swapped].mean():.3f}")
    return model


def _run_passes(model: nn.Module, parts: DigitParts, say: Say) -> Members:
    """Return dropout passes over the test digits; show uncertainties and a vote of views."""
    passes = MonteCarloDropout(model, n_passes=30, likelihood=LIKELIHOOD)
    members: Members = passes(parts.test.images)
    test, ood = decompose_uncertainty(members), decompose_uncertainty(passes(parts.ood.images))
    is_swapped = parts.test.is_swapped_class
    rows = {
        "test digits, swapped classes": (test.aleatoric[is_swapped], test.epistemic[is_swapped]),
        "test digits, other classes": (test.aleatoric[~is_swapped], test.epistemic[~is_swapped]),
        "8 and 9 (OOD)": (ood.aleatoric, ood.epistemic),
    }
    say("\nWhere is the uncertainty from? 30 dropout passes, means in nats:\n")
    say(f"  {'':<28} {'aleatoric':>17}  {'epistemic':>22}")
    for name, (aleatoric, epistemic) in rows.items():
        say(f"  {name:<28} {aleatoric.mean():17.3f}  {epistemic.mean():22.3f}")
    views = TestTimeAugmentation(model, VIEWS, likelihood=LIKELIHOOD)(parts.test.images)
    labels = parts.test.labels.numpy()
    single, voted = (
        np.mean(predicted == labels)
        for predicted in (views.array[0].argmax(axis=1), vote(views, by="confidence").prediction)
    )
    say(f"\n  Accuracy of {len(VIEWS)} shifted views that vote by confidence: {percent(voted)},")
    say(f"  of the unshifted image alone: {percent(single)}.")
    return members


def _fit_policy(validation: CollectedOutputs, test: CollectedOutputs, say: Say) -> Policy:
    """Fit a policy with an OOD gate and a reject option, and show the effect of calibration."""
    say(f"\nFitting a policy on {len(validation.batch)} validation digits ...")
    policy = Policy.fit(
        validation.shards,
        costs=CostMatrix.zero_one(N_CLASSES).with_reject(REJECT_COST, "review"),
        ood=OODGate(MahalanobisDistance(normalize=True), alpha=OOD_ALPHA),
    )
    calibrated = policy.calibrator.transform(test.logits)
    before, after = (
        (log_loss(test.labels, one), 1 - least_confidence(one).mean(), accuracy(test.labels, one))
        for one in (test.logits, calibrated)
    )
    say(f"  Calibrator: {policy.provenance['calibrator']}.\n")
    say(f"  {'test digits':<20} {'before':>8} {'after':>8}")
    for name, *values in zip(
        ("log loss", "mean confidence", "accuracy"), before, after, strict=True
    ):
        say(f"  {name:<20} {values[0]:8.4f} {values[1]:8.4f}")
    return policy


def _decide(policy: Policy, rows: dict[str, CollectedOutputs], folder: Path, say: Say) -> None:
    """Write the decisions, and show how many rows are sent to review."""
    say(f"\nDecisions at the lowest expected cost: an error costs 1, a review {REJECT_COST}.\n")
    say(f"  {'':<20} {'review':>7} {'as OOD':>11} {'errors among the rest':>21}")
    with Sink(folder / "decisions.parquet") as sink:
        for name, part in rows.items():
            write_decisions(policy, part.shards, sink, source=name)
            decisions = policy.decide(part.logits, part.features)
            is_decided, labels = ~decisions.is_rejected, part.labels
            # Without labels: digits of unknown classes, for which every prediction is wrong.
            is_wrong = (
                np.ones(len(decisions)) if labels is None else decisions.predicted_class != labels
            )
            errors = is_wrong[is_decided].mean() if is_decided.any() else 0.0
            as_ood = np.mean(decisions.reason == OUT_OF_DISTRIBUTION)
            rejected = percent(1 - is_decided.mean())
            say(f"  {name:<20} {rejected:>7} {percent(as_ood):>11} {percent(errors):>21}")
    say("\nEvery prediction for an 8 or a 9 is wrong: the network does not know these classes.")
    say(f"\nWritten to {folder}: policy.json, decisions.parquet, and the collected outputs.")


def main() -> None:
    """Run the example, and write the report."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "noisy-digits")
    found = train_demo(folder)
    make_report(
        found.test.labels,
        found.test.logits,
        features=found.test.features,
        ood=found.ood,
        policy=found.policy,
        title="Digits, trained with noisy labels",
        command="python examples/noisy_digits.py",
    ).save(folder / "report.html")
    print("Open report.html there.")


if __name__ == "__main__":
    main()
