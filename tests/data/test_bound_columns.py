"""A piece of a table becomes a batch, and errors speak of the file's columns and rows."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dubito import Logits, Normal, Probabilities, Quantiles, Samples
from dubito.data import Columns
from dubito.data.labels import Labels
from dubito.errors import BadTypeError, BadValueError, DubitoError
from dubito.outputs import RegressionMembers

P = {"p_cat": [0.25, 0.5], "p_dog": [0.75, 0.5]}


def batch_of(table: dict[str, Any], columns: Columns, first_row: int = 0) -> Any:
    piece = pa.table(table)
    return columns.bind(piece.column_names, "f.csv").batch(piece, first_row)


def error_of(table: dict[str, Any], columns: Columns, first_row: int = 0) -> str:
    with pytest.raises(DubitoError) as caught:
        batch_of(table, columns, first_row)
    assert isinstance(caught.value, BadValueError | BadTypeError)
    return str(caught.value)


def test_a_piece_of_several_chunks_is_one_batch() -> None:
    first, second = pa.table({"p": [0.25], "y": [1]}), pa.table({"p": [0.5], "y": [0]})
    piece = pa.concat_tables([first, second])
    batch = Columns(label="y", probabilities="p").bind(["p", "y"], "f.csv").batch(piece)
    assert isinstance(batch.outputs, Probabilities)
    assert batch.outputs.array.tolist() == [[0.75, 0.25], [0.5, 0.5]]


def test_columns_of_different_types_share_the_widest() -> None:
    table = {"z_0": np.ones(2, np.float32), "z_1": np.ones(2), "z_2": np.ones(2, np.int8)}
    outputs = batch_of(table, Columns(logits="z_*")).outputs
    assert isinstance(outputs, Logits)
    assert outputs.array.dtype == np.float64


def test_categories_of_each_chunk_are_their_own() -> None:
    chunks = [pa.array(["dog", None]), pa.array(["cat", "cat"])]
    column = pa.chunked_array([chunk.dictionary_encode() for chunk in chunks])
    table = {name: values * 2 for name, values in P.items()} | {"y": column}
    truth = batch_of(table, Columns(label="y", probabilities="p_*")).labels
    assert isinstance(truth, Labels)
    assert truth.codes.tolist() == [1, -1, 0, 0]


def test_rows_count_from_the_start_of_the_file() -> None:
    table = {**P, "y": ["dog", "wolf"]}
    message = error_of(table, Columns(label="y", probabilities="p_*"), first_row=1000)
    assert message.startswith("f.csv: `y` must be one of the classes ('cat', 'dog'), got 'wolf'")
    assert "in row 1001" in message


def test_an_error_about_one_column_of_many_names_it() -> None:
    message = error_of({**P, "p_dog": [0.75, -0.5]}, Columns(probabilities="p_*"))
    assert message.startswith("f.csv: `p_dog` must be non-negative, got -0.5 in row 1.")


def test_an_error_about_many_columns_names_the_first_and_the_last() -> None:
    message = error_of({**P, "p_eel": [0.0, 2.0]}, Columns(probabilities="p_*"))
    assert message.startswith("f.csv: `p_cat, ..., p_eel` must have rows that sum to 1, got")


@pytest.mark.parametrize(
    ("column", "values", "columns"),
    [
        ("c", [0.5, 1.5], Columns(confidence="c", correct="hit")),
        ("hit", [1, 2], Columns(confidence="c", correct="hit")),
        ("m", [0.5, np.inf], Columns(label="c", mean="m", std="s")),
        ("s", [0.5, -1.0], Columns(label="c", mean="m", std="s")),
        ("c", [0.5, np.inf], Columns(label="c", mean="m", std="s")),
        ("w", [1.0, -1.0], Columns(probabilities="c", weight="w")),
        ("c", [0.5, -1.0], Columns(probabilities="c", weight="w")),
        ("w", [1.0, np.nan], Columns(probabilities="c", row_costs=["2 * w"])),
        ("w", [1.0, 0.0], Columns(probabilities="c", row_costs=["2 / w"])),
        ("f_1", [0.5, np.nan], Columns(probabilities="c", features="f_*")),
        ("m", [0.5, np.nan], Columns(probabilities="c", features="m")),
        ("c", [0.5, np.nan], Columns(logits="c")),
    ],
)
def test_an_error_names_the_column_whatever_part_it_plays(
    column: str, values: list[float], columns: Columns
) -> None:
    table = {name: [0.5, 0.5] for name in ("c", "hit", "m", "s", "w", "f_1", "f_2")}
    message = error_of({**table, column: values}, columns, first_row=7)
    assert message.startswith(f"f.csv: `{column}` must ")
    assert " in row 8. " in message


@pytest.mark.parametrize(
    "columns",
    [
        Columns(confidence="lists", correct="hit"),
        Columns(label="hit", probabilities="hit_*", weight="lists"),
    ],
)
def test_a_list_is_not_one_number(columns: Columns) -> None:
    table = {"lists": [[0.5, 0.5]], "hit": [1], "hit_0": [0.5], "hit_1": [0.5]}
    assert "f.csv: `lists` must be numbers, got a column of list" in error_of(table, columns)


def test_names_for_another_number_of_classes_raise() -> None:
    message = error_of({"p": [0.5]}, Columns(probabilities="p", classes=["a", "b", "c"]))
    assert message.startswith("f.csv: `classes` must have 2 names")


@pytest.mark.parametrize("kind", [pa.int64(), pa.int8(), pa.uint16(), pa.float64(), pa.string()])
@pytest.mark.parametrize("has_gap", [False, True])
def test_column_numbers_are_labels_whatever_their_type(kind: pa.DataType, has_gap: bool) -> None:
    table = {
        "z_0": [0.5] * 3,
        "z_1": [1.5] * 3,
        "y": pa.array([1, 0, None if has_gap else 1], pa.int64()).cast(kind),
    }
    truth = batch_of(table, Columns(label="y", logits="z_*")).labels
    assert truth.codes.tolist() == [1, 0, -1 if has_gap else 1]
    assert truth.codes.dtype == np.int64


def test_whole_numbers_that_name_classes_are_not_column_numbers() -> None:
    table = {"z_3": [0.5, 0.5], "z_4": [1.5, 0.5], "y": [4, 3]}
    assert batch_of(table, Columns(label="y", logits="z_*")).labels.codes.tolist() == [1, 0]


def test_a_label_beyond_the_last_column_is_reported_with_its_row() -> None:
    table = {"z_0": [0.5, 0.5], "z_1": [1.5, 0.5], "y": [1, 2]}
    message = error_of(table, Columns(label="y", logits="z_*"), first_row=7)
    assert message.startswith("f.csv: `y` must be class indices from 0 to 1, got 2")
    assert "in row 8" in message


def test_quantiles_are_in_the_order_of_their_levels() -> None:
    table = {"q_0.9": [3.0, 5.0], "q_0.1": [1.0, 2.0], "y": [2.0, None]}
    batch = batch_of(table, Columns(label="y", quantiles="q_*"))
    assert isinstance(batch.outputs, Quantiles)
    assert batch.outputs.array.tolist() == [[1.0, 3.0], [2.0, 5.0]]
    assert batch.outputs.levels.tolist() == [0.1, 0.9]
    assert batch.n_missing == 1
    stated = Columns(quantiles=["q_0.9", "q_0.1"], levels=[0.2, 0.3], rearrange=True)
    outputs = batch_of(table, stated).outputs
    assert outputs.levels.tolist() == [0.2, 0.3]
    assert outputs.n_rearranged == 2
    of_pattern = batch_of(table, Columns(quantiles="q_*", levels=[0.8, 0.2])).outputs
    assert of_pattern.array.tolist() == [[1.0, 3.0], [2.0, 5.0]]


def test_quantiles_and_draws_may_be_lists() -> None:
    table = {"q": [[1.0, 3.0], [2.0, 5.0]]}
    piece = pa.table(table)
    for columns in (Columns(quantiles="q", levels=[0.1, 0.9]), Columns(samples="q")):
        bound = replace(columns.bind(["q"], "f.csv"), widths={"q": 2})
        outputs = bound.batch(piece).outputs
        assert isinstance(outputs, Quantiles | Samples)
        assert outputs.array.tolist() == table["q"]
    assert "or levels=[0.05,0.5,0.95] for lists" in error_of(table, Columns(quantiles="q"))


def test_several_means_are_members_of_an_ensemble() -> None:
    table = {
        "mean_1": [1.0, 2.0], "mean_0": [3.0, 4.0], "std_0": [0.1, 0.2], "std_1": [0.3, 0.4]
    }  # fmt: skip
    outputs = batch_of(table, Columns(mean="mean_*", std="std_*")).outputs
    assert isinstance(outputs, RegressionMembers)
    assert outputs.means.tolist() == [[3.0, 4.0], [1.0, 2.0]]
    assert outputs.stds.tolist() == [[0.1, 0.2], [0.3, 0.4]]
    assert isinstance(batch_of(table, Columns(mean="mean_0", std="std_0")).outputs, Normal)
    message = error_of({**table, "std_1": [0.3, 0.0]}, Columns(mean="mean_*", std="std_*"), 10)
    assert message.startswith("f.csv: `std_1` must be positive, got 0.0 in row 11.")


REGRESSION = {"q_0.1": [1.0, 2.0], "q_0.9": [3.0, 5.0], "y": [2.0, 3.0], "std_0": [1.0, 1.0]}


@pytest.mark.parametrize(
    ("columns", "table", "words"),
    [
        (
            Columns(quantiles="q_*"),
            {"q_0.9": [3.0, 1.5]},
            "f.csv: `q_0.9` has crossing quantiles in 1 of 2 rows, first in row 8: 1.5 at level "
            "0.9 is below 2 at level 0.1. Pass rearrange=True",
        ),
        (Columns(quantiles="q_*"), {"q_0.9": [3.0, np.inf]}, "`q_0.9` must be finite, got inf in"),
        (
            Columns(quantiles="q_*"),
            {"q_0.1": ["1", "x"]},
            "`q_0.1` must be numbers, got 'x' in row 8",
        ),
        (
            Columns(quantiles="q_*"),
            {"q_10": [1.0, 1.0]},
            "got 'q_0.1', 'q_0.9', 'q_10'. Pass levels=",
        ),
        (Columns(quantiles=["q_0.1", "y"]), {}, "got 'q_0.1', 'y'. Pass levels="),
        (
            Columns(quantiles="q_*", levels=[0.1]),
            {},
            "`levels` must be 2 numbers, one per column, got 1",
        ),
        (
            Columns(quantiles="q_*", levels=[0.1, 0.1]),
            {},
            "`levels` must be different, got 0.1 for 'q_0.1' and 'q_0.9'. Leave one",
        ),
        (
            Columns(quantiles="q_*", levels=[5, 95]),
            {},
            "must be between 0 and 1, got 5 for 'q_0.1'",
        ),
        (Columns(samples="q_*", levels=[0.1, 0.9]), {}, "`levels` requires quantiles, got samples"),
        (Columns(samples="q_*", rearrange=True), {}, "`rearrange` requires quantiles, got samples"),
        (Columns(quantiles="q_*", samples="y"), {}, "got quantiles and samples"),
        (Columns("q_*", samples="y"), {}, "`label` must be one column for a regression"),
        (
            Columns("y", samples="q_*", classes=["a"]),
            {},
            "`classes` cannot be used for a regression",
        ),
        (Columns("y", samples="q_*"), {"y": [2.0, np.inf]}, "`y` must be finite, got inf in row 8"),
        (
            Columns("y", samples="q_*"),
            {"y": ["2", "two"]},
            "`y` must be numbers, got 'two' in row 8",
        ),
        (
            Columns(mean="q_*", std="std_*"),
            {},
            "has no column of standard deviations for 0.1, 0.9, got columns std_0. Add std_0.1",
        ),
        (
            Columns(mean="y", std=["std_0", "q_0.1"]),
            {},
            "`std` must have one column for each of 1 means, got 2",
        ),
    ],
)
def test_regressions_that_cannot_be_read(
    columns: Columns, table: dict[str, Any], words: str
) -> None:
    assert words in error_of({**REGRESSION, **table}, columns, 7)
