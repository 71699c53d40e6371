"""Plans of reviews within capacity, and queues: the linear program, its prices, what more saves.

All functions take the values of reviews, rows x reviewers, as `ReviewTeam.values` returns them, and
how many rows each reviewer can review.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import ArrayResult, FloatArray, IntArray, as_count, as_floats, freeze
from dubito.errors import BadValueError
from dubito.formatting import HTMLTable, align_table, decimal, html_rows, html_view, quantity
from dubito.kernels.blocks import row_blocks, run_in_order
from dubito.kernels.expected_cost import assign_in_order, best_reviewers, soft_demand

if TYPE_CHECKING:
    from dubito.decide.review import ReviewTeam

TEMPERATURES = (0.1, 0.01, 0.001)  # of the soft maximum, relative to the highest value
MAX_SAMPLES = 50_000  # rows on which the first prices are found
MAX_ROUNDS = 10  # of moving rows to capacity that is left
MAX_STEPS = 300  # more reviews of one person that are added one by one
ROUNDING = 1e-9  # of the highest value: choices that differ by less are tied


def smoothed_prices(values: FloatArray, capacities: IntArray) -> FloatArray:
    """Return the price of each reviewer at which about as many rows ask as it can review.

    The dual of the linear program with a soft maximum, at falling temperatures; many rows at first
    by a random sample of them.
    """
    from scipy.optimize import minimize  # slow to import

    is_open = np.asarray(values.max(axis=1, initial=0.0) > 0)
    prices = np.zeros(len(capacities))
    if not is_open.any():
        return prices
    some = np.ascontiguousarray(values[is_open])
    scale = float(some.max())
    for temperature in TEMPERATURES:
        rows, fraction = some, 1.0
        if temperature > TEMPERATURES[-1] and len(some) > MAX_SAMPLES:
            drawn = np.random.default_rng(0).choice(len(some), MAX_SAMPLES, replace=False)
            rows, fraction = some[drawn], MAX_SAMPLES / len(some)
        prices = minimize(
            _dual, prices / scale, args=(rows / scale, capacities * fraction, temperature),
            jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(prices),
        ).x * scale  # fmt: skip
    is_full = capacities == 0
    if is_full.any():  # any price above the highest gain would do: take that
        net = np.where(is_full, -np.inf, some - prices)
        gain = some[:, is_full] - np.maximum(net.max(axis=1, keepdims=True), 0.0)
        prices[is_full] = np.maximum(gain.max(axis=0), 0.0)
    return np.asarray(prices)


def _dual(
    prices: FloatArray, values: FloatArray, capacities: FloatArray, temperature: float
) -> tuple[float, FloatArray]:
    """Return the dual per row and its gradient."""
    blocks = row_blocks(len(values), values.shape[1])
    demands, totals = np.zeros((len(blocks), len(prices))), np.zeros(len(blocks))

    def fill(number: int) -> None:
        part = freeze(values[blocks[number]])
        totals[number] = soft_demand(part, freeze(prices), temperature, demands[number])

    run_in_order(fill, range(len(blocks)))
    total = totals.sum() + capacities @ prices
    return float(total / len(values)), (capacities - demands.sum(axis=0)) / len(values)


def assigned_rows(values: FloatArray, prices: FloatArray, capacities: IntArray) -> IntArray:
    """Return the reviewer of each row by value net of prices, within capacity; -1 for none.

    Rows that lose most by another choice come first. Capacity that is left goes to rows that are
    worth more with it, which may free some of another reviewer.
    """
    choice, regret = np.empty(len(values), np.int64), np.empty(len(values))
    best_reviewers(freeze(values), freeze(prices), choice, regret)
    result = np.full(len(values), -1)
    left = capacities.copy()
    wanted = np.flatnonzero(choice >= 0)
    order = wanted[np.argsort(-regret[wanted], kind="stable")]
    assign_in_order(freeze(values), freeze(prices), freeze(order), left, result)
    now = np.where(result < 0, 0.0, values[np.arange(len(values)), result])
    least = 1e-12 * max(float(values.max(initial=0.0)), 0.0)
    for r in [*range(len(prices))] * MAX_ROUNDS:
        if left[r] > 0:  # rows that are worth more here than where they are
            gain = values[:, r] - now
            rows = np.flatnonzero(gain > least)
            if rows.size > left[r]:
                rows = rows[np.argpartition(-gain[rows], left[r])[: left[r]]]
            moved = result[rows]
            left += np.bincount(moved[moved >= 0], minlength=left.size)
            left[r] -= rows.size
            result[rows], now[rows] = r, values[rows, r]
    return result


def exact_plan(
    values: FloatArray, prices: FloatArray, capacities: IntArray, plan: IntArray
) -> IntArray:
    """Return an optimal plan, given prices and a plan within capacity.

    No optimal plan makes a choice whose net value is further below the best of its row than the
    dual is above the plan: rows with one choice left are fixed, and the others a linear program.
    Rows that tie within rounding are left to it.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    net = np.column_stack([np.zeros(len(values)), values - prices])
    best = net.max(axis=1, keepdims=True)
    gap = float(best.sum() + capacities @ prices) - _total(values, plan)
    highest = np.abs(values[np.isfinite(values)]).max(initial=0.0)
    rounding = highest * (ROUNDING + len(values) * 1e-15)
    may_be = net >= best - max(gap, 0.0) - rounding
    result: IntArray = np.argmax(net, axis=1) - 1
    is_open = may_be.sum(axis=1) > 1
    fixed = result[~is_open]
    left = capacities - np.bincount(fixed[fixed >= 0], minlength=len(capacities))
    some, reviewer = np.nonzero(may_be[is_open][:, 1:])
    n_open, n_choices = int(is_open.sum()), some.size
    if n_open and left.min() >= 0:
        ones, columns = np.ones(n_choices), np.arange(n_choices)
        limits = csr_array(
            (np.tile(ones, 2), (np.concatenate([some, n_open + reviewer]), np.tile(columns, 2))),
            shape=(n_open + len(capacities), n_choices),
        )
        solution = linprog(
            -values[is_open][some, reviewer],
            A_ub=limits, b_ub=np.concatenate([np.ones(n_open), left]),
            bounds=(0, 1), method="highs-ds",
        )  # fmt: skip
        if solution.x is None:
            return plan
        chosen = np.full(n_open, -1)
        taken = solution.x > 0.5
        chosen[some[taken]] = reviewer[taken]
        result[is_open] = chosen
    used = np.bincount(result[result >= 0], minlength=len(capacities))
    is_within = bool((used <= capacities).all())
    return result if is_within and _total(values, result) >= _total(values, plan) else plan


