"""The demo in PyTorch: a network trained with noisy labels, and its uncertainty put to use."""

from __future__ import annotations

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
from dubito.learn.class_likelihoods import UncertaintyAware
from dubito.learn.collect import CollectedOutputs, collect_outputs
from dubito.learn.label_noise import flip_labels
from dubito.learn.layers import left_as_it_was, seeded
from dubito.learn.passes import MonteCarloDropout, TestTimeAugmentation, identity_view, shift_views
from dubito.measure import accuracy, audit, log_loss, roc_auc
from dubito.outputs import Members

N_CLASSES = 8  # 8 and 9 are never seen in training
SWAPPED = [(0, 6), (1, 7), (3, 5)]
SWAP_RATE = 0.2
N_TRAIN, N_VALIDATION = 700, 370
N_EPOCHS = 60
LIKELIHOOD = UncertaintyAware(N_CLASSES)
VIEWS = [identity_view, *shift_views(1)]


class Digits(NamedTuple):
    """Images, rows x 1 x 8 x 8 between 0 and 1, and what they really show."""

    images: torch.Tensor
    labels: torch.Tensor

    @property
    def is_swapped_kind(self) -> BoolArray:
        """Which rows are of a kind that is taken for another in training."""
        return np.isin(self.labels.numpy(), SWAPPED)


class DigitParts(NamedTuple):
    """Digits to train on, to calibrate on and to test on, and those that are never learned."""

    train: Digits
    validation: Digits
    test: Digits
    strange: Digits


def _digit_parts(seed: int = 0) -> DigitParts:
    """Return scikit-learn's digits in four parts, labels as they are.

    >>> [len(part.labels) for part in _digit_parts()]
    [700, 370, 373, 354]
    """
    pixels, labels = load_digits(return_X_y=True)
    is_known = labels < N_CLASSES
    known = np.random.default_rng(seed).permutation(np.flatnonzero(is_known))
    rows = [*np.split(known, [N_TRAIN, N_TRAIN + N_VALIDATION]), np.flatnonzero(~is_known)]
    images = torch.from_numpy(pixels / 16).float().reshape(-1, 1, 8, 8)
    return DigitParts(*(Digits(images[one], torch.from_numpy(labels[one])) for one in rows))


