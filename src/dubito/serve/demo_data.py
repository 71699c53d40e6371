"""A store with sample data: images decided over two weeks, the last of them corrupted."""

from __future__ import annotations

import time
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from dubito.calibrate import TemperatureScaling
from dubito.data import load_fashion_mnist
from dubito.decide import CostMatrix, Policy
from dubito.outputs import Logits
from dubito.serve.store import NewDecisions, Store

REJECT_COST, AUDIT_FRACTION = 0.2, 0.1
N_CLEAN, BLOCK, DAYS = 3000, 50, 14
N_WAITING = 60  # the last rejected rows wait for review
CREATED = "2026-01-01T00:00:00+00:00"
REVIEWER = "demo"


def demo_policy() -> Policy:
    """Return a temperature-scaled policy for Fashion-MNIST with a reject action.

    >>> demo_policy().costs.actions[-1]
    'ask a person'
    """
    sample = load_fashion_mnist()
    costs = CostMatrix.zero_one(sample.classes).with_reject(REJECT_COST, name="ask a person")
    outputs = Logits(sample.validation_logits, classes=sample.classes)
    labels = np.array(sample.classes)[sample.validation_labels]
    policy = Policy.fit(outputs, labels, costs=costs, calibrator=TemperatureScaling())
    # The same document every time, so that a store recognizes it.
    return replace(policy, provenance={**policy.provenance, "created": CREATED})


def fill_demo(store: Store, policy: Policy) -> str:
    """Fill an empty store with decisions of the active policy.

    The rows are LeNet5 outputs on Fashion-MNIST, decided over two weeks; the last quarter of the
    images is noisy, blurred, faded or occluded. Audited rows and most rejected rows have labels.

    Parameters
    ----------
    store : Store
        A store whose active policy is `policy`.
    policy : Policy
        From `demo_policy`.

    Returns
    -------
    str
        A token with all scopes.
    """
    for old in store.list_tokens():
        if old.name == REVIEWER and old.is_valid:
            store.revoke_token(old.id)
    token = store.create_token(REVIEWER, ["decide", "review", "admin"])
    policy_id = store.active_id()
    if policy_id is None or store.get_decision(_image_id(0)) is not None:
        return token
    sample = load_fashion_mnist()
    logits = np.concatenate([sample.test_logits[:N_CLEAN], sample.corrupted_logits])
    labels = np.concatenate([sample.test_labels[:N_CLEAN], sample.corrupted_labels])
    outputs = Logits(logits, classes=sample.classes)
    n = len(labels)
    is_audit = np.random.default_rng(0).random(n) < AUDIT_FRACTION
    now, is_reviewed = time.time(), is_audit.copy()
    for start in range(0, n, BLOCK):
        rows = slice(start, start + BLOCK)
        block = outputs.take(rows)
        decided = policy.decide(block)
        is_reviewed[rows] |= decided.is_rejected
        store.add_decisions(
            NewDecisions.of(
                policy_id,
                [_image_id(row) for row in range(start, start + block.n_rows)],
                decided,
                block.array,
                digests=[blake2b(row.tobytes(), digest_size=16).digest() for row in block.array],
                is_audit=is_audit[rows],
                audit_probability=AUDIT_FRACTION,
                created=now - DAYS * 86_400 * (1 - (start + BLOCK) / (n + BLOCK)),
            )
        )
    reviewed = np.flatnonzero(is_reviewed)[:-N_WAITING]
    store.add_labels([_image_id(row) for row in reviewed], labels[reviewed].tolist())
    return token


def _image_id(row: int) -> str:
    """Return the id of a row."""
    return f"image-{row:04d}"