def marginal_values(
    values: FloatArray, plan: IntArray, capacities: IntArray, prices: FloatArray | None
) -> FloatArray:
    """Return what one more review of each reviewer saves over a plan.

    None for prices if the plan is optimal, otherwise those by which it was made.
    """
    moves = _Moves.of(values, plan, capacities, prices, 1)
    return np.array([moves.copy().add(r, 1) for r in range(len(capacities))])


def saving_of_more(
    values: FloatArray,
    plan: IntArray,
    capacities: IntArray,
    prices: FloatArray | None,
    reviewer: int,
    n_more: float,
) -> float:
    """Return what more reviews of one reviewer save over a plan; prices as `marginal_values`."""
    n_more = min(float(n_more), float(len(values)))
    whole = int(n_more)
    if whole > MAX_STEPS:  # plan again
        most = capacities.copy()
        most[reviewer] += whole
        again = smoothed_prices(values, most)
        found = assigned_rows(values, again, most)
        if prices is None:
            found = exact_plan(values, again, most, found)
        return max(_total(values, found) - _total(values, plan), 0.0)
    moves = _Moves.of(values, plan, capacities, prices, whole + 1)
    saved = moves.add(reviewer, whole)
    return saved + (n_more - whole) * moves.add(reviewer, 1)


def is_optimal(
    values: FloatArray, plan: IntArray, capacities: IntArray, prices: FloatArray
) -> bool:
    """Whether prices prove that a plan is optimal: it saves as much as the dual says."""
    dual = float(np.maximum(values - prices, 0.0).max(axis=1).sum() + capacities @ prices)
    return dual - _total(values, plan) <= ROUNDING * max(abs(dual), 1e-300)


