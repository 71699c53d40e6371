"""From the rows of a request to decisions: what is kept of them, and what is answered."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.decide import Policy
from dubito.decide.policy.decide import REASONS
from dubito.errors import BadTypeError, BadValueError
from dubito.kernels.blocks import kept_threads
from dubito.kernels.rows import NARROW
from dubito.outputs import Logits
from dubito.serve.asking import AskedRows
from dubito.serve.matrices import told
from dubito.serve.settings import Settings
from dubito.serve.store import NewDecisions


@final
@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """The rows of a request, the policy in force when it came, and the key that it named."""

    asked: AskedRows
    policy_id: int
    policy: Policy
    key: str | None = None
    key_digest: bytes = b""

    @property
    def kind(self) -> Hashable | None:
        """What it has in common with those it may be decided with, None if it may with none.

        A row gets the same answer to the last digit, whatever is decided with it: so kernels for
        few classes go together, which treat each row by itself, and nothing that needs a matrix
        product, whose rounding depends on the number of rows.
        """
        policy, batch = self.policy, self.asked.batch
        is_plain = policy.ood is None and policy.risk is None and policy.costs.rate is None
        is_bare = batch.features is None and batch.row_costs is None
        if is_plain and is_bare and policy.costs.n_classes <= NARROW:
            return self.policy_id, type(self.asked.outputs)
        return None


def decide_together(
    questions: Sequence[Question], settings: Settings, drawing: np.random.Generator
) -> list[NewDecisions]:
    """Decide the rows of several requests of one kind at once."""
    first = questions[0]
    asked = AskedRows.joined([one.asked for one in questions])
    whole = _decide_rows(asked, first.policy_id, first.policy, settings, drawing)
    ends = np.cumsum([len(one.asked.ids) for one in questions]).tolist()
    return [
        whole.part(slice(end - len(one.asked.ids), end), one.key, one.key_digest)
        for one, end in zip(questions, ends, strict=True)
    ]


def _decide_rows(
    asked: AskedRows,
    policy_id: int,
    policy: Policy,
    settings: Settings,
    drawing: np.random.Generator,
    key: str | None = None,
    key_digest: bytes = b"",
) -> NewDecisions:
    """Decide rows, and draw at random those that are looked at whatever was decided."""
    row_costs = asked.batch.row_costs
    sizes = None if policy.costs.rate is None else row_costs
    with kept_threads():
        try:
            decided = policy.decide(asked.outputs, asked.batch.features, sizes)
        except (BadTypeError, BadValueError) as error:
            raise told(error, error.argument, error.fix) from error
    return NewDecisions.of(
        policy_id,
        asked.ids,
        decided,
        decided.probabilities,
        asked.outputs.array,
        digests=asked.digests,
        is_logits=isinstance(asked.outputs, Logits),
        is_audit=drawing.random(len(decided)) < settings.audit_share,
        audit_share=settings.audit_share,
        row_costs=row_costs,
        links=asked.links,
        features=asked.batch.features,
        key=key,
        key_digest=key_digest,
    )


def answer_columns(
    new: NewDecisions,
    found: Mapping[str, Mapping[str, Any]],
    policies: Callable[[int], Policy],
) -> dict[str, list[Any]]:
    """Return the answer, column by column: of ids decided before, what was answered then."""
    columns = new.columns
    costs = policies(columns["policy_id"][0]).costs
    classes = costs.classes or range(costs.n_classes)
    answer = {
        "id": columns["id"],
        "policy": columns["policy_id"],
        "action": [costs.actions[code] for code in columns["action"]],
        "class": [classes[code] for code in columns["class_"]],
        "probability": columns["probability"],
        "expected_cost": columns["expected_cost"],
        "reason": [REASONS[code] for code in columns["reason"]],
        "review_value": columns["review_value"],
    }
    if not found:
        return answer
    before = [answer_of(found[name], policies) if name in found else None for name in columns["id"]]
    return {
        name: [mine if one is None else one[name] for mine, one in zip(mines, before, strict=True)]
        for name, mines in answer.items()
    }


def answer_of(row: Mapping[str, Any], policies: Callable[[int], Policy]) -> dict[str, Any]:
    """Return a decision with names for numbers, those of the policy that decided it."""
    costs = policies(row["policy_id"]).costs
    return {
        "id": row["id"],
        "policy": row["policy_id"],
        "action": costs.actions[row["action"]],
        "class": row["class_"] if costs.classes is None else costs.classes[row["class_"]],
        "probability": row["probability"],
        "expected_cost": row["expected_cost"],
        "reason": REASONS[row["reason"]],
        "review_value": row["review_value"],
    }
