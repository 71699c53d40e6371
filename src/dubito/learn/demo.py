"""The whole system from nothing: a network is trained to doubt, and its doubt is put to use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import nn

from dubito.data import Batch, Sink
from dubito.decide import CostMatrix, Policy, write_decisions
from dubito.decide.decisions import STRANGE
from dubito.doubt import MahalanobisDistance, decompose_uncertainty, least_confidence, vote
from dubito.learn.augment import TestTimeAugmentation
from dubito.learn.collect import collect_outputs
from dubito.learn.collected import CollectedOutputs
from dubito.learn.digits import (
    LIKELIHOOD,
    N_CLASSES,
    SWAP_RATE,
    SWAPPED,
    VIEWS,
    DigitParts,
    digit_parts,
    trained_network,
)
from dubito.learn.dropout import MonteCarloDropout
from dubito.learn.modes import left_as_it_was, seeded
from dubito.measure import accuracy, audit, log_loss, roc_auc
from dubito.outputs import Members

__all__ = ["TrainedDemo", "train_demo"]

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
    parts = digit_parts()
    with one_thread(), seeded(0):
        model = told_training(parts, say)
        members = told_passes(model, parts, say)
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
    policy = told_policy(validation, test, say)
    policy.save(folder / "policy.json")
    told_decisions(policy, {"test digits": test, "8 and 9, never seen": strange}, folder, say)
    return TrainedDemo(validation, test, strange.batch, members, policy)


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold torch to one thread: a network this small waits longer for others than for itself."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def told_training(parts: DigitParts, say: Say) -> nn.Module:
    """Train a network on labels of which some are wrong, and tell what it noticed."""
    pairs = ", ".join(f"{a} and {b}" for a, b in SWAPPED)
    say(f"A small network learns the digits 0 to {N_CLASSES - 1}, and how far off it may be.")
    say(f"Of the labels of {pairs}, {SWAP_RATE:.0%} are swapped. Learning takes a moment ...")
    model, noisy, is_flipped = trained_network(parts.train)
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


def told_passes(model: nn.Module, parts: DigitParts, say: Say) -> Members:
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
        for one in (views.array[0].argmax(axis=1), vote(views, by="confidence").class_)
    )
    say(f"\n  {len(VIEWS)} shifted views of each test digit vote by their confidence:")
    say(f"  {voted:.1%} are right, and {alone:.1%} where only the first is asked.")
    return members


def told_policy(validation: CollectedOutputs, test: CollectedOutputs, say: Say) -> Policy:
    """Fit calibrator, gate for strangers and reject option, and tell what calibration did."""
    say(f"\nLearning a policy from {len(validation.batch)} validation digits ...")
    policy = Policy.fit(
        validation.shards,
        costs=CostMatrix.zero_one(N_CLASSES).with_reject(REJECT_COST, "ask a person"),
        doubt=MahalanobisDistance(normalize=True),
        epsilon=EPSILON,
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


def told_decisions(
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
            strange = np.mean(found.reason == STRANGE)
            say(f"  {name:<20} {1 - is_open.mean():7.1%} {strange:11.1%} {wrong:21.1%}")
    say("\nEvery answer about an 8 or a 9 is wrong: for the network these kinds do not exist.")
    say(f"\nWritten to {folder}: policy.json, decisions.parquet, and what was collected.")