@dataclass(slots=True, eq=False)
class _Moves:
    """Rows of a plan that may move if someone can review more, and what that saves.

    One more review of reviewer r is a row that nobody reviews, or one of another reviewer s, who
    is then free for one more in turn: a path of moves. The best path is found by Bellman's
    recursion; paths one after the other keep an optimal plan optimal (successive shortest paths).
    Only the best rows of each move from s to r can be on the first few paths. In a plan that is not
    optimal, moves may pay without any further review: they count as no more than the difference of
    prices, which is what they save in an optimal plan.
    """

    values: FloatArray  # of these rows, with a last column of zeros for no review
    at: IntArray  # the reviewer of each, or the last column
    left: IntArray
    most: FloatArray  # that a move counts for, from s (a row) to r

    @classmethod
    def of(
        cls,
        values: FloatArray,
        plan: IntArray,
        capacities: IntArray,
        prices: FloatArray | None,
        n_more: int,
    ) -> _Moves:
        """Return the rows that may be on the first `n_more` paths."""
        n_reviewers = values.shape[1]
        at = np.where(plan < 0, n_reviewers, plan)
        chosen = []
        for s in range(n_reviewers + 1):
            rows = np.flatnonzero(at == s)
            own = values[rows, s] if s < n_reviewers else 0.0
            for r in {*range(n_reviewers)} - {s}:
                gain = values[rows, r] - own
                is_few = rows.size <= n_more
                chosen.append(rows if is_few else rows[np.argpartition(-gain, n_more)[:n_more]])
        some = np.unique(np.concatenate([*chosen, np.empty(0, np.int64)]))
        table = np.column_stack([values[some], np.zeros(some.size)])
        used = np.bincount(plan[plan >= 0], minlength=n_reviewers)
        most = np.full((n_reviewers + 1, n_reviewers), np.inf)
        if prices is not None:
            most = prices - np.append(prices, 0.0)[:, np.newaxis]
        return cls(table, at[some], capacities - used, most)

    def copy(self) -> _Moves:
        """Return the same moves, which can be made independently."""
        return _Moves(self.values, self.at.copy(), self.left, self.most)

    def add(self, reviewer: int, n_more: int) -> float:
        """Make the best moves for `n_more` reviews of a reviewer, and return what they save."""
        total = 0.0
        if self.left[reviewer] > 0:  # who has time left needs no more of it
            return total
        for _ in range(n_more):
            saved = self._add_one(reviewer)
            total += saved
            if not saved:
                break
        return total

    def _add_one(self, reviewer: int) -> float:
        """Make the moves of the best path to a reviewer, and return what they save."""
        n_reviewers = self.left.size
        gain = np.full((n_reviewers + 1, n_reviewers), -np.inf)  # of the best move from s to r
        row = np.zeros(gain.shape, np.int64)
        for s in range(n_reviewers + 1):
            own = np.flatnonzero(self.at == s)
            if own.size:
                moved = self.values[own, :-1] - self.values[own, s, np.newaxis]
                best = moved.argmax(axis=0)
                row[s], gain[s] = own[best], moved[best, np.arange(n_reviewers)]
        gain = np.minimum(gain, self.most)
        gain[np.arange(n_reviewers), np.arange(n_reviewers)] = -np.inf
        least = 1e-12 * max(float(np.abs(gain[np.isfinite(gain)]).max(initial=0.0)), 1e-300)
        best_from = np.full(n_reviewers, -1)
        saved_by = np.zeros(n_reviewers)  # one more review of each: 0 without any move
        for _ in range(n_reviewers):
            each = gain + np.append(saved_by, 0.0)[:, np.newaxis]
            is_better = each.max(axis=0) > saved_by + least
            best_from = np.where(is_better, each.argmax(axis=0), best_from)
            saved_by = np.where(is_better, each.max(axis=0), saved_by)
        path: list[tuple[int, int]] = []
        seen, to = {reviewer}, reviewer
        while to < n_reviewers and best_from[to] >= 0:
            source = int(best_from[to])
            if source in seen:  # by rounding only
                break
            seen.add(source)
            path.append((source, to))
            to = source
        saved = sum(float(gain[move]) for move in path)
        if saved <= least:
            return 0.0
        for move in path:
            self.at[row[move]] = move[1]
        return saved


