"""Columns are declared: what is missing, duplicate or contradictory raises before reading."""

from typing import Any

import pytest

from dubito.data import Columns
from dubito.errors import BadValueError

NAMES = ["y", "p_dog", "p_cat", "logit_10", "logit_2", "vote_cat", "vote_dog", "one_yes"]
NAMES += ["c", "hit", "w", "w", "id"]


@pytest.mark.parametrize(
    ("columns", "kind", "found"),
    [
        (Columns(logits="logit_*"), "logits", {"logits": ["logit_2", "logit_10"]}),
        (Columns(probabilities="c"), "probabilities", {"probabilities": ["c"]}),
        (Columns(probabilities=["c", "y"]), "probabilities", {"probabilities": ["c", "y"]}),
        (
            Columns(confidence="c", correct="hit"),
            "confidence",
            {"confidence": ["c"], "correct": ["hit"]},
        ),
        (
            Columns(scores="p_*", confidence="c"),
            "scores",
            {"scores": ["c", "p_cat", "p_dog"], "confidence": ["c"]},
        ),
        (
            Columns("y", mean="c", std="hit"),
            "mean",
            {"label": ["y"], "mean": ["c"], "std": ["hit"]},
        ),
        (
            Columns("y", logits="c", features="logit_*", id="id", group="id", row_costs="2 * hit"),
            "logits",
            {
                "label": ["y"],
                "logits": ["c"],
                "features": ["logit_2", "logit_10"],
                "id": ["id"],
                "group": ["id"],
                "row_costs": ["hit"],
            },
        ),
    ],
)
def test_declared_columns_are_found(columns: Columns, kind: str, found: dict[str, Any]) -> None:
    bound = columns.bind(NAMES, "f.csv")
    assert bound.kind == kind
    assert bound.found == found
    assert sorted(bound.needed) == sorted({name for some in found.values() for name in some})


@pytest.mark.parametrize(
    ("columns", "classes"),
    [
        (Columns(probabilities="p_*"), ("cat", "dog")),
        (Columns(logits="logit_*"), (2, 10)),
        (Columns(logits=["c", "hit"]), ("c", "hit")),
        (Columns(logits="c"), None),
        (Columns(logits="c", classes=["no", "yes"]), ("no", "yes")),
        (Columns(confidence="c", correct="hit"), None),
    ],
)
def test_classes_are_named_by_their_columns_or_by_hand(columns: Columns, classes: Any) -> None:
    assert columns.bind(NAMES, "f.csv").classes == classes


def test_votes_come_in_the_order_of_the_classes() -> None:
    named = Columns(label="vote_*", probabilities="c", classes=["dog", "cat"])
    assert named.bind(NAMES, "f.csv").found["label"] == ["vote_dog", "vote_cat"]
    by_columns = Columns(label="vote_*", probabilities="p_*")
    assert by_columns.bind(NAMES, "f.csv").found["label"] == ["vote_cat", "vote_dog"]


def test_what_may_be_text_is_never_asked_for_as_numbers() -> None:
    named = Columns(label="y", logits="logit_*", id="id", group="hit")
    votes = Columns(label="vote_*", probabilities="p_*")
    top, normal = Columns(confidence="c", correct="hit"), Columns("y", mean="c", std="hit")
    texts = [columns.bind(NAMES, "f.csv").texts for columns in (named, votes, top, normal)]
    labels = ["vote_cat", "vote_dog"]  # they may be marks of several labels, without --multilabel
    assert [sorted(some) for some in texts] == [["hit", "id", "y"], labels, ["hit"], []]


EXACTLY_ONE = (
    "f.csv: `columns` must have exactly one of logits, probabilities, multilabel, "
    "multilabel_logits, confidence with"
)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (Columns(), f"{EXACTLY_ONE} correct, scores, mean with std, quantiles, and samples, got"),
        (Columns(logits="c", probabilities="p_*"), "got logits and probabilities."),
        (Columns(confidence="c"), "got confidence without correct."),
        (Columns(logits="c", std="hit"), "got std without mean."),
        (Columns("why", logits="c"), "f.csv has no column 'why' (label). Pass label='y', or "),
        (
            Columns(confidence="c", correct="hits"),
            "f.csv has no column 'hits' (correct). Pass correct='hit', or ",
        ),
        (Columns("y", confidence="c", correct="hit"), "cannot be combined with confidence"),
        (Columns("y", scores="c", correct="hit"), "cannot be combined with scores"),
        (Columns(scores="c", correct="c"), "must not be one of the columns of scores"),
        (
            Columns(logits="p_*", classes=["a", "b"]),
            "f.csv: `classes` applies to a single list column",
        ),
        (
            Columns(logits="one_*"),
            "must match at least 2 columns, got 'one_yes' only. Pass logits=",
        ),
        (Columns(logits=["c"]), "must match at least 2 columns, got 'c' only."),
        (Columns(logits="c", id="p_*"), "f.csv: `id` must be one column, got p_cat, p_dog."),
        (Columns(logits="c", weight="w"), "f.csv has two columns named 'w'. Rename one of them."),
        (
            Columns("p_cat", probabilities="p_*"),
            "must not be one of the columns of probabilities, got 'p_cat'",
        ),
        (Columns("vote_*", probabilities="c"), "one column if the classes have no names"),
        (
            Columns("vote_*", logits="logit_*"),
            "has no column of label probabilities for 2, 10, got columns vote_cat, vote_dog. "
            "Add vote_2",
        ),
    ],
)
def test_contradictory_columns_raise(columns: Columns, words: str) -> None:
    with pytest.raises(BadValueError) as caught:
        columns.bind(NAMES, "f.csv")
    assert words in str(caught.value)
