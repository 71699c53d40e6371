"""A batch checks what it is given once, and ranges of it are views."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubito import Logits, Members, Normal, Probabilities, TopLabel
from dubito.data import Batch, Columns, load_fashion_mnist, scan
from dubito.data.batch import make_batch
from dubito.data.labels import Labels, Targets
from dubito.errors import BadTypeError, BadValueError

LOGITS = np.random.default_rng(0).normal(size=(4, 3))


def whole_batch() -> Batch:
    return Batch.of(
        [0, 1, np.nan, 2],
        Logits(LOGITS),
        sample_weight=[1, 2, 3, 0],
        features=np.arange(8.0).reshape(4, 2),
        ids=["a", "b", "c", "d"],
        groups=[1, 1, 2, 2],
        row_costs=[5, 0, 2.5, 1],
    )


def test_a_plain_array_is_probabilities() -> None:
    assert isinstance(Batch.of([1, 0], [[0.2, 0.8], [0.4, 0.6]]).outputs, Probabilities)


def test_the_truth_is_what_the_outputs_speak_of() -> None:
    assert isinstance(whole_batch().labels, Labels)
    assert isinstance(Batch.of([1.5], Normal([1.0], [0.5])).labels, Targets)
    assert Batch.of(None, Logits(LOGITS)).labels is None
    assert Batch.of(None, TopLabel([0.5], [1])).labels is None


def test_amounts_are_float64_whatever_came() -> None:
    row_costs = whole_batch().row_costs
    assert row_costs is not None
    assert row_costs.dtype == np.float64
    assert row_costs.tolist() == [5.0, 0.0, 2.5, 1.0]


def test_weights_of_1_are_shared_and_cannot_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (Batch.of(None, Logits(LOGITS)).weight for _ in range(2))
    assert one is other
    assert not one.flags.writeable
    monkeypatch.setattr("dubito.data.batch.MAX_SHARED", 3)
    alone = Batch.of(None, Logits(LOGITS)).weight
    assert alone is not one
    assert not alone.flags.writeable


def test_weights_are_1_unless_given() -> None:
    assert Batch.of(None, Logits(LOGITS)).weight.tolist() == [1.0] * 4
    assert whole_batch().weight.tolist() == [1.0, 2.0, 3.0, 0.0]


def test_rows_without_truth_weigh_nothing() -> None:
    batch = whole_batch()
    assert batch.n_missing == 1
    assert batch.labeled_weight.tolist() == [1.0, 2.0, 0.0, 0.0]
    assert batch.weight.tolist() == [1.0, 2.0, 3.0, 0.0]
    assert Batch.of(None, Logits(LOGITS)).n_missing == 0


def test_the_pass_over_the_matrix_is_made_once() -> None:
    batch = whole_batch()
    assert batch.rows is batch.rows


@pytest.mark.parametrize("rows", [slice(0, 4), slice(1, 3), slice(4, 4)])
def test_a_range_of_rows_is_a_view_of_everything(rows: slice) -> None:
    batch = whole_batch()
    part = batch.take(rows)
    assert len(part) == len(range(4)[rows])
    for name in ("weight", "features", "ids", "groups", "row_costs"):
        np.testing.assert_array_equal(getattr(part, name), getattr(batch, name)[rows])
        assert getattr(part, name).base is not None
    np.testing.assert_array_equal(part.rows.confidence, batch.rows.confidence[rows])
    np.testing.assert_array_equal(part.rows.correct, batch.rows.correct[rows])


@pytest.mark.parametrize("numbers", [[3, 0, 0], [2], []], ids=["repeated", "one", "none"])
def test_rows_by_number_come_in_that_order_as_copies(numbers: list[int]) -> None:
    batch, index = whole_batch(), np.array(numbers, dtype=np.int64)
    part = batch.take(index)
    assert len(part) == len(numbers)
    for name in ("weight", "labeled_weight", "features", "ids", "groups", "row_costs"):
        np.testing.assert_array_equal(getattr(part, name), getattr(batch, name)[index])
        assert not np.shares_memory(getattr(part, name), getattr(batch, name))
    for name in ("confidence", "correct", "log_loss", "brier_score"):
        whole, some = getattr(batch.rows, name), getattr(part.rows, name)
        np.testing.assert_allclose(some, whole[index], rtol=1e-12)


def test_rows_of_label_probabilities_by_number_keep_theirs() -> None:
    soft = [[0.5, 0.5, 0.0], [np.nan] * 3, [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    batch = Batch.of(soft, Logits(LOGITS))
    part = batch.take(np.array([2, 1]))
    assert part.n_missing == 1
    assert part.rows.log_loss is not None
    assert batch.rows.log_loss is not None
    np.testing.assert_allclose(part.rows.log_loss, batch.rows.log_loss[[2, 1]], rtol=1e-12)


@pytest.mark.parametrize(
    "outputs",
    [
        Normal([1.0, 2.0, 3.0], [0.5, 0.25, 1.0]),
        TopLabel([0.5, 0.75, 1.0], [True, False, True]),
        Members.of([Logits(LOGITS[:3]), Logits(LOGITS[1:])]),
    ],
    ids=lambda outputs: type(outputs).__name__,
)
def test_any_outputs_can_be_taken_by_number(outputs: Any) -> None:
    part = Batch.of(None, outputs).take(np.array([2, 0]))
    assert len(part) == part.outputs.n_rows == 2


@pytest.mark.parametrize("outer", [slice(1, 4), slice(1, None), slice(1, 3)])
def test_a_part_knows_where_it_stands_in_the_whole(outer: slice) -> None:
    batch = replace(Batch.of(None, Logits(LOGITS)), first_row=100)
    assert batch.first_row == 100
    assert batch.take(slice(None, 2)).first_row == 100
    assert batch.take(outer).first_row == 101
    assert batch.take(outer).take(slice(1, 2)).first_row == 102


def test_the_first_row_is_0_unless_given() -> None:
    assert whole_batch().first_row == 0


def test_other_weights_share_the_pass_over_the_matrix() -> None:
    batch = whole_batch()
    reweighted = batch.reweighted(np.array([5.0, 6.0, 7.0, 8.0]))
    assert reweighted.rows is batch.rows
    assert reweighted.outputs is batch.outputs
    assert reweighted.labels is batch.labels
    assert reweighted.ids is batch.ids


def test_other_weights_leave_the_first_ones_alone() -> None:
    batch = whole_batch().take(slice(1, 4))
    assert batch.labeled_weight.tolist() == [2.0, 0.0, 0.0]
    reweighted = batch.reweighted(np.array([6.0, 7.0, 8.0]))
    assert reweighted.weight.tolist() == [6.0, 7.0, 8.0]
    assert reweighted.labeled_weight.tolist() == [6.0, 0.0, 8.0]
    assert reweighted.first_row == batch.first_row == 1
    assert batch.weight.tolist() == [2.0, 3.0, 0.0]
    assert batch.labeled_weight.tolist() == [2.0, 0.0, 0.0]


def test_what_is_not_known_stays_unknown() -> None:
    batch = Batch.of(None, Logits(LOGITS))
    for rows in (slice(0, 2), np.array([0, 1])):
        part = batch.take(rows)
        assert (part.labels, part.features, part.ids, part.groups, part.row_costs) == (None,) * 5


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"y_true": [0, 1]}, "test: `y_true` must have length 4"),
        ({"sample_weight": [1, 1]}, "test: `sample_weight` must have length 4"),
        ({"sample_weight": [1, 1, -2, 1]}, "must not be negative, got -2.0 in row 2"),
        ({"sample_weight": [1, np.nan, 1, 1]}, "finite, got nan in row 1"),
        ({"sample_weight": np.ones((4, 1))}, "one number per row"),
        ({"features": np.ones(4)}, "rows x features"),
        ({"features": np.ones((3, 2))}, "test: `features` must have length 4"),
        ({"features": [[1, 2], [1, np.inf], [1, 2], [1, 2]]}, "got inf in row 1, column 1"),
        ({"ids": ["a"]}, "test: `ids` must have length 4"),
        ({"groups": np.ones((4, 2))}, "test: `groups` must be one value per row"),
        ({"row_costs": [1, 1]}, "test: `row_costs` must have length 4"),
        ({"row_costs": np.ones((4, 1))}, "test: `row_costs` must be one number per row"),
        ({"row_costs": {"fee": [1, 2]}}, "test: `row_costs['fee']` must have length 4"),
        ({"row_costs": [1, 1, np.inf, 1]}, "finite, got inf in row 2"),
        ({"y_true": Labels(np.zeros(3, dtype=np.int64))}, "test: `y_true` must have length 4"),
    ],
)
def test_arguments_of_another_length_raise_by_name(known: dict[str, Any], words: str) -> None:
    with pytest.raises(BadValueError) as caught:
        make_batch(known.pop("y_true", None), Logits(LOGITS), caller="test", **known)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("y", "outputs"),
    [
        ([0], Logits(LOGITS)),
        ([0, 1, 2, 3], Logits(LOGITS)),
        (Labels(np.zeros(3, dtype=np.int64)), Logits(LOGITS)),
        (Labels(np.full(4, 3)), Logits(LOGITS)),
        ([np.inf], Normal([0.0], [1.0])),
        ([1], TopLabel([0.5], [1])),
    ],
)
def test_bad_truth_is_named_as_the_caller_names_it(y: Any, outputs: Any) -> None:
    for argument in ("y", "y_true"):
        message = f"^test: `{argument}` must "
        with pytest.raises((BadTypeError, BadValueError), match=message) as caught:
            make_batch(y, outputs, caller="test", argument=argument)
        assert ("y_true" in str(caught.value)) == (argument == "y_true")


def test_weights_are_numbers() -> None:
    with pytest.raises(BadTypeError, match="numbers"):
        Batch.of(None, Logits(LOGITS), sample_weight=["a"] * 4)


def test_top_labels_know_what_was_right() -> None:
    with pytest.raises(BadTypeError, match="must be None when `outputs` is a TopLabel"):
        Batch.of([1], TopLabel([0.5], [1]))


def test_arrays_of_the_caller_stay_writeable_and_those_of_a_batch_are_read_only() -> None:
    weight, features = np.ones(4), np.ones((4, 2))
    batch = Batch.of(None, Logits(LOGITS), sample_weight=weight, features=features)
    assert weight.flags.writeable
    assert features.flags.writeable
    assert batch.features is not None
    for array in (batch.weight, batch.features):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 2


def test_a_batch_survives_a_trip_to_another_process() -> None:
    batch = whole_batch()
    there = pickle.loads(pickle.dumps(batch))
    np.testing.assert_array_equal(there.rows.log_loss, batch.rows.log_loss)


def test_labels_of_other_classes_never_reach_the_kernels() -> None:
    with pytest.raises(BadValueError, match="labels of 2 classes"):
        Batch.of(Labels(np.array([5, 1])), [[0.8, 0.2], [0.3, 0.7]])


@pytest.mark.parametrize("weight", [1e308, 5e-324, 1e-200])
def test_weights_whose_squares_overflow_or_underflow_raise(weight: float) -> None:
    with pytest.raises(BadValueError, match="0, or between 1e-100 and 1e100"):
        Batch.of([0, 1], [[0.8, 0.2], [0.3, 0.7]], sample_weight=[1, weight])


def test_reprs_name_what_rows_hold_and_no_entries(tmp_path: Path) -> None:
    batch = Batch.of([0, None], [[0.5, 0.5], [0.2, 0.8]], ids=["a", "b"])
    assert repr(batch) == "Batch(Probabilities(2 rows x 2 classes, float64), labels, ids)"
    assert repr(batch.labels) == "Labels(2 rows, 1 missing)"
    assert repr(batch.rows) == "RowStatistics(2 rows)"
    assert repr(Batch.of([0.5, np.nan], Normal([1.0, 2.0], [1.0, 1.0])).labels) == (
        "Targets(2 rows, 1 missing)"
    )
    (tmp_path / "f.csv").write_text("p\n0.5\n")
    shards = scan(tmp_path / "f.csv", Columns(probabilities="p"))
    assert repr(shards) == f"FileShards('{tmp_path}/f.csv', probabilities)"
    assert repr(load_fashion_mnist()) == (
        "FashionMNISTSample(4000 validation, 4000 test, 1000 unseen_classes, 1000 digits, 1000 "
        "corrupted rows, 8 classes)"
    )
