"""A store with something in it: images decided over two weeks, the last of them corrupted."""

from __future__ import annotations

import time
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np

from dubito.calibrate import TemperatureScaling
from dubito.data import load_fashion_mnist
from dubito.decide import CostMatrix, Policy
from dubito.outputs import Logits
from dubito.serve.running import put_in_force
from dubito.serve.store import NewDecisions, Store

REJECT_COST, AUDIT_SHARE = 0.2, 0.1
N_STEADY, BLOCK, DAYS = 3000, 50, 14
N_WAITING = 60  # rows that were handed over last and wait for someone
CREATED = "2026-01-01T00:00:00+00:00"
READER = "demo"


def demo_policy() -> Policy:
    """Return a temperature-scaled policy for Fashion-MNIST that may ask a person; always the same.

    >>> demo_policy().costs.actions[-1]
    'ask a person'
    """
    sample = load_fashion_mnist()
    costs = CostMatrix.zero_one(sample.classes).with_reject(REJECT_COST, name="ask a person")
    known = Logits(sample.validation_logits, classes=sample.classes)
    labels = np.array(sample.classes)[sample.validation_labels]
    policy = Policy.fit(known, labels, costs=costs, calibrator=TemperatureScaling())
    # The same text each time, so that a store that is opened again knows it.
    return replace(policy, provenance={**policy.provenance, "created": CREATED})


def _demo_store(store: Store) -> str:
    """Put the policy of the demo in force, fill the store, and return a token to sign in with."""
    policy = demo_policy()
    put_in_force(store, policy)
    return fill(store, policy)


def fill(store: Store, policy: Policy, *, seed: int = 0) -> str:
    """Fill an empty store with decisions of the policy in force, and return a token for all of it.

    A LeNet5's outputs of Fashion-MNIST, decided over two weeks; the last quarter of the images is
    noisy, blurred, pale or occluded. Rows drawn at random and most that were handed over have
    labels, the last of them wait.
    """
    for before in store.tokens():
        if before.name == READER and before.is_valid:
            store.revoke_token(before.id)
    token = store.create_token(READER, ["decide", "review", "admin"])
    policy_id = store.active_id()
    if policy_id is None or store.decision(_name_of(0)) is not None:
        return token
    sample = load_fashion_mnist()
    logits = np.concatenate([sample.test_logits[:N_STEADY], sample.corrupted_logits])
    truth = np.concatenate([sample.test_labels[:N_STEADY], sample.corrupted_labels])
    outputs = Logits(logits, classes=sample.classes)
    is_audit = np.random.default_rng(seed).random(len(truth)) < AUDIT_SHARE
    start = time.time() - DAYS * 86_400
    for at in range(0, len(truth), BLOCK):
        rows = slice(at, at + BLOCK)
        created = start + DAYS * 86_400 * (at + BLOCK) / (len(truth) + BLOCK)
        store.add_decisions(_decided(policy, policy_id, outputs, is_audit, rows, created))
    is_asked = is_audit | policy.decide(outputs).is_rejected
    asked = np.flatnonzero(is_asked)[:-N_WAITING]
    store.add_labels([_name_of(row) for row in asked], truth[asked].tolist())
    return token


def _decided(
    policy: Policy, policy_id: int, outputs: Logits, is_audit: Any, rows: slice, created: float
) -> NewDecisions:
    """Return the decisions of a few rows."""
    some = outputs.take(rows)
    ids = [_name_of(row) for row in range(rows.start, rows.start + some.n_rows)]
    return NewDecisions.of(
        policy_id,
        ids,
        policy.decide(some),
        policy.predict_proba(some),
        some.array,
        digests=[blake2b(row.tobytes(), digest_size=16).digest() for row in some.array],
        is_audit=is_audit[rows],
        audit_share=AUDIT_SHARE,
        now=created,
    )


def _name_of(row: int) -> str:
    """Return the id of a row."""
    return f"image-{row:04d}"
