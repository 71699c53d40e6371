"""Cascades: a cheap model first, a better one where its answer is worth the price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Annotated, Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    RandomState,
    as_array,
    as_count,
    as_floats,
    as_fraction,
    as_number,
    draw_seed,
    require_dimensions,
    require_everywhere,
    require_rows,
)
from dubito.data.batch import Batch, make_batch
from dubito.data.shards import ArrayShards
from dubito.decide.actions import ActionInterval
from dubito.decide.policy.decide import BaseActions
from dubito.decide.policy.document import PROVENANCE, BasePolicy, provenance_of
from dubito.decide.policy.report import LEVEL, BaseReport, cost_difference, percents, proportion
from dubito.decide.tiers import N_FOLDS, Chains, CrossFit, Held, TierModel
from dubito.decide.value import MeanInterval
from dubito.errors import BadTypeError, BadValueError
from dubito.formatting import HTMLTable, align_table, join_words, percent, plain, quantity
from dubito.measure.intervals import Interval
from dubito.measure.state import labeled_batch
from dubito.outputs import BaseOutputs, TopLabel
from dubito.serialization.array_fields import array
from dubito.serialization.fields import (
    Entry,
    Omittable,
    class_names,
    list_of,
    number,
    optional,
    text,
)
from dubito.serialization.objects import record_of, stores_fields

FIT, DECIDE = "Cascade.fit", "Cascade.decide"
MAX_ODDS = 20.0  # log odds of the confidences among which thresholds are found
MAX_ROWS = 5000  # that chains are compared on
MIN_ROWS = 20
HIGHEST_COST = 1e12
N_GRID = 2001  # of them
BLOCK_ROWS = 4096
CALL, ANSWER = "call", "answer"
ABSTAIN, REVIEW = "abstain", "review"
REJECTING = {ABSTAIN: "abstaining on all rows", REVIEW: "reviewing all rows"}

_cost = number(0, HIGHEST_COST)
_per_tier = array("tiers", low=0, high=HIGHEST_COST, is_empty_allowed=True)


@final
@stores_fields
@dataclass(frozen=True, slots=True)
class CascadeReport(BaseReport):
    """Results of a cascade on rows that it was not fitted on, with 95 % intervals.

    Costs are means per row and include calls. Tiers and thresholds are fitted to the other folds,
    for the cascade as for the single model that it is compared with, and the models are chosen by
    the costs of the other folds, without nesting: fits behind these costs include this fold.

    Attributes
    ----------
    evaluation : str
        How the rows were held out.
    n_rows : int
        The number of rows.
    cost : Interval
        The realized cost.
    single : str
        The best single model, which may reject rows too.
    single_cost : float
        Its cost.
    saved : Interval
        What the cascade saves over it.
    reject_cost : float or None
        The cost of rejecting all rows without any call, None if rows cannot be rejected.
    reject_saved : Interval or None
        What the cascade saves over that.
    single_costs : dict
        The cost of each single model.
    calls, answers : dict
        The fraction of rows for which each tier of the cascade is called, and answers.
    coverage : Interval
        The fraction of rows that are answered.
    accuracy : Interval or None
        Accuracy of the answers, None without any.
    n_folds : int
        The number of folds.
    n_other_folds : int
        In how many folds other tiers were chosen than those of the cascade.
    reject_action : str
        The cheapest way to reject a row, "abstain" or "review"; empty if there is none.
    """

    cost: Interval
    single: str
    single_cost: float
    saved: Interval
    reject_cost: float | None
    reject_saved: Interval | None
    single_costs: dict[str, float]
    calls: dict[str, float]
    answers: dict[str, float]
    coverage: Interval
    accuracy: Interval | None
    n_folds: int
    n_other_folds: int
    reject_action: Annotated[str, Omittable(text)] = ""  # not in older files

    @classmethod
    def of(
        cls, held: Held, rows: _Rows, fold_of: IntArray, seed: int, reject_action: str = ""
    ) -> CascadeReport:
        """Return the figures of held-out rows, each by the chain that the other folds choose.

        Parameters
        ----------
        held : Held
            Costs and outcomes of the held-out rows under every chain of models.
        rows : object
            The names of the models, and which answers are correct.
        fold_of : array of int of shape (n_rows,)
            The fold of each row.
        seed : int
            Seed of the bootstrap.
        reject_action : str, default ""
            The cheapest way to reject a row, if there is one: "abstain" or "review".

        Returns
        -------
        CascadeReport
            The figures of the cascade and of what it is compared with.
        """
        n_rows, names = fold_of.size, rows.names
        n_folds = int(fold_of.max()) + 1
        others = [fold_of != fold for fold in range(n_folds)]
        by_fold = np.array([held.best(rows) for rows in others])
        single_by_fold = np.array([held.best(rows, single=True) for rows in others])
        chosen, each = by_fold[fold_of], np.arange(n_rows)
        cost, alone = held.cost[chosen, each], held.cost[single_by_fold[fold_of], each]
        columns = [cost, alone - cost]
        if held.chains[0] == ():
            columns.append(held.cost[0] - cost)
        ones = np.ones(n_rows)
        means = MeanInterval.of(LEVEL, seed, 1000, FIT).of_columns(columns, ones)
        n_called, is_answered = held.n_called[chosen, each], held.is_answered[chosen, each]
        calls, answers = np.zeros((2, len(names)))
        is_correct = np.zeros(n_rows)
        for k in np.unique(chosen):
            for i, tier in enumerate(held.chains[k]):
                is_last = (chosen == k) & (n_called == i + 1) & is_answered
                calls[tier] += np.count_nonzero((chosen == k) & (n_called > i))
                answers[tier] += np.count_nonzero(is_last)
                is_correct[is_last] = rows.correct[is_last, tier]
        singles = {chain[0]: k for k, chain in enumerate(held.chains) if len(chain) == 1}
        some = ones[is_answered]
        return cls(
            evaluation=f"cross-fitted in {n_folds} folds",
            n_rows=n_rows,
            cost=means[0],
            single=names[held.chains[held.best(single=True)][0]],
            single_cost=float(alone.mean()),
            saved=means[1],
            reject_cost=float(held.cost[0].mean()) if len(means) > 2 else None,
            reject_saved=means[2] if len(means) > 2 else None,
            single_costs={names[tier]: float(held.cost[k].mean()) for tier, k in singles.items()},
            calls=dict(zip(names, (calls / n_rows).tolist(), strict=True)),
            answers=dict(zip(names, (answers / n_rows).tolist(), strict=True)),
            coverage=proportion(is_answered, ones, ones),
            accuracy=proportion(is_correct[is_answered], some, some) if some.size else None,
            n_folds=n_folds,
            n_other_folds=int((by_fold != held.best()).sum()),
            reject_action=reject_action,
        )

    @property
    def lines(self) -> list[str]:
        """The figures as sentences."""
        singly = f"the best single model ({self.single}, {self.single_cost:.4g})"
        lines = [f"Mean cost per row: {self.cost}, {cost_difference(self.saved, singly)}."]
        if self.reject_cost is not None and self.reject_saved is not None:
            rejecting = REJECTING.get(self.reject_action, "rejecting all rows")
            against = f"{rejecting} ({self.reject_cost:.4g})"
            compared = cost_difference(self.reject_saved, against)
            is_same = self.reject_saved.low <= 0 <= self.reject_saved.high
            sentence = f"{against.capitalize()} is not significantly different: the cascade saves "
            sentence += f"{self.reject_saved:+}."
            is_equal = compared.startswith("the same")
            lines.append(sentence if is_same and not is_equal else f"It is {compared}.")
            if isclose(self.single_cost, self.reject_cost):  # the single model is never called
                nothing = "No model alone is worth a call."
                lines = [f"Mean cost per row: {self.cost}, {compared}. {nothing}"]
        found = f"Answered: {percent(self.coverage.value)} of rows"
        if self.accuracy is not None:
            found += f", of which {percents(self.accuracy, 'are correct')}"
        head, dot, few = self._rows_line.partition("parentheses.")
        if self.n_other_folds:
            which = f"{self.n_other_folds} of {self.n_folds} folds chose other tiers"
            dot += f" {which}, which these figures include."
        return [*lines, f"{found}.", f"{head}{dot}{few}"]


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CascadeDecisions(BaseActions):
    """What to do next with each row: call a tier, take the answer of the last one, or reject.

    Attributes
    ----------
    action : array of int
        Index into `actions`.
    expected_cost : array of float, rows x actions
        The expected further cost of each action; infinite where it is not possible, such as the
        answer of a tier that has not been called. What was paid for calls is not included.
    p_correct : array of float
        The probability that the last tier called is correct, NaN before the first call.
    actions : tuple of str
        "call NAME" and "answer NAME" for each tier, and "abstain" and "review" where allowed.
    """

    action: IntArray
    expected_cost: FloatArray
    p_correct: FloatArray
    actions: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """The action of each row by name."""
        return [self.actions[k] for k in self.action.tolist()]

    def rows_for(self, action: str) -> IntArray:
        """Return the rows with an action, such as "call large".

        Parameters
        ----------
        action : str
            One of `actions`.

        Returns
        -------
        array of int
            Row indices, ascending.
        """
        if action not in self.actions:
            rule, fix = f"must be one of {', '.join(self.actions)}", f"Pass {self.actions[0]!r}"
            raise BadValueError("action", "rows_for", rule, repr(action), fix)
        return np.flatnonzero(self.action == self.actions.index(action))

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the decisions as the columns of a table.

        Returns
        -------
        dict of str to array
            `action`, `p_correct` (NaN before the first call) and `expected_cost`, one entry per
            row.
        """
        return {
            "action": np.array(self.names, dtype=np.str_),
            "p_correct": self.p_correct,
            "expected_cost": self.expected_cost[np.arange(len(self)), self.action],
        }

    def __str__(self) -> str:
        if len(self) == 1:
            pairs = zip(self.actions, self.expected_cost[0].tolist(), strict=True)
            costs = ", ".join(f"{name} {cost:.4g}" for name, cost in pairs if np.isfinite(cost))
            return f"{self.names[0].capitalize()}. Expected cost from here: {costs}."
        counts = np.bincount(self.action, minlength=len(self.actions))
        parts = [f"{name} {n:,}" for name, n in zip(self.actions, counts, strict=True) if n]
        return f"{quantity(len(self))}: {', '.join(parts)}."


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class Cascade(BasePolicy):
    """Models in order, from cheap to good: which to call, when to stop, when to reject.

    Made by `Cascade.fit` or `Cascade.load`. Calls cost money and time, wrong answers cost
    `error_cost`, and a row may be left without an answer or sent to a person. A row starts at the
    first tier. From the scores that have been paid for follow the expected costs of taking the
    last tier's answer, of rejecting, and of calling the next tier, and the lowest is chosen.

    Attributes
    ----------
    models : tuple of str
        All models of the fit.
    tiers : tuple of str
        Those that are called, in order; one, or none if rejecting all rows costs least.
    call_costs, latency_costs : array of float
        The mean cost of calling each tier, and of waiting for it.
    error_cost : float
        The cost of a wrong answer.
    abstain_cost : float or None
        The cost of no answer.
    review_cost, review_error_rate : float or None, float
        The price of a person's answer, and how often it is wrong.
    tier_model : TierModel or None
        The calibrated scores of the tiers.
    report : CascadeReport
        Costs, calls and accuracy on rows that the cascade did not learn from.
    provenance : dict
        The version of dubito, the time, a fingerprint of the rows and the random seed.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito import Cascade, TopLabel
    >>> rng = np.random.default_rng(0)
    >>> skill = rng.normal(size=500)
    >>> def model(offset, noise):
    ...     odds = 2 * skill + offset
    ...     confidence = 1 / (1 + np.exp(-odds - noise * rng.normal(size=500)))
    ...     return TopLabel(confidence, rng.random(500) < 1 / (1 + np.exp(-odds)))
    >>> cascade = Cascade.fit(
    ...     {"small": model(0, 0.3), "large": model(3, 1)},
    ...     costs={"small": 0.001, "large": 0.05},
    ...     abstain_cost=0.5,
    ... )
    >>> cascade.tiers
    ('small', 'large')
    >>> cascade.decide({"small": [0.99, 0.4], "large": None}).names
    ['answer small', 'call large']
    >>> cascade.decide({"small": 0.4, "large": 0.9}).names
    ['answer large']
    """

    provenance: Annotated[dict[str, Any], PROVENANCE]
    report: Annotated[CascadeReport, record_of(CascadeReport)]
    models: Annotated[tuple[str, ...], class_names()]
    tiers: Annotated[tuple[str, ...], list_of(text)]
    call_costs: Annotated[FloatArray, _per_tier]
    latency_costs: Annotated[FloatArray, _per_tier]
    error_cost: Annotated[float, _cost]
    abstain_cost: Annotated[float | None, optional(_cost)]
    review_cost: Annotated[float | None, optional(_cost)]
    review_error_rate: Annotated[float, number(0, 1)]
    tier_model: Annotated[TierModel | None, optional(record_of(TierModel))]

    @classmethod
    def fit(
        cls,
        outputs: Any,
        y: Any = None,
        *,
        costs: Any,
        error_cost: float = 1.0,
        abstain_cost: float | None = None,
        review_cost: float | None = None,
        review_error_rate: float = 0.0,
        latencies: Any = None,
        cost_per_second: float = 0.0,
        max_calls: int = 3,
        random_state: RandomState = 0,
    ) -> Cascade:
        """Choose tiers and thresholds, and report their cost on held-out rows, cross-fitted.

        Parameters
        ----------
        outputs : dict of str to TopLabel, Logits or Probabilities, or a list of these
            The outputs of each model on the same rows, by name. `TopLabel` where only the
            confidence and whether the answer was correct are known, as for language models.
        y : array of shape (n_rows,), optional
            Classes, for models with class probabilities.
        costs : dict or list
            The cost of calling each model: a number, or an array with one entry per row.
        error_cost : float, default 1
            The cost of a wrong answer.
        abstain_cost : float, optional
            The cost of no answer. Without it and without `review_cost`, the last tier always
            answers.
        review_cost : float, optional
            The price of asking a person instead of answering.
        review_error_rate : float, default 0
            How often the person's answer is wrong.
        latencies : dict or list, optional
            The seconds that a call of each model takes, as `costs`.
        cost_per_second : float, default 0
            The cost of waiting one second.
        max_calls : int, default 3
            The largest number of tiers.
        random_state : int, RandomState or None, default 0
            Determines the folds.

        Returns
        -------
        Cascade
        """
        prices = _Prices.checked(error_cost, abstain_cost, review_cost, review_error_rate)
        fix = "Pass cost_per_second=0"
        per_second = as_number(cost_per_second, "cost_per_second", FIT, 0.0, fix=fix)
        as_count(max_calls, "max_calls", FIT)
        if per_second and latencies is None:
            rule, fix = "must be 0 without latencies", "Pass the seconds of each call as latencies"
            raise BadValueError("cost_per_second", FIT, rule, f"{cost_per_second:g}", fix)
        seed = draw_seed(random_state, FIT)
        rows = _Rows.of(outputs, y, costs, latencies, per_second)
        rng = np.random.default_rng(seed)
        sample = rows.take(np.sort(rng.permutation(len(rows.correct))[:MAX_ROWS]))
        fold_of = np.arange(len(sample.correct)) % N_FOLDS
        rng.shuffle(fold_of)
        paid = sample.call_costs + sample.latency_costs
        settings = paid, prices.error_cost, prices.fallback, fold_of
        held = CrossFit(sample.scores, sample.correct, *settings).search(max_calls)
        tiers = list(held.chains[held.best()])
        model = TierModel.fit(rows.scores, rows.correct).of_tiers(tiers) if tiers else None
        method = "Platt scaling, shrunk towards it from all tiers' scores"
        return cls(
            models=rows.names,
            tiers=tuple(rows.names[k] for k in tiers),
            call_costs=rows.call_costs[:, tiers].mean(axis=0),
            latency_costs=rows.latency_costs[:, tiers].mean(axis=0),
            **prices._asdict(),
            tier_model=model,
            report=CascadeReport.of(held, sample, fold_of, seed, prices.cheapest_reject),
            provenance=provenance_of(ArrayShards(rows.batch), method, seed),
        )

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of the actions."""
        each = [f"{what} {name}" for what in (CALL, ANSWER) for name in self.tiers]
        return (*each, *self._paid.rejects)

    @property
    def costs(self) -> dict[str, float]:
        """The costs of a wrong answer, and of each way to reject a row, errors included."""
        return {"wrong answer": self.error_cost, **self._paid.rejects}

    @property
    def _paid(self) -> _Prices:
        """The prices of wrong answers, no answers and reviews."""
        return _Prices(*(getattr(self, name) for name in _Prices._fields))

    def decide(self, outputs: Any = None, *, costs: Any = None) -> CascadeDecisions:
        """Return what to do next with each row, from what has been called so far.

        Parameters
        ----------
        outputs : dict of str to outputs, optional
            What is known, by model: confidences, NaN where the model has not been called, or
            `Logits` or `Probabilities` of all rows. Models that are left out or None have not been
            called. A single number is one row.
        costs : dict, optional
            The costs of calls where they differ from row to row, by model. Those of the fit by
            default.

        Returns
        -------
        CascadeDecisions
        """
        scores = self._known_scores(outputs)
        prices = self._prices(costs, None if scores is None else len(scores))
        n_rows = len(prices)
        scores = np.full(prices.shape, np.nan) if scores is None else scores
        n_tiers = len(self.tiers)
        expected = np.full((n_rows, len(self.actions)), np.inf)
        expected[:, 2 * n_tiers :] = list(self._paid.rejects.values())
        p_correct = np.full(n_rows, np.nan)
        if self.tier_model is not None:
            x = self.tier_model.log_odds(scores)
            patterns, which = np.unique(~np.isnan(scores), axis=0, return_inverse=True)
            for k, pattern in enumerate(patterns):
                known = np.flatnonzero(pattern)  # the same tiers have been called
                last = int(known.max(initial=-1))
                chain = np.r_[known, last + 1 : n_tiers][np.newaxis]
                run = Chains(self.tier_model, chain, self.error_cost, self._paid.fallback)
                rows = np.flatnonzero(which.ravel() == k)
                for start in range(0, rows.size, BLOCK_ROWS):
                    some = rows[start : start + BLOCK_ROWS]
                    known_x = x[np.ix_(some, known)][np.newaxis, :, np.newaxis]
                    answer, call = run.costs(known_x, prices[np.ix_(some, chain[0])][np.newaxis])
                    if known.size:
                        expected[some, n_tiers + last] = answer[0, :, 0]
                        p_correct[some] = run.chance(known_x, known.size)[0, :, 0]
                    if call is not None:
                        expected[some, last + 1] = call[0, :, 0]
        # At equal cost the reject action wins.
        order = np.r_[2 * n_tiers : expected.shape[1], 0 : 2 * n_tiers]
        action = order[expected[:, order].argmin(axis=1)]
        return CascadeDecisions(action, expected, p_correct, self.actions)

    def first_p_correct(self, confidence: Any) -> FloatArray:
        """Return the probability that the first tier is correct, from its confidence alone.

        Parameters
        ----------
        confidence : array of shape (n_rows,)
            Confidence of the first tier.

        Returns
        -------
        array of shape (n_rows,)
            NaN if no model is called.
        """
        if self.tier_model is None:
            return np.full(len(confidence), np.nan)
        first = self.tier_model.of_tiers((0,))
        scores = _scores_so_far(confidence, self.tiers[0])[:, np.newaxis]
        return first.chances(first.log_odds(scores))[:, 0]

    def _known_scores(self, outputs: Any) -> FloatArray | None:
        """Return the scores of the tiers as log odds, NaN where they have not been called.

        None if nothing is known of any row.
        """
        given = self._by_model(outputs, "outputs", "confidences").items()
        columns = {name: _scores_so_far(one, name) for name, one in given if one is not None}
        n_rows = {len(one) for one in columns.values()}
        if len(n_rows) > 1:
            sizes = ", ".join(f"{name} {len(one)}" for name, one in columns.items())
            rule, fix = "must have the same rows for each model", "Use NaN where it was not called"
            raise BadValueError("outputs", DECIDE, rule, sizes, fix)
        if not n_rows:
            return None
        n = n_rows.pop()
        blank = np.full(n, np.nan)
        return np.column_stack([np.empty((n, 0)), *(columns.get(t, blank) for t in self.tiers)])

    def _by_model(self, given: Any, argument: str, example: str) -> Mapping[Any, Any]:
        """Return what is given by model, nothing for None."""
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            fix = f"Pass {{{self.models[0]!r}: {example}}}"
            got = type(given).__name__
            raise BadTypeError(argument, DECIDE, "must be a dict by model", got, fix)
        for name in given:
            if name not in self.models:
                rule = f"must be by model: {', '.join(self.models)}"
                raise BadValueError(argument, DECIDE, rule, repr(name), "Use the names of the fit")
        return given

    def _prices(self, costs: Any, n_rows: int | None) -> FloatArray:
        """Return the cost of calling and waiting for each tier, rows x tiers."""
        given = self._by_model(costs, "costs", "0.01")
        if n_rows is None:
            n_rows = next((len(one) for one in given.values() if np.ndim(one)), 1)
        columns = [
            _as_amounts(given.get(name, price), f"costs[{name!r}]", DECIDE, n_rows)
            for name, price in zip(self.tiers, self.call_costs.tolist(), strict=True)
        ]
        return np.column_stack([np.empty((n_rows, 0)), *columns]) + self.latency_costs

    @property
    def thresholds(self) -> tuple[ActionInterval, ...]:
        """What follows from which confidence of the first tier, from low to high."""
        if not self.tiers:
            return ()
        confidence = np.r_[0.0, 1 / (1 + np.exp(-np.linspace(-MAX_ODDS, MAX_ODDS, N_GRID))), 1.0]
        action = self.decide({self.tiers[0]: confidence}).action
        ends = np.flatnonzero(np.diff(action))
        middle = (confidence[ends] + confidence[ends + 1]) / 2
        middle[ends == 0], middle[ends == N_GRID] = 0.0, 1.0  # an exact 0 or 1 alone
        cuts = [0.0, *middle.tolist(), 1.0]
        names = [self.actions[k] for k in action[np.r_[0, ends + 1]].tolist()]
        return tuple(map(ActionInterval, names, cuts[:-1], cuts[1:]))

    @classmethod
    def _from_values(cls, values: dict[str, Any], entry: Entry) -> Cascade:
        names, tiers = values["models"], tuple(values["tiers"])
        if names is None or not all(isinstance(one, str) for one in names):
            raise entry.at("models").error("a list of strings", "another")
        if len(set(tiers)) != len(tiers) or not set(tiers) <= set(names):
            raise entry.at("tiers").error("distinct names of models", f"{tiers}")
        model = values["tier_model"]
        if (0 if model is None else model.slope.size) != len(tiers):
            raise entry.at("tier_model").error("of all tiers, and None without tiers", "another")
        if not tiers and values["abstain_cost"] is None and values["review_cost"] is None:
            raise entry.at("tiers").error("must not be empty if rows cannot be rejected", "none")
        return cls(**{**values, "tiers": tiers})

    def __repr__(self) -> str:
        return f"Cascade({' -> '.join(self.tiers) or next(iter(self._paid.rejects))})"

    @property
    def rule_lines(self) -> list[str]:
        summary, *parts = self._rule_parts()
        if not parts:
            return [summary]
        table, thresholds = parts
        return [
            summary,
            *(f"  {one}" for one in align_table([table.head, *table.rows])),
            thresholds,
        ]

    def _rule_parts(self) -> list[Any]:
        """Return what is done, the price and use of each tier, and thresholds of the first."""
        reject = self._paid.cheapest_reject
        if not self.tiers:
            return [f"Call no model: {reject} for all rows."]
        first, *others = self.tiers
        steps = [f"Call {first}", *(f"then {name} where that pays" for name in others)]
        steps += [f"or {reject}"] if reject else []
        rows = []
        for k, name in enumerate(self.tiers):
            price = plain(float(self.call_costs[k] + self.latency_costs[k]))
            called, answers = self.report.calls.get(name), self.report.answers.get(name)
            rows.append((name, price, percent(called), percent(answers)))
        found = [f"{one.action} {_between(one.low, one.high)}" for one in self.thresholds]
        return [
            f"{', '.join(steps)}.",
            HTMLTable(("tier", "cost per call", "called", "answers"), rows),
            f"By the confidence of {first}: {join_words(found)}.",
        ]

    def origin_lines(self) -> list[str]:
        return BasePolicy.origin_lines(self)[1:]  # the scores of tiers are calibrated in one way


def _between(low: float, high: float) -> str:
    """Return a range of confidences.

    >>> _between(0, 0.5), _between(0.5, 0.9), _between(0, 1), _between(1, 1)
    ('below 0.5', 'up to 0.9', 'always', 'at 1')
    """
    if low == high:
        return f"at {low:g}"
    if low <= 0 and high >= 1:
        return "always"
    if low <= 0:
        return f"below {high:.3g}"
    return f"above {low:.3g}" if high >= 1 else f"up to {high:.3g}"


class _Prices(NamedTuple):
    """What a wrong answer, no answer and a review cost, and how often a review is wrong."""

    error_cost: float
    abstain_cost: float | None
    review_cost: float | None
    review_error_rate: float

    @classmethod
    def checked(cls, error_cost: Any, abstain_cost: Any, review_cost: Any, rate: Any) -> _Prices:
        """Check the arguments of `Cascade.fit`."""
        error = as_number(error_cost, "error_cost", FIT, 0.0, fix="Pass error_cost=1", is_open=True)
        abstain, review = (
            None if one is None else as_number(one, name, FIT, 0.0, fix=f"Pass {name}=0.2")
            for name, one in (("abstain_cost", abstain_cost), ("review_cost", review_cost))
        )
        error_rate = as_fraction(rate, "review_error_rate", FIT)
        if error_rate and review is None:
            rule, fix = "must be 0 without a review_cost", "Pass review_cost=0.3"
            raise BadValueError("review_error_rate", FIT, rule, f"{error_rate:g}", fix)
        return cls(error, abstain, review, error_rate)

    @property
    def rejects(self) -> dict[str, float]:
        """The expected cost of each way to reject a row."""
        found = {} if self.abstain_cost is None else {ABSTAIN: self.abstain_cost}
        if self.review_cost is not None:
            found[REVIEW] = self.review_cost + self.review_error_rate * self.error_cost
        return found

    @property
    def cheapest_reject(self) -> str:
        """The cheapest way to reject a row, empty if there is none."""
        return min(self.rejects, key=self.rejects.__getitem__, default="")

    @property
    def fallback(self) -> float:
        """The cost of the cheapest way to reject."""
        return self.rejects.get(self.cheapest_reject, np.inf)


class _Rows(NamedTuple):
    """Rows to fit on; arrays are rows x models."""

    names: tuple[str, ...]
    scores: FloatArray
    correct: FloatArray
    call_costs: FloatArray
    latency_costs: FloatArray

    @classmethod
    def of(cls, outputs: Any, y: Any, costs: Any, latencies: Any, per_second: float) -> _Rows:
        """Check outputs and costs."""
        tiers = _by_name(outputs, None, "outputs")
        names = tuple(tiers)
        pairs = [_score_and_hits(one, y, name) for name, one in tiers.items()]
        n_rows = len(pairs[0][0])
        for name, (scores, _) in zip(names, pairs, strict=True):
            require_rows(scores, n_rows, f"outputs[{name!r}]", FIT, f"those of {names[0]}")
        if n_rows < MIN_ROWS:
            rule, fix = f"must have at least {MIN_ROWS} rows", "Pass more rows"
            raise BadValueError("outputs", FIT, rule, f"{n_rows}", fix)
        seconds = [0.0] * len(names) if latencies is None else latencies
        amounts = []
        for argument, given in (("costs", costs), ("latencies", seconds)):
            each = _by_name(given, names, argument)
            columns = [_as_amounts(each[k], f"{argument}[{k!r}]", FIT, n_rows) for k in names]
            amounts.append(np.column_stack(columns))
        scores, correct = (np.column_stack(one) for one in zip(*pairs, strict=True))
        return cls(names, scores, correct, amounts[0], per_second * amounts[1])

    def take(self, rows: IntArray) -> _Rows:
        """Return some rows."""
        return _Rows(self.names, *(one[rows] for one in self[1:]))

    @property
    def batch(self) -> Batch:
        """All that was given, for the fingerprint."""
        columns = [np.nan_to_num(self.scores), self.correct, self.call_costs]
        answers = TopLabel(np.zeros(len(self.correct)), self.correct[:, 0])
        return make_batch(None, answers, features=np.column_stack(columns), caller=FIT)


def _by_name(given: Any, names: tuple[str, ...] | None, argument: str) -> dict[str, Any]:
    """Return what belongs to each model, by name; models of a list are model_1, model_2, ..."""
    if isinstance(given, Mapping):
        found = {str(name): one for name, one in given.items()}
    elif isinstance(given, Sequence) and not isinstance(given, str):
        own = names or tuple(f"model_{k + 1}" for k in range(len(given)))
        if len(own) != len(given):
            rule, fix = f"must have {len(own)} entries, one per model", "Pass one per model"
            raise BadValueError(argument, FIT, rule, f"{len(given)}", fix)
        found = dict(zip(own, given, strict=True))
    else:
        rule, fix = "must be a dict by model, or a list", f"Pass {argument}={{'small': ...}}"
        raise BadTypeError(argument, FIT, rule, type(given).__name__, fix)
    if names is not None and set(found) != set(names):
        rule = f"must have one entry for each of {', '.join(names)}"
        got = ", ".join(found) or "none"
        raise BadValueError(argument, FIT, rule, got, "Use the names of the outputs")
    if not found:
        raise BadValueError(argument, FIT, "must have at least 1 model", "none", "Pass outputs")
    return found


def _as_amounts(value: Any, argument: str, caller: str, n_rows: int) -> FloatArray:
    """Return an amount per row that is not negative."""
    if np.ndim(value) == 0:
        fix = "Pass a number, or one per row"
        return np.full(n_rows, as_number(value, argument, caller, 0.0, fix=fix))
    found = as_floats(value, argument, caller).astype(np.float64)
    require_dimensions(found, (1,), argument, caller, "a number, or one per row")
    require_rows(found, n_rows, argument, caller)
    is_fine = np.isfinite(found) & (found >= 0)
    rule, fix = "must be finite and at least 0", "Use 0 where there is none"
    require_everywhere(is_fine, found, argument, caller, rule, fix)
    return found


def _score_and_hits(outputs: Any, y: Any, name: str) -> tuple[FloatArray, FloatArray]:
    """Return the log odds of the confidence of each row, and whether the answer is correct."""
    argument = f"outputs[{name!r}]"
    if isinstance(outputs, TopLabel):
        hits = outputs.correct
        is_whole = (hits == 0) | (hits == 1)
        rule = "must say of each answer whether it is correct, 1 or 0"
        fix = "Use TopLabel(confidence, correct), in this order"
        require_everywhere(is_whole, hits, argument, FIT, rule, fix)
        return _log_odds(outputs.confidence, 1 - outputs.confidence), hits
    if y is None:
        rule, fix = "must be a TopLabel if y is None", "Pass y, or TopLabel(confidence, correct)"
        raise BadTypeError(argument, FIT, rule, type(outputs).__name__, fix)
    batch = labeled_batch(y, outputs, None, FIT, 5, "y")
    if batch.n_missing:
        rule, fix = "must have a class in every row", "Leave such rows out"
        raise BadValueError("y", FIT, rule, f"{batch.n_missing} missing", fix)
    rows = batch.rows
    return _log_odds(rows.confidence, rows.least_confidence), np.round(rows.correct)


def _scores_so_far(outputs: Any, name: str) -> FloatArray:
    """Return the log odds of the confidence of each row, NaN where there is none yet."""
    if isinstance(outputs, BaseOutputs):
        rows = make_batch(None, outputs, caller=DECIDE).rows
        return _log_odds(rows.confidence, rows.least_confidence)
    argument = f"outputs[{name!r}]"
    found = as_floats(as_array(np.atleast_1d(outputs), argument, DECIDE), argument, DECIDE)
    require_dimensions(
        found, (1,), argument, DECIDE, "one confidence per row", "Use Probabilities(...)"
    )
    is_fine: BoolArray = np.isnan(found) | ((found >= 0) & (found <= 1))
    rule, fix = "must be between 0 and 1", "Use NaN where the model was not called"
    require_everywhere(is_fine, found, argument, DECIDE, rule, fix)
    return _log_odds(found, 1 - found)


def _log_odds(confidence: FloatArray, rest: FloatArray) -> FloatArray:
    """Return the log odds of confidences, infinite at exactly 0 and 1."""
    with np.errstate(divide="ignore"):
        top, bottom = (np.log(one.astype(np.float64)) for one in (confidence, rest))
    return np.asarray(top - bottom)
