"""From calibrated probabilities to decisions: costs, the risk bound and the OOD gate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.data.labels import Labels
from dubito.decide.actions import LeastCosts, as_amounts, least_costs
from dubito.decide.costs import CostMatrix
from dubito.decide.priors import log_posteriors
from dubito.decide.realized import SAME, cost_in_class, is_wrong_of
from dubito.decide.reject import accepted_below
from dubito.outputs import ClassName, Logits, Probabilities, unchecked

REASONS = ("least expected cost", "asking costs less", "risk bound", "strange input")
LEAST_COST, ASKING_IS_CHEAPER, RISK_BOUND, STRANGE = range(4)
COLUMNS = ("action", "class_", "probability", "expected_cost", "reason", "worth")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """An action each row, by number, and what speaks for it.

    `class_` is the most probable class and `probability` its honest probability; `expected_cost` is
    that of the action. `reason` is a number of `REASONS`. `worth` is what knowing the truth would
    save, on average, over the best action without asking; of a strange input as if nothing but
    class frequencies were known. It is 0 for rows that nobody is asked about.
    """

    action: IntArray
    class_: IntArray
    probability: FloatArray
    expected_cost: FloatArray
    reason: IntArray
    worth: FloatArray
    actions: tuple[str, ...]
    classes: tuple[ClassName, ...]
    reject: int | None

    def __len__(self) -> int:
        return self.action.size

    @property
    def is_rejected(self) -> NDArray[np.bool_]:
        """Which rows are handed over to someone."""
        return np.asarray(self.action == (-1 if self.reject is None else self.reject))

    @property
    def review_order(self) -> IntArray:
        """The numbers of rows that are handed over, those first where a look is worth most."""
        rows = np.flatnonzero(self.is_rejected)
        return np.asarray(rows[np.argsort(-self.worth[rows], kind="stable")])

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the decisions as columns with names for numbers, as a table takes them."""
        return {
            "action": np.array(self.actions)[self.action],
            "class": np.array(self.classes)[self.class_],
            "probability": self.probability,
            "expected_cost": self.expected_cost,
            "reason": np.array(REASONS)[self.reason],
            "worth": self.worth,
        }

    def __str__(self) -> str:
        shares = np.bincount(self.action, minlength=len(self.actions)) / max(len(self), 1)
        taken = ", ".join(
            f"{name} {share:.1%}" for name, share in zip(self.actions, shares, strict=True)
        )
        whys = np.bincount(self.reason, minlength=len(REASONS))
        asked = ", ".join(
            f"{name} {count:,}"
            for name, count in zip(REASONS[1:], whys[1:], strict=True)
            if count > 0
        )
        text = f"{len(self):,} rows: {taken}."
        return f"{text} Handed over because of: {asked}." if asked else text

    @classmethod
    def joined(cls, parts: Iterable[Decisions], n_rows: int) -> Decisions:
        """Return decisions of several blocks of rows as one, each written down as it comes."""
        stream = iter(parts)
        first = next(stream)
        columns: dict[str, Any] = {
            name: np.empty(n_rows, getattr(first, name).dtype) for name in COLUMNS
        }
        low = 0
        for part in chain([first], stream):
            for name, column in columns.items():
                column[low : low + len(part)] = getattr(part, name)
            low += len(part)
        return replace(first, **columns)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """Costs over the classes of the outputs, how common these are, and what risk is allowed.

    A row is handed over where the chance that its action is right is at most `threshold`.
    """

    costs: CostMatrix
    frequencies: FloatArray
    threshold: float | None = None

    def decide(
        self, outputs: Logits | Probabilities, is_strange: BoolArray | None, amounts: Any = None
    ) -> Decisions:
        """Decide rows whose probabilities are honest."""
        costs = self.costs
        sizes = as_amounts(amounts, costs, outputs.n_rows, "Policy.decide")
        found = least_costs(outputs, costs, amounts)
        action, expected = found.action, found.cost
        reason = np.where(action == costs.reject, ASKING_IS_CHEAPER, LEAST_COST).astype(np.int64)
        if self.threshold is not None:
            is_open = np.flatnonzero(reason == LEAST_COST)
            shares, some = shares_of(outputs, is_open), of_rows(sizes, is_open)
            wrong = wrong_chances(shares, action[is_open], costs, some)
            reason[is_open[wrong >= accepted_below(self.threshold)]] = RISK_BOUND
        if is_strange is not None:
            reason[is_strange] = STRANGE
        handed = np.flatnonzero((reason == RISK_BOUND) | (reason == STRANGE))
        if handed.size:
            assert costs.reject is not None
            action[handed] = costs.reject
            shares, some = shares_of(outputs, handed), of_rows(sizes, handed)
            expected[handed] = shares @ costs.array[costs.reject]
            if costs.rate is not None:
                expected[handed] += some * (shares @ costs.rate[costs.reject])
        return Decisions(
            action=action,
            class_=found.class_,
            probability=found.probability,
            expected_cost=expected,
            reason=reason,
            worth=self.worth(outputs, found, reason, sizes),
            actions=costs.actions,
            classes=costs.classes or tuple(range(costs.n_classes)),
            reject=costs.reject,
        )

    def worth(
        self,
        outputs: Logits | Probabilities,
        found: LeastCosts,
        reason: IntArray,
        sizes: FloatArray,
    ) -> FloatArray:
        """Return what knowing the truth saves over the best action without asking."""
        is_asked = found.action == self.costs.reject
        if _is_deciding_cheapest(self.costs):
            result = np.where(is_asked, found.excess, 0.0)
        else:
            asked = np.flatnonzero(is_asked)
            result = np.zeros(is_asked.size)
            result[asked] = self.savings(outputs.take(asked), of_rows(sizes, asked))
        strange = np.flatnonzero(reason == STRANGE)
        if strange.size:
            # In the precision of the outputs, so that no other kernels are compiled for it.
            row = self.frequencies.astype(outputs.array.dtype)
            prior = np.broadcast_to(row, (strange.size, row.size))
            nothing = unchecked(Probabilities, {"array": prior, "classes": outputs.classes})
            result[strange] = self.savings(nothing, of_rows(sizes, strange))
        return result

    def savings(self, outputs: Logits | Probabilities, sizes: FloatArray) -> FloatArray:
        """Return what the best action that decides costs above the best for someone who knows."""
        return _known_savings(outputs, _without_reject(self.costs), sizes)


