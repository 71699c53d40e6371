"""Periods are outputs of one model; what does not fit is refused by name."""

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from dubito import Logits, Members, Normal, Probabilities, TopLabel
from dubito.data import ArrayShards, Batch
from dubito.errors import BadTypeError, BadValueError, DubitoError
from dubito.monitor import detect_drift
from dubito.monitor.drift import Period

Z = np.random.default_rng(0).normal(size=(30, 3))
P = softmax(Z, axis=1)


def test_members_are_taken_by_their_mean() -> None:
    period = Period(Batch.of(None, Members([P, P[::-1]])))
    assert period.outputs is not None
    np.testing.assert_allclose(period.outputs.array, (P + P[::-1]) / 2)
    assert period.n_classes == 3


@pytest.mark.parametrize("outputs", [Logits(Z), Probabilities(P)])
def test_outputs_say_how_common_classes_are(outputs: Any) -> None:
    np.testing.assert_allclose(Period(Batch.of(None, outputs)).mean_probability, P.mean(axis=0))


def test_what_is_labeled_is_known() -> None:
    assert Period(Batch.of(None, P)).labeled is None
    assert Period(Batch.of([np.nan] * 30, P)).labeled is None
    some = Period(Batch.of([1.0] * 10 + [np.nan] * 20, P))
    assert some.labeled is not None
    assert len(some.labeled) == 10
    assert some.codes is not None
    assert some.codes.tolist() == [1] * 10 + [-1] * 20
    assert Period(Batch.of(P, P)).codes is None
    top = Period(Batch.of(None, TopLabel([0.5], [1])))
    assert (top.outputs, top.n_classes, top.codes) == (None, 0, None)
    assert top.labeled is top.batch


BAD: list[tuple[Any, type[DubitoError], str]] = [
    (
        lambda: detect_drift(P, Logits(Z)),
        BadValueError,
        "`current` of drift must be Probabilities of 3 classes, like `reference`. "
        "Got Logits of 3. Try outputs of one model.",
    ),
    (
        lambda: detect_drift(P, P[:, :2] / P[:, :2].sum(axis=1, keepdims=True)),
        BadValueError,
        "`current` of drift must be Probabilities of 3 classes, like `reference`. "
        "Got Probabilities of 2. Try outputs of one model.",
    ),
    (
        lambda: detect_drift(P, P, reference_features=Z),
        BadValueError,
        "`features` of drift must be given of both periods. Got those of `reference` alone. "
        "Try features of the other too, or of neither.",
    ),
    (
        lambda: detect_drift(Normal([0.0], [1.0]), P),
        BadTypeError,
        "`reference` of drift must be Logits, Probabilities, Members, TopLabel or an array of "
        "probabilities. Got Normal. Try a classifier's outputs.",
    ),
    (
        lambda: detect_drift(P, P[:0]),
        BadValueError,
        "`current` of drift must be 1 row or more. Got none. Try rows of both periods.",
    ),
    (
        lambda: detect_drift(ArrayShards(Batch.of(None, P, sample_weight=[2] * 30)), P),
        BadValueError,
        "`reference` of drift must be without weights: each row counts once. Got weights. "
        "Try columns without `weight`.",
    ),
    (
        lambda: detect_drift(P, P, y_current=[0]),
        BadValueError,
        "drift: `y_current` must have length 30, like the outputs, got length 1. Align both in "
        "the same row order.",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_what_is_wrong_is_told(call: Any, kind: type[DubitoError], message: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message