def _total(values: FloatArray, plan: IntArray) -> float:
    """Return what the reviews of a plan save."""
    return float(np.where(plan < 0, 0.0, values[np.arange(len(values)), plan]).sum())


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReviewPlan(ArrayResult):
    """Who reviews which row, and what it saves.

    Returned by `ReviewTeam.plan`.

    Attributes
    ----------
    reviewer : array of int
        Index into `team.reviewers` per row, -1 where no one reviews it.
    value : array of float
        What the review is expected to save, 0 where there is none.
    action : array of int
        What is done without a review: an index into `actions`.
    expected_cost : array of float
        The expected cost of that.
    values : array of float, rows x reviewers
        What a review of each row by each reviewer is expected to save.
    actions : tuple of str
        The names of the actions.
    team : ReviewTeam
        The team, with the shadow prices of this plan.
    """

    reviewer: IntArray
    value: FloatArray
    action: IntArray
    expected_cost: FloatArray
    values: FloatArray
    actions: tuple[str, ...]
    team: ReviewTeam

    def __len__(self) -> int:
        return self.reviewer.size

    @property
    def shadow_prices(self) -> FloatArray:
        """What one more review of each reviewer would save; 0 where capacity is left."""
        return self.team.shadow_prices

    @property
    def hour_savings(self) -> FloatArray:
        """What one more hour of each reviewer would save, NaN without `rows_per_hour`.

        It is computed from what further reviews save, each a little less than the one before.
        """
        speeds = [one.rows_per_hour or 0.0 for one in self.team.reviewers]
        saved = self.team.savings_of_more(self.values, self.reviewer, speeds)
        return np.where(np.array(speeds) > 0, saved, np.nan)

    @property
    def used(self) -> IntArray:
        """How many rows each reviewer gets."""
        return np.bincount(self.reviewer[self.reviewer >= 0], minlength=len(self.team.reviewers))

    @property
    def saving(self) -> float:
        """The expected cost that all reviews save, net of their prices."""
        return float(self.value.sum())

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the plan as the columns of a table, with names instead of indices.

        Returns
        -------
        dict of str to array
            `reviewer` (empty without one), `review_value`, `action_without_review`,
            `cost_without_review`.
        """
        return {
            "reviewer": np.array([*self.team.names, ""])[self.reviewer],
            "review_value": self.value,
            "action_without_review": np.array(self.actions)[self.action],
            "cost_without_review": self.expected_cost,
        }

    def __str__(self) -> str:
        table = align_table(self._table())
        return "\n".join([self._verdict(), *(f"  {line.rstrip()}" for line in table)])

    def _repr_html_(self) -> str:
        head, *rows = self._table()
        first = html_rows(self.columns(), len(self))._replace(folded="The first rows")
        return html_view(self._verdict(), HTMLTable(head, rows), first)

    def _table(self) -> list[list[str]]:
        """Return a line for each reviewer: rows, capacity, and what they save."""
        head = ["reviewer", "rows", "capacity", "saves", "one more row saves", "one more hour"]
        rows, hours = [], self.hour_savings
        for r, one in enumerate(self.team.reviewers):
            saved = float(self.value[self.reviewer == r].sum())
            hour = "" if one.rows_per_hour is None else decimal(hours[r])
            more = decimal(one.shadow_price)
            cells = [one.name, f"{self.used[r]:,}", f"{one.capacity:,}", decimal(saved), more, hour]
            rows.append(cells)
        if not any(row[-1] for row in rows):
            head, rows = head[:-1], [row[:-1] for row in rows]
        return [head, *rows]

    def _verdict(self) -> str:
        """Return what the reviews save, in a sentence."""
        before = float(self.expected_cost.sum())
        reviewed = quantity(int(self.used.sum()), "review")
        text = f"{quantity(len(self))}, {reviewed}: expected cost {decimal(before)} without"
        return f"{text} review, {decimal(before - self.saving)} with this plan."


@final
class ReviewQueue:
    """Assigns rows to reviewers as they arrive, and never more than each can review.

    A row goes to the reviewer with capacity left whose value net of the shadow price is highest, if
    that is above 0. After each row the prices move: up for who was asked, down for who was not, so
    that the capacity that is left lasts for the rows that are still expected (dual descent).

    Made by `ReviewTeam.queue`.

    Parameters
    ----------
    team : ReviewTeam
        The reviewers, with the shadow prices to start from.
    n_expected : int
        How many rows are expected in the period of their capacities.

    Attributes
    ----------
    prices : array of float
        The shadow price of each reviewer, as it is now.
    left : array of int
        How many rows each can still review.
    n_left : int
        How many rows are still expected.

    References
    ----------
    Balseiro, Lu and Mirrokni, "Dual mirror descent for online allocation problems", 2020.

    Examples
    --------
    >>> from dubito.decide import ReviewTeam, Reviewer
    >>> team = ReviewTeam([Reviewer("ann", capacity=1, error_rate=0.02, shadow_price=0.3)])
    >>> queue = team.queue(n_expected=3)
    >>> queue.assign(team.values([[0.9, 0.1], [0.5, 0.5], [0.5, 0.5]])).tolist()
    [-1, 0, -1]
    """

    def __init__(self, team: ReviewTeam, n_expected: int) -> None:
        self.team = team
        self.n_left = as_count(n_expected, "n_expected", "ReviewTeam.queue", 1, example=1000)
        self.prices = team.shadow_prices
        self.left = team.capacities
        self._step = 1.0 / np.sqrt(n_expected)
        self._highest = float(self.prices.max())
        speeds = [one.rows_per_hour or np.inf for one in team.reviewers]
        self._speeds, self._hour, self._used = np.array(speeds), -np.inf, np.zeros(len(speeds))

    def assign(self, values: Any, hours: Any = None) -> IntArray:
        """Return the reviewer of each row, -1 for none, and count it.

        Parameters
        ----------
        values : array, rows x reviewers
            What `ReviewTeam.values` returns for the rows, in the order of their arrival.
        hours : float or array, optional
            When the rows arrive, in hours: then no one gets more than `rows_per_hour` rows from
            one full hour to the next.

        Returns
        -------
        array of int
        """
        caller = "ReviewQueue.assign"
        rows = np.atleast_2d(as_floats(values, "values", caller).astype(np.float64))
        if rows.ndim != 2 or rows.shape[1] != self.left.size:
            rule, fix = f"must be rows x {self.left.size} reviewers", "Pass team.values(...)"
            raise BadValueError("values", caller, rule, f"shape {rows.shape}", fix)
        result = np.full(len(rows), -1)
        known = as_floats(np.atleast_1d(np.nan if hours is None else hours), "hours", caller)
        if known.shape not in ((1,), (len(rows),)):
            rule, fix = "must be one number, or one per row", f"Pass {len(rows)} hours"
            raise BadValueError("hours", caller, rule, f"shape {known.shape}", fix)
        times = np.broadcast_to(np.floor(known), len(rows))
        for i, row in enumerate(rows):
            if times[i] > self._hour:
                self._hour, self._used = float(times[i]), np.zeros(row.size)
            is_free = (self.left > 0) & ((self._used < self._speeds) | np.isnan(times[i]))
            net = np.where(is_free & (row > 0), row - self.prices, -np.inf)
            best = int(net.argmax())
            asked = np.zeros(net.size)
            if net[best] > 0:
                result[i] = best
                self.left[best] -= 1
                asked[best] = 1.0
                self._used += asked
            self._highest = max(self._highest, float(row.max()))
            target = self.left / max(self.n_left, 1)
            moved = self.prices + self._highest * self._step * (asked - target)
            self.prices = np.maximum(moved, 0.0)
            self.n_left = max(self.n_left - 1, 0)
        return result
