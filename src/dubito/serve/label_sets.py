"""Several labels per row in requests and responses: answers, decisions, and what reviewers see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import FloatArray
from dubito.decide.multilabel.label_decisions import ACTIONS, AUTOMATIC, REVIEW, ROW_ACTIONS
from dubito.decide.multilabel.label_policy import MultiLabelPolicy
from dubito.outputs import ClassName
from dubito.serve.http_errors import INVALID, HTTPError, show_json
from dubito.serve.value_rows import float_matrix

if TYPE_CHECKING:
    from dubito.serve.store import ReviewItem

MARKS = {None: "?", 0: "n", 1: "y"}
VALUES: dict[str, int | None] = {mark: value for value, mark in MARKS.items()}
REASONS = ("lowest_expected_cost", "highest_f_beta", "review_costs_less")
EXAMPLE = 'Send for example {"edema": 1, "effusion": null}'
MAX_SHOWN = 20  # names in a message


def encode_answers(
    labels: Sequence[Any], names: Sequence[ClassName], place: str = "labels[{}]"
) -> list[str]:
    """Return the answers of rows as they are stored, from values by label name.

    Labels that are not named are unknown, as those whose value is None.

    Parameters
    ----------
    labels : sequence of dict
        For each row 0, 1 or None by name.
    names : sequence
        The labels of the policy.
    place : str
        What messages call a row, with its number.

    Returns
    -------
    list of str
        "y", "n" or "?" for each label of a row.

    Examples
    --------
    >>> encode_answers([{"edema": 1, "effusion": None}], ["effusion", "edema", "fracture"])
    ['?y?']
    """
    known = {str(name): k for k, name in enumerate(names)}
    result = []
    for row, given in enumerate(labels):
        where, marks = place.format(row), ["?"] * len(known)
        if not isinstance(given, dict):
            problem = f"`{where}` must be 0, 1 or null by label name, got {show_json(given)}"
            raise HTTPError(INVALID, problem, EXAMPLE)
        for name, value in given.items():
            if name not in known:
                shown = ", ".join(list(known)[:MAX_SHOWN])
                problem = f"`{where}`: {name[:50]!r} is not a label of the policy"
                raise HTTPError(INVALID, problem, f"Use one of {shown}")
            if type(value) not in (int, float, type(None)) or value not in MARKS:
                problem = f"`{where}`: {name[:50]!r} must be 0, 1 or null, got {show_json(value)}"
                raise HTTPError(INVALID, problem, "Send null if it is unknown")
            marks[known[name]] = MARKS[value]
        if set(marks) == {"?"}:
            problem = f"`{where}` has no label that is known"
            raise HTTPError(INVALID, problem, "Leave the row out, or send 0 or 1 for some label")
        result.append("".join(marks))
    return result


def decode_answers(answers: str, names: Sequence[ClassName]) -> dict[str, int | None]:
    """Return stored answers by label name.

    >>> decode_answers("y?n", ["a", "b", "c"])
    {'a': 1, 'b': None, 'c': 0}
    """
    return {str(name): VALUES[mark] for name, mark in zip(names, answers, strict=True)}


def answer_matrix(answers: Sequence[str | None], n_labels: int) -> FloatArray:
    """Return stored answers as rows x labels of 0 and 1, NaN where unknown.

    >>> answer_matrix(["y?", None], 2).tolist()
    [[1.0, nan], [nan, nan]]
    """
    text = "".join("?" * n_labels if one is None else one for one in answers)
    codes = np.frombuffer(text.encode(), np.uint8).reshape(len(answers), n_labels)
    return np.where(codes == ord("y"), 1.0, np.where(codes == ord("n"), 0.0, np.nan))


def action_matrix(stored: Sequence[bytes], n_labels: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the action of each label of each row, and what it is without a review."""
    codes = np.frombuffer(b"".join(stored), np.uint8).reshape(len(stored), n_labels)
    fallback = (codes & 1).astype(np.int64)
    return np.where(codes >= REVIEW, REVIEW, fallback), fallback


def response_columns(
    columns: Mapping[str, list[Any]], policies: Mapping[int, MultiLabelPolicy]
) -> dict[str, list[Any]]:
    """Return decisions on several labels per row as the columns of a response.

    Parameters
    ----------
    columns : mapping of str to list
        Columns of the table of decisions.
    policies : mapping of int to MultiLabelPolicy
        The policies of the rows, by id.

    Returns
    -------
    dict of str to list
        `labels` has an object per row.
    """
    ids, codes = columns["policy_id"], columns["action"]
    names = [str(name) for name in next(iter(policies.values())).label_names]
    actions, fallback = action_matrix(columns["label_actions"], len(names))
    p = float_matrix(columns["probabilities"])
    rows = zip(actions.tolist(), fallback.tolist(), p.tolist(), strict=True)
    return {
        "id": columns["id"],
        "policy": ids,
        "action": [ROW_ACTIONS[code] for code in codes],
        "labels": [
            {name: _label(*one) for name, *one in zip(names, *row, strict=True)} for row in rows
        ],
        "expected_cost": columns["expected_cost"],
        "reason": [_row_reason(policies[k], code) for k, code in zip(ids, codes, strict=True)],
        "review_value": columns["review_value"],
    }


def _label(action: int, fallback: int, probability: float) -> dict[str, Any]:
    """Return the decision on one label."""
    without = ACTIONS[fallback] if action == REVIEW else None
    return {"action": ACTIONS[action], "probability": probability, "fallback_action": without}


def _row_reason(policy: MultiLabelPolicy, action: int) -> str:
    """Return why the action of a row was taken."""
    decided = REASONS[0] if policy.f_beta is None else REASONS[1]
    return decided if action == AUTOMATIC else REASONS[2]


def flat_columns(columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Return a response as columns of one type each, as a file of decisions has them."""
    labels = columns["labels"]
    names = list(labels[0])
    return {
        **{name: values for name, values in columns.items() if name != "labels"},
        **{f"decision_{name}": [row[name]["action"] for row in labels] for name in names},
        **{f"probability_{name}": [row[name]["probability"] for row in labels] for name in names},
    }


def describe_row(
    item: ReviewItem, policy: MultiLabelPolicy, *, blind: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the labels of a row for its reviewer, those that matter most first, and its decision.

    Labels under review come first, then by the cost that their decision is expected to have. A
    blind reviewer sees them in the order of the policy and answers all of them.

    Parameters
    ----------
    item : ReviewItem
        The row.
    policy : MultiLabelPolicy
        The policy that decided it.
    blind : bool
        Whether predictions are hidden.

    Returns
    -------
    labels : dict
        `is_required` says whether the reviewer has to answer: all labels of an audited row, so that
        metrics represent every label, and otherwise those under review.
    predicted : dict
        The action of the row, and why it was taken.
    """
    names = [str(name) for name in policy.label_names]
    if blind:
        return {"labels": [{"name": name, "is_required": True} for name in names]}, {}
    assert item.label_actions is not None
    [actions], [fallback] = action_matrix([item.label_actions], len(names))
    p = item.probabilities.astype(np.float64)
    costs = policy.costs.arrays.of_errors(p, fallback == 1)
    order = np.lexsort((np.arange(len(names)), -costs, actions != REVIEW)).tolist()
    labels = [
        {
            "name": names[k],
            "is_required": item.is_audit or bool(actions[k] == REVIEW),
            **_label(int(actions[k]), int(fallback[k]), float(p[k])),
            "expected_cost": float(costs[k]),
        }
        for k in order
    ]
    reason = _row_reason(policy, item.action)
    return {"labels": labels}, {"action": ROW_ACTIONS[item.action], "reason": reason}
