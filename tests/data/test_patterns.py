"""Column names: what a pattern matches, in which order, and the classes it names."""

from typing import Any

import pytest

from dubito.data.patterns import (
    class_names,
    in_order_of,
    is_several,
    levels_of,
    matching,
    natural_order,
)
from dubito.errors import BadValueError


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("y", ["y"]),
        ("logit_*", ["logit_2", "logit_10"]),
        ("*_10", ["logit_10"]),
        ("lo*0", ["logit_10"]),
        ("*", ["logit_", "logit_2", "logit_10", "y"]),
        (["y", "logit_10", "logit_2"], ["y", "logit_10", "logit_2"]),
        (["y", "logit_*"], ["y", "logit_2", "logit_10"]),
    ],
)
def test_what_is_wanted_is_found_in_natural_order(wanted: Any, found: list[str]) -> None:
    names = ["logit_10", "y", "logit_", "logit_2"]
    assert matching(wanted, names, "logits", "f.csv") == found


def test_natural_order_counts() -> None:
    names = ["z10", "z9", "z", "a1b10", "a1b9", "10", "9"]
    expected = ["9", "10", "a1b9", "a1b10", "z", "z9", "z10"]
    assert sorted(names, key=natural_order) == expected


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (
            "label",
            " has no column 'label' (label). Pass label='labels', or another of its columns: ",
        ),
        ("label", "labels, p_0, p_1, p_2, p_3, p_4, p_5, p_6 and 13 more."),
        (
            "logit*",
            " has no columns that match 'logit*' (label). Pass label with one of its ",
        ),
        ("p_*_*", ": `label` must be a name, or a pattern with one *, got 'p_*_*'"),
        (["labels", 3], ": `label` must be a name, or a pattern with one *, got 3"),
        (["p_0", "p_*"], ": `label` must have distinct column names, got 'p_0' twice"),
    ],
)
def test_the_error_for_a_missing_column_lists_the_existing_ones(wanted: Any, words: str) -> None:
    names = ["labels", *(f"p_{k}" for k in range(20))]
    with pytest.raises(BadValueError) as caught:
        matching(wanted, names, "label", "f.csv")
    assert str(caught.value).startswith("f.csv")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("wanted", "columns", "classes"),
    [
        ("p_*", ["p_cat", "p_dog"], ("cat", "dog")),
        ("p_*", ["p_1", "p_2", "p_10"], (1, 2, 10)),
        ("*_p", ["1_p", "x_p"], ("1", "x")),
        ("p_*", ["p_1", "p_01"], ("1", "01")),
        ("p_*", ["p_-1", "p_1"], (-1, 1)),
        ("p_*", ["p_0.5", "p_1"], ("0.5", "1")),
        (["cat", "dog"], ["cat", "dog"], ("cat", "dog")),
        (["0", "1"], ["0", "1"], (0, 1)),
    ],
)
def test_classes_are_called_by_what_the_star_stands_for(
    wanted: Any, columns: list[str], classes: tuple[Any, ...]
) -> None:
    assert class_names(wanted, columns) == classes


def test_votes_come_in_the_order_of_the_classes() -> None:
    votes = ["vote_cat", "vote_dog"]
    assert in_order_of(("dog", "cat"), "vote_*", votes, "f.csv") == ["vote_dog", "vote_cat"]


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        (("cat", "fox"), "f.csv has no column of label probabilities for fox, .*Add vote_fox.$"),
        (("cat",), "one column per class"),
        (None, "one column if the classes have no names, got 2 columns"),
    ],
)
def test_label_probabilities_of_other_classes_raise(classes: Any, words: str) -> None:
    with pytest.raises(BadValueError, match=words):
        in_order_of(classes, "vote_*", ["vote_cat", "vote_dog"], "f.csv")


def test_patterns_and_lists_stand_for_several() -> None:
    assert is_several("p_*")
    assert is_several(["p"])
    assert not is_several("p")


@pytest.mark.parametrize(
    ("names", "levels"),
    [
        ("q_0.05 q_0.5 q_0.95", (0.05, 0.5, 0.95)),
        ("q05 q50 q95", (0.05, 0.5, 0.95)),
        ("q_5 q_50 q_95", (0.05, 0.5, 0.95)),
        ("0.05 .5", (0.05, 0.5)),
        ("quantile_0.95", (0.95,)),
        ("q_2.5 q_50 q_97.5", (0.025, 0.5, 0.975)),
        ("q025 q500 q975", (0.025, 0.5, 0.975)),
        ("p10 p90", (0.1, 0.9)),
        ("q_5% q_95%", (0.05, 0.95)),
    ],
)
def test_levels_are_read_from_names(names: str, levels: tuple[float, ...]) -> None:
    assert levels_of(names.split(), names.split(), "f.csv") == levels


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("q_1 q_2 q_3", "Pass levels=[0.01,0.02,0.03] or levels=[0.1,0.2,0.3]."),
        ("q_5 q_95", "two meanings. Pass levels=[0.05,0.95] or levels=[0.5,0.95]."),
        ("q_0.5 q_50", "got 'q_0.5', 'q_50'. Pass levels=[0.05,0.5,0.95], one per column."),
        ("q_1e-05 q_0.5", "got 'q_1e-05', 'q_0.5'."),
        ("low_5 high_95", "got 'low_5', 'high_95'."),
        ("low high", "got 'low', 'high'."),
        ("q0 q100", "got 'q0', 'q100'."),
    ],
)
def test_levels_that_names_do_not_state_are_an_error(names: str, words: str) -> None:
    with pytest.raises(BadValueError) as caught:
        levels_of(names.split(), names.split(), "f.csv")
    assert words in str(caught.value)
