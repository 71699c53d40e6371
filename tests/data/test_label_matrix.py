"""Several labels per row: unknown and uncertain ones, and invalid ones."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dubito import MultiLabel, audit
from dubito.data import ArrayShards, Batch, LabelMatrix
from dubito.data.shards import joined
from dubito.errors import BadTypeError, BadValueError

OUTPUTS = MultiLabel([[0.9, 0.2], [0.4, 0.6], [0.5, 0.1], [0.3, 0.8]], ["cough", "fever"])
Y = [[1, 0], [0, -1], [-1, None], [1, 1]]


@pytest.mark.parametrize(
    ("policy", "first", "second"),
    [
        ("ignore", [1, 0, np.nan, 1], [0, np.nan, np.nan, 1]),
        ("zeros", [1, 0, 0, 1], [0, 0, np.nan, 1]),
        ("ones", [1, 0, 1, 1], [0, 1, np.nan, 1]),
        ("multi-class", [1, 0, np.nan, 1], [0, np.nan, np.nan, 1]),
        ("soft", [1, 0, 2 / 3, 1], [0, 0.5, np.nan, 1]),
        (0.7, [1, 0, 0.7, 1], [0, 0.7, np.nan, 1]),
    ],
)
def test_uncertain_labels_follow_a_policy(policy: Any, first: list[float], second: Any) -> None:
    found = LabelMatrix.of(Y, OUTPUTS, uncertain=policy).values
    np.testing.assert_allclose(found, np.array([first, second]).T)
    frame = pd.DataFrame(Y)
    np.testing.assert_array_equal(LabelMatrix.of(frame, OUTPUTS, uncertain=policy).values, found)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (Y, r"must be between 0 and 1, got -1.*pass uncertain='ignore' if -1 or u marks"),
        ([["1", "u"]] * 4, "must be between 0 and 1, got u in row 0, column 1"),
        ([[1, 0]] * 3, "`y_true` must have length 4"),
        ([[1], [0], [1], [0]], "must be rows x 2 labels, got 1 labels"),
        ([1, 0, 1, 0], "rows x 2 labels"),
        ([[1, 2]] * 4, "must be between 0 and 1, got 2"),
        ([[1, np.inf]] * 4, "must be between 0 and 1, got inf"),
    ],
)
def test_invalid_labels_raise(y: Any, message: str) -> None:
    with pytest.raises((BadValueError, BadTypeError), match=message):
        LabelMatrix.of(y, OUTPUTS)
    with pytest.raises(BadValueError, match=r"`uncertain` must be 'ignore'.*got 'maybe'"):
        LabelMatrix.of(y, OUTPUTS, uncertain="maybe")  # type: ignore[arg-type]


def test_masked_labels_are_unknown() -> None:
    is_masked = np.array([[0, 1], [0, 0], [1, 1], [0, 0]]) == 1
    y = np.ma.masked_array([[1, 0], [0, 1], [1, 1], [0, 0]], is_masked)
    found = LabelMatrix.of(y, OUTPUTS).values
    np.testing.assert_array_equal(found, [[1, np.nan], [0, 1], [np.nan, np.nan], [0, 0]])


def test_batches_hold_them() -> None:
    y = np.array([[1, 0], [np.nan, np.nan], [0.3, 1], [np.nan, 1]])
    kept = y.copy()
    batch = Batch.of(y, OUTPUTS)
    assert batch.n_missing == 1
    assert batch.labeled_weight.tolist() == [1, 0, 1, 1]
    np.testing.assert_array_equal(y, kept)
    shards = ArrayShards(batch, 2)
    again = joined(shards.batches())
    assert isinstance(again.outputs, MultiLabel)
    assert isinstance(again.labels, LabelMatrix)
    np.testing.assert_array_equal(again.labels.values, y)
    assert again.outputs.label_names == ("cough", "fever")
    assert repr(again.labels) == "LabelMatrix(4 rows x 2 labels, 1 rows missing)"


def test_logits_keep_their_precision() -> None:
    odds = np.array([[40.0, -800.0], [0.0, 3.0]])
    made = MultiLabel.from_logits(odds, ["a", "b"])
    np.testing.assert_array_equal(made.log_odds, odds)
    np.testing.assert_allclose(made.array, [[1, 0], [0.5, 1 / (1 + np.exp(-3))]])
    np.testing.assert_array_equal(made.take(slice(1, 2)).log_odds, odds[1:])
    assert MultiLabel([[0.5, 1.0]]).log_odds.tolist() == [[0.0, np.inf]]
    assert made.names == ("a", "b")
    assert MultiLabel([[0.5, 1.0]]).names == (0, 1)
    for names, message in [(["a"], "must have 2 names"), (["a", "a"], "Name each label once")]:
        with pytest.raises(BadValueError, match=message):
            MultiLabel.from_logits(odds, names)


def test_a_label_exchanged_with_its_probabilities_raises() -> None:
    p = np.random.default_rng(0).random((60, 3))
    y = (p > 0.5).astype(float)
    p[:, 1], y[:, 1] = y[:, 1].copy(), p[:, 1].copy()
    with pytest.raises(BadValueError, match="the outputs of 'b' are all 0 or 1, like"):
        audit(y, MultiLabel(p, ["a", "b", "c"]))
    y[:35, 1] = y[:35, 1] > 0.5  # some soft labels beside hard outputs are fine
    assert audit(y, MultiLabel(p), n_resamples=0).n_known["1"] == 60


@pytest.mark.parametrize("prefix", ["", "y_"])
def test_columns_of_a_data_frame_are_matched_by_name(prefix: str) -> None:
    frame = pd.DataFrame({f"{prefix}fever": [0, 1, 1, 0], f"{prefix}cough": [1, 0, 0, 0]})
    for outputs in (
        OUTPUTS,
        MultiLabel(pd.DataFrame(OUTPUTS.array, columns=["p_cough", "p_fever"])),
    ):
        found = LabelMatrix.of(frame, outputs).values
        np.testing.assert_array_equal(found, [[1, 0], [0, 1], [0, 1], [0, 0]])
    with pytest.raises(BadValueError, match="a column for each label, got none called 'cough'"):
        LabelMatrix.of(frame.set_axis(["fever", "rash"], axis=1), OUTPUTS)
    others = LabelMatrix.of(frame.set_axis(["one", "two"], axis=1), OUTPUTS).values
    np.testing.assert_array_equal(others, frame.to_numpy())


def test_data_frames_name_the_labels() -> None:
    frame = pd.DataFrame({"cough": [0.5], "fever": [0.2]})
    assert MultiLabel(frame).label_names == ("cough", "fever")
    assert MultiLabel.from_logits(frame).label_names == ("cough", "fever")
    assert MultiLabel(frame, ["a", "b"]).label_names == ("a", "b")
    assert MultiLabel(frame.set_axis([0, 1], axis=1)).label_names is None


def test_marks_may_be_text() -> None:
    frame = pd.DataFrame({"cough": ["1", "u", "", 0], "fever": [1.0, None, "0", True]})
    found = LabelMatrix.of(frame, OUTPUTS, uncertain=0.7).values
    np.testing.assert_array_equal(found, [[1, 1], [0.7, np.nan], [np.nan, 0], [0, 1]])
    texts = LabelMatrix.of(np.array([["1", "0"]] * 4), OUTPUTS).values
    np.testing.assert_array_equal(texts, [[1, 0]] * 4)
    with pytest.raises(BadValueError, match="'u' where uncertain, got maybe in row 1, column 0"):
        LabelMatrix.of(frame.replace("u", "maybe"), OUTPUTS)