def _known_savings(
    outputs: Logits | Probabilities, costs: CostMatrix, sizes: FloatArray
) -> FloatArray:
    """Return what the best action costs on average above the best for someone who knows."""
    if costs.rate is None:
        return least_costs(outputs, _regrets_of(costs)).cost
    shares = shares_of(outputs, slice(None))
    known = [shares[:, k] * cost_in_class(costs, k, sizes) for k in range(costs.n_classes)]
    paid = least_costs(outputs, costs, sizes).cost
    return np.asarray(np.maximum(paid - np.sum(known, axis=0), 0.0))


@lru_cache(maxsize=16)  # a service asks again for each row
def _is_deciding_cheapest(costs: CostMatrix) -> bool:
    """Whether in each class some other action costs as little, whatever the amount."""
    others = _without_reject(costs)
    if costs.rate is not None or costs.reject is None:
        return False
    return bool((costs.array[costs.reject] >= others.array.min(axis=0)).all())


@lru_cache(maxsize=16)
def _regrets_of(costs: CostMatrix) -> CostMatrix:
    """Return what each action costs above the best one of each class."""
    regrets = costs.array - costs.array.min(axis=0)
    return CostMatrix(regrets, costs.actions, costs.classes)


@lru_cache(maxsize=16)
def _without_reject(costs: CostMatrix) -> CostMatrix:
    """Return the costs of all actions that decide a row, rather than hand it over."""
    if costs.reject is None:
        return costs
    kept = [number for number in range(costs.n_actions) if number != costs.reject]
    rate = None if costs.rate is None else costs.rate[kept]
    names = [costs.actions[number] for number in kept]
    return CostMatrix(costs.array[kept], names, costs.classes, rate=rate)


def shares_of(outputs: Logits | Probabilities, rows: IntArray | slice) -> FloatArray:
    """Return the probabilities of some rows in float64."""
    return np.exp(log_posteriors(outputs.take(rows)))


def of_rows(sizes: FloatArray, rows: IntArray) -> FloatArray:
    """Return the amounts of some rows, none where there are none."""
    return sizes[rows] if sizes.size else sizes


def wrong_shares(
    labels: Labels, action: IntArray, costs: CostMatrix, sizes: FloatArray
) -> FloatArray:
    """Return 1 where another action would have cost less and 0 elsewhere.

    Where labels are probabilities it is the probability of the classes for which that is so.
    """
    if labels.probabilities is None:
        return is_wrong_of(action, costs, labels, sizes).astype(np.float64)
    return wrong_chances(labels.probabilities, action, costs, sizes)


def wrong_chances(
    shares: FloatArray, action: IntArray, costs: CostMatrix, sizes: FloatArray
) -> FloatArray:
    """Return the chance that another action would have cost less, had the truth been known.

    Where each class has an action of its own that costs least, it is the chance of an error.
    """
    others = _without_reject(costs)
    if others.rate is None:
        cheapest = others.array.min(axis=0)
        is_wrong = costs.array > cheapest + SAME * np.abs(cheapest)
        return np.asarray((shares * is_wrong[action]).sum(axis=1))
    assert costs.rate is not None
    result = np.zeros(action.size)
    for k in range(costs.n_classes):
        paid = costs.array[action, k] + sizes * costs.rate[action, k]
        cheapest = np.asarray(cost_in_class(others, k, sizes))
        result += shares[:, k] * (paid > cheapest + SAME * np.abs(cheapest))
    return result