def _trained_network(digits: Digits, seed: int = 0) -> tuple[nn.Module, torch.Tensor, BoolArray]:
    """Return a network, the labels it was trained on, and which of these are wrong.

    Images are shifted now and then, so that the network may be asked about shifted ones.
    """
    noisy, is_flipped = flip_labels(digits.labels, SWAP_RATE, SWAPPED, random_state=seed)
    model = _network()
    rows = TensorDataset(digits.images, noisy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    for _ in range(N_EPOCHS):
        for images, labels in DataLoader(rows, batch_size=64, shuffle=True):
            view = VIEWS[int(torch.randint(len(VIEWS), (1,)))]
            optimizer.zero_grad()
            torch.autograd.backward(LIKELIHOOD.loss(model(view(images)), labels))
            optimizer.step()
    return model.eval(), noisy, is_flipped.numpy()


def _network() -> nn.Module:
    """Return a network that is yet to learn, with dropout to ask it several times."""
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


Say = Callable[[str], object]

REJECT_COST, EPSILON = 0.2, 0.02


@final
@dataclass(frozen=True, slots=True, eq=False)
class TrainedDemo:
    """What the demo found, for a report on it.

    `validation` is what the policy learned from, `test` what it is judged on, `strange` rows of
    digits that the network never learned. `members` are dropout passes over the test rows.
    """

    validation: CollectedOutputs
    test: CollectedOutputs
    strange: Batch
    members: Members
    policy: Policy


def train_demo(folder: Path, say: Say = print) -> TrainedDemo:
    """Train, doubt, collect, audit, calibrate and decide on scikit-learn's digits; tell the story.

    Collected outputs, the policy and its decisions go to `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = _digit_parts()
    with _one_thread(), seeded(0):
        model = _told_training(parts, say)
        members = _told_passes(model, parts, say)
        validation, test, strange = (
            collect_outputs(
                model,
                [part.images if part is parts.strange else tuple(part)],
                likelihood=LIKELIHOOD,
                path=folder / f"{name}.parquet",
            )
            for name, part in list(parts._asdict().items())[1:]
        )
    say(f"\nIs its confidence true? On {len(test.batch)} test digits:\n")
    say(f"{audit(test.labels, test.logits)}")
    policy = _told_policy(validation, test, say)
    policy.save(folder / "policy.json")
    _told_decisions(policy, {"test digits": test, "8 and 9, never seen": strange}, folder, say)
    return TrainedDemo(validation, test, strange.batch, members, policy)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Hold torch to one thread: a network this small waits longer for others than for itself."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def _told_training(parts: DigitParts, say: Say) -> nn.Module:
    """Train a network on labels of which some are wrong, and tell what it noticed."""
    pairs = ", ".join(f"{a} and {b}" for a, b in SWAPPED)
    say(f"A small network learns the digits 0 to {N_CLASSES - 1}, and how far off it may be.")
    say(f"Of the labels of {pairs}, {SWAP_RATE:.0%} are swapped. Learning takes a moment ...")
    model, noisy, is_flipped = _trained_network(parts.train)
    with left_as_it_was(model):
        outputs = model(parts.train.images)
        losses = LIKELIHOOD.losses(outputs, noisy).numpy()
        spread = LIKELIHOOD.log_variance(outputs).exp().sqrt().numpy()
    is_kind = parts.train.is_swapped_kind
    say(f"\n  labels swapped                        {is_flipped.sum():5d} of {is_flipped.size}")
    say(f"  AUROC of its loss for swapped labels  {roc_auc(is_flipped, losses):.3f}")
    say(f"  error it expects, swapped kinds       {spread[is_kind].mean():.3f}")
    say(f"  error it expects, other kinds         {spread[~is_kind].mean():.3f}")
    return model


def _told_passes(model: nn.Module, parts: DigitParts, say: Say) -> Members:
    """Ask several times, with dropout and of shifted images; return the passes of test digits."""
    passes = MonteCarloDropout(model, n_passes=30, likelihood=LIKELIHOOD)
    members, strangers = passes(parts.test.images), passes(parts.strange.images)
    known, unknown = decompose_uncertainty(members), decompose_uncertainty(strangers)
    is_kind = parts.test.is_swapped_kind
    rows = {
        "test digits, swapped kinds": (known.aleatoric[is_kind], known.epistemic[is_kind]),
        "test digits, other kinds": (known.aleatoric[~is_kind], known.epistemic[~is_kind]),
        "8 and 9, never seen": (unknown.aleatoric, unknown.epistemic),
    }
    say("\nWhy does it doubt? 30 dropout passes, mean doubt in nats:\n")
    say(f"  {'':<28} noise in the data  ignorance of the model")
    for name, (aleatoric, epistemic) in rows.items():
        say(f"  {name:<28} {aleatoric.mean():17.3f}  {epistemic.mean():22.3f}")
    views = TestTimeAugmentation(model, VIEWS, likelihood=LIKELIHOOD)(parts.test.images)
    truth = parts.test.labels.numpy()
    alone, voted = (
        np.mean(one == truth)
        for one in (views.array[0].argmax(axis=1), vote(views, by="confidence").prediction)
    )
    say(f"\n  {len(VIEWS)} shifted views of each test digit vote by their confidence:")
    say(f"  {voted:.1%} are right, and {alone:.1%} where only the first is asked.")
    return members


def _told_policy(validation: CollectedOutputs, test: CollectedOutputs, say: Say) -> Policy:
    """Fit calibrator, gate for strangers and reject option, and tell what calibration did."""
    say(f"\nLearning a policy from {len(validation.batch)} validation digits ...")
    policy = Policy.fit(
        validation.shards,
        costs=CostMatrix.zero_one(N_CLASSES).with_reject(REJECT_COST, "ask a person"),
        ood=OODGate(MahalanobisDistance(normalize=True), alpha=EPSILON),
    )
    honest = policy.calibrator.transform(test.logits)
    before, after = (
        (log_loss(test.labels, one), 1 - least_confidence(one).mean())
        for one in (test.logits, honest)
    )
    say(f"  Calibrator: {policy.provenance['calibrator']}.\n")
    say(f"  {'test digits':<20} {'before':>8} {'after':>8}")
    say(f"  {'log loss':<20} {before[0]:8.4f} {after[0]:8.4f}")
    say(f"  {'mean confidence':<20} {before[1]:8.4f} {after[1]:8.4f}")
    say(f"  {'accuracy':<20} {accuracy(test.labels, test.logits):8.4f} "
        f"{accuracy(test.labels, honest):8.4f}")  # fmt: skip
    return policy


def _told_decisions(
    policy: Policy, rows: dict[str, CollectedOutputs], folder: Path, say: Say
) -> None:
    """Decide, write the decisions, and tell how many are left to a person."""
    say(f"\nThe action that costs least, where an error costs 1 and asking {REJECT_COST}:\n")
    say(f"  {'':<20} {'asked':>7} {'as strange':>11} {'wrong among the rest':>21}")
    with Sink(folder / "decisions.parquet") as sink:
        for name, part in rows.items():
            write_decisions(policy, part.shards, sink, source=name)
            found = policy.decide(part.logits, part.features)
            is_open, labels = ~found.is_rejected, part.labels
            # Of digits never learned, every answer is wrong.
            is_wrong = np.ones(len(found)) if labels is None else found.class_ != labels
            wrong = is_wrong[is_open].mean() if is_open.any() else 0.0
            strange = np.mean(found.reason == OUT_OF_DISTRIBUTION)
            say(f"  {name:<20} {1 - is_open.mean():7.1%} {strange:11.1%} {wrong:21.1%}")
    say("\nEvery answer about an 8 or a 9 is wrong: for the network these kinds do not exist.")
    say(f"\nWritten to {folder}: policy.json, decisions.parquet, and what was collected.")
