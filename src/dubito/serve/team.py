"""`/v1/team` and the review queue of a team: who gets which row, within capacity.

Every claim looks at the rows that wait. The value of a row for a reviewer is what their answer is
expected to save, given the answers so far. Shadow prices come from these rows, from those that
arrived yesterday between this time and midnight, and from the capacity that is left today. A
reviewer gets the row of highest value among those whose value net of the shadow price is above 0
and no lower than that of the others who are there; then what these cannot reach within the hour.
After an answer the row is final unless another reviewer's answer is worth more than its price. Its
label is an answer; the probabilities after review, and the action they lead to, are returned too.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import numpy as np
from fastapi import APIRouter, Request
from sqlalchemy import Connection

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.calibrate import ConfidenceCalibrator
from dubito.decide import Policy, Reviewer, ReviewTeam
from dubito.decide.answerers import Answerer
from dubito.decide.cascade import REVIEW, Cascade
from dubito.decide.costs import CostMatrix
from dubito.errors import BadValueError
from dubito.formatting import quantity
from dubito.outputs import ClassName, Probabilities
from dubito.serve.auth import MonitorToken
from dubito.serve.cascades import VERDICTS
from dubito.serve.http_errors import CONFLICT, FORBIDDEN, NOT_FOUND, HTTPError
from dubito.serve.model_answers import Outcome, cost_columns, outcome_of, stored_posterior
from dubito.serve.service import DAY, PolicyCatalog, Settings, get_service
from dubito.serve.store import ReviewItem, Store
from dubito.serve.store.review import (
    AnsweredRow,
    Period,
    WaitingRow,
    label_review,
    periods,
    waiting_rows,
)

router = APIRouter(prefix="/v1", tags=["review"])
MAX_ROWS = 5000  # that wait, and that are expected: prices and order rest on so many
LEARN_SECONDS = 60.0  # between two looks at which answers are confirmed
ABSENT_SECONDS = DAY  # without a claim: then rows are not left for a reviewer
TOLERANCE = 0.01  # of the highest value: prices are no more precise
ERROR_TOLERANCE = 0.005  # of an error rate: reviewers who differ by less are equally careful
MIN_GAIN = 1e-9  # value of a review: below, it is rounding
DIGITS = 6  # of an error rate that is reported
MAX_LISTED = 50  # ids of rows that come next
MAX_ATTEMPTS = 5  # others may claim the same rows at the same time
CALLER = "dubito serve"


@final
@dataclass(frozen=True, slots=True)
class MemberReport:
    """A reviewer now: rows, capacity, shadow price, and how its answers compare.

    Attributes
    ----------
    queue, left_today : int
        Rows that wait and are planned for this reviewer today, the one it holds included, and how
        many it can still review: `queue` is at most that.
    used_today, capacity : int
        Answers of today, and how many are possible.
    used_this_hour, rows_per_hour : int, int or None
        The same of this hour.
    is_present : bool
        Whether it claimed a row in the last 24 hours.
    error_rate : float
        The mean over classes, from what was stated and confirmed answers.
    n_confirmed : int
        Answers that the truth or two people confirm or refute.
    n_pairs, n_agreeing : int
        Pairs with answers of others to the same row, and how many agree.
    shadow_price, hour_saves : float, float or None
        What one more review would save, and what one more hour would.
    """

    name: str
    queue: int
    left_today: int
    used_today: int
    capacity: int
    used_this_hour: int
    rows_per_hour: int | None
    is_present: bool
    error_rate: float
    n_confirmed: int
    n_pairs: int
    n_agreeing: int
    shadow_price: float
    hour_saves: float | None


@final
@dataclass(frozen=True, slots=True)
class TeamReport:
    """The team now.

    Attributes
    ----------
    waiting : int
        Rows that wait for a label: the sum of all queues, `beyond_capacity` and `unassigned`.
    beyond_capacity : int
        Rows that nobody has time for today.
    unassigned : int
        Rows that are worth no review at current prices, or nobody's to do.
    audited, second_opinions : int
        How many of those that wait were drawn for the audit, and have an answer already.
    expected : int
        Rows that are expected until midnight: as many as yesterday.
    n_pairs, n_agreeing : int
        Pairs of answers of two people to the same row, and how many agree.
    """

    reviewers: list[MemberReport]
    waiting: int
    beyond_capacity: int
    unassigned: int
    audited: int
    second_opinions: int
    expected: int
    n_pairs: int
    n_agreeing: int


@router.get("/team")
def get_team(request: Request, token: MonitorToken) -> TeamReport:
    """Return the queue, the capacity, the shadow price and the agreement of each reviewer."""
    team = get_service(request).team
    if team is None:
        fix = "Start it with dubito serve POLICY --team team.csv"
        raise HTTPError(NOT_FOUND, "This service has no review team", fix)
    return team.report()


@final
@dataclass(frozen=True, slots=True, eq=False)
class _QueueSnapshot:
    """The queue at one moment: rows that wait, values, prices, and capacity left today."""

    names: tuple[str, ...]  # of the reviewers
    rows: list[WaitingRow]
    posteriors: FloatArray
    values: FloatArray  # -inf where a reviewer is not asked (again)
    prices: FloatArray
    left: IntArray
    n_expected: int
    left_this_hour: IntArray
    is_paced: BoolArray  # reviewers with a capacity per hour
    errors: FloatArray  # mean error rate of each reviewer

    @property
    def net(self) -> FloatArray:
        """Values net of prices, of reviewers with capacity left to whom a row is worth something.

        Where capacity is scarce, prices are the values of some rows, so that these have about 0.
        """
        is_open = (self.left > 0) & (self.values > MIN_GAIN)
        return np.where(is_open, self.values - self.prices, -np.inf)

    @property
    def tolerance(self) -> float:
        """How far below the best a choice may be."""
        return TOLERANCE * max(float(self.values.max(initial=0.0)), 0.0)

    @property
    def is_audit(self) -> BoolArray:
        """Rows that are reviewed whatever their value."""
        return np.array([row.is_audit for row in self.rows], np.bool_)

    @property
    def is_free(self) -> BoolArray:
        """Rows that nobody holds."""
        return np.array([row.holder is None for row in self.rows], np.bool_)

    @property
    def best(self) -> IntArray:
        """The reviewer of each row, -1 for none."""
        if not self.rows:
            return np.zeros(0, np.int64)
        net = self.net
        return np.where(net.max(axis=1) > -self.tolerance, net.argmax(axis=1), -1)

    def planned(self) -> tuple[IntArray, int]:
        """Return how many rows each reviewer would review today, and for how many no one has time.

        Audited rows come first, for the most careful; then those of highest value, each for whom it
        is worth most with among those who have time left.
        """
        queue, left = np.zeros(len(self.names), np.int64), self.left.copy()
        n_beyond = 0
        is_able = np.isfinite(self.values) & (
            self.is_audit[:, np.newaxis] | (self.values > MIN_GAIN)
        )
        pays = np.where(self.left > 0, self.net > -self.tolerance, is_able)
        pays &= is_able
        pays[self.is_audit] = is_able[self.is_audit]
        pays[:, self.left == 0] &= ~(is_able & (self.left > 0)).any(axis=1, keepdims=True)
        highest = np.where(is_able, self.values, 0.0).max(axis=1, initial=0.0)
        for k in np.lexsort((-highest, ~self.is_audit)).tolist():
            holder = self.rows[k].holder
            if holder is not None:
                n_beyond += holder not in self.names
                queue[[one == holder for one in self.names]] += 1
                continue
            open_to = np.flatnonzero(pays[k] & (left > 0))
            if open_to.size:
                best = -self.errors if self.is_audit[k] else self.net[k]
                r = open_to[np.argmax(best[open_to])]
                queue[r] += 1
                left[r] -= 1
            else:
                n_beyond += bool(pays[k].any())
        return queue, n_beyond

    def order_of(self, reviewer: int) -> list[int]:
        """Return the rows that a reviewer gets, in order.

        Audited ones first, then by value; last come rows that are better left for others, who
        cannot reach them within this hour. A reviewer who comes counts, whatever it was thought to
        have left.
        """
        if not self.rows:
            return []
        own = self.values[:, reviewer]
        others = np.delete(self.net, reviewer, axis=1).max(axis=1, initial=-np.inf)
        net = own - self.prices[reviewer]
        is_own = (own > MIN_GAIN) & (net >= np.maximum(others, 0.0) - self.tolerance)
        is_able = np.isfinite(own) & ~self._kept(reviewer)
        audited = np.flatnonzero(self.is_audit & self.is_free & is_able)
        is_valued = ~self.is_audit & self.is_free
        pays = (own > MIN_GAIN) & (self.is_paced[reviewer] | (net >= -self.tolerance))
        is_late = is_valued & ~is_own & pays & self._out_of_reach(reviewer)
        found = audited.tolist()
        for rows in (np.flatnonzero(is_valued & is_own), np.flatnonzero(is_late)):
            found += rows[np.argsort(-own[rows], kind="stable")].tolist()
        return found

    def _out_of_reach(self, reviewer: int) -> BoolArray:
        """Return the rows that others who are better cannot review in this hour.

        Rows of highest value go first to whom they are worth most with, until the hour is full.
        """
        net, left = self.net, self.left_this_hour.copy()
        result: BoolArray = (self.best >= 0) & self.is_free & ~self.is_audit
        rows = np.flatnonzero(result)
        for k in rows[np.argsort(-self.values[rows].max(axis=1), kind="stable")].tolist():
            able = np.where(left > 0, net[k], -np.inf)
            r = int(able.argmax())
            if np.isfinite(able[r]):
                left[r] -= 1
                result[k] = r == reviewer
            elif not left.any():
                break
        return result

    def _kept(self, reviewer: int) -> BoolArray:
        """Return the audited rows that are kept for more careful reviewers who are there."""
        result = np.zeros(len(self.rows), np.bool_)
        left = np.where(self.errors < self.errors[reviewer] - ERROR_TOLERANCE, self.left, 0)
        for k in np.flatnonzero(self.is_audit & self.is_free).tolist():
            able = np.flatnonzero((left > 0) & np.isfinite(self.values[k]))
            if able.size:
                left[able[np.argmin(self.errors[able])]] -= 1
                result[k] = True
        return result

    def reasons(self, reviewer: int) -> dict[str, int]:
        """Return why a reviewer does not get the rows that wait, and how many for each reason."""
        name = self.names[reviewer]
        own, best, kept = self.values[:, reviewer], self.best, self._kept(reviewer)
        found = Counter[str]()
        for k, row in enumerate(self.rows):
            if row.holder is not None:
                reason = "claimed by others"
            elif name in row.seen_by:
                reason = "waiting for an answer of someone else"
            elif not np.isfinite(own[k]):
                reason = "of classes outside your skills"
            elif kept[k]:
                reason = "left for the audit of a more careful reviewer"
            elif own[k] <= MIN_GAIN:
                reason = "worth less than your review costs"
            elif best[k] < 0:
                reason = "worth less than other rows of today"
            else:
                reason = "worth more with other reviewers"
            found[reason] += 1
        return found


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Reviewed:
    """What reviewers need to know of a policy or a cascade: the classes and what errors cost.

    If `has_answers`, the classes say whether an answer is wrong or correct; `abstain_cost` is that
    of giving none.
    """

    classes: tuple[ClassName, ...]
    costs: CostMatrix
    has_answers: bool
    abstain_cost: float | None = None

    @classmethod
    def of(cls, policy: Policy | Cascade) -> _Reviewed:
        if isinstance(policy, Cascade):
            costs = CostMatrix.for_answers(policy.error_cost)
            return cls(VERDICTS, costs, True, policy.abstain_cost)
        has_answers = isinstance(policy.calibrator, ConfidenceCalibrator)
        return cls(policy.classes, policy.costs, has_answers)

    def values(
        self, team: ReviewTeam, p: FloatArray, is_answered: BoolArray, columns: Any
    ) -> FloatArray:
        """Return what a review of each row is expected to save, after the answers so far.

        Who finds an answer wrong gives another one, which is taken if that is more probable: what
        the next reviewer can save is the error of the better one.
        """
        if self.has_answers:
            best = np.where(is_answered, p.max(axis=1), p[:, 1])
            p = np.stack([1 - best, best], axis=1)
        found = np.asarray(team.values(Probabilities(p, self.classes), self.costs, columns))
        if self.abstain_cost is not None:
            answered = p @ self.costs.array[0]
            found -= np.maximum(answered - self.abstain_cost, 0.0)[:, np.newaxis]
        return found


@final
class TeamQueue:
    """The review queue of a team. Made by `TeamQueue.open`.

    Reviewers are known by the names of their tokens; who is not on the team is refused. Each
    answer, escalation and skip counts against the capacity of the hour and of the day, by the clock
    of this machine.
    """

    def __init__(
        self, team: ReviewTeam, store: Store, catalog: PolicyCatalog, settings: Settings
    ) -> None:
        self.stated, self.store = team, store
        self.catalog, self.settings = catalog, settings
        self._learned, self._learned_at = team, -np.inf
        self.answered: list[AnsweredRow] = []

    @classmethod
    def open(
        cls, team: ReviewTeam, store: Store, catalog: PolicyCatalog, settings: Settings
    ) -> TeamQueue:
        """Return the queue of a team, or raise if the active policy is not for it."""
        served = catalog.active_served[1] if catalog.active_id is not None else None
        if isinstance(served, Cascade) and REVIEW not in served.actions:
            rule = "needs a cascade with reviews"
            fix = "Fit it with --review-cost, or leave --team out"
            raise BadValueError("--team", CALLER, rule, "one without", fix)
        if not isinstance(served, Policy | Cascade):
            rule, fix = "needs a policy of one class per row, or a cascade", "Leave --team out"
            got = "a state of forecasts" if served is None else type(served).__name__
            raise BadValueError("--team", CALLER, rule, got, fix)
        policy = _Reviewed.of(served)
        classes = [str(name) for name in policy.classes]
        given = classes if team.classes is None else [str(name) for name in team.classes]
        if given != classes:
            rule, fix = f"must have the classes {', '.join(classes)}", "Use them in this order"
            raise BadValueError("--team", CALLER, rule, ", ".join(given), fix)
        known = set(policy.costs.columns)
        priced = CostMatrix([[one.cost] for one in team.reviewers], team.names)
        unknown = [name for name in priced.columns if name not in known]
        if unknown:
            rule = "must have costs of columns that the costs of the policy depend on"
            raise BadValueError("--team", CALLER, rule, unknown[0], "Use a number")
        # Error rates, and skills are checked here, not when the first reviewer comes.
        p = np.full((1, len(classes)), 1 / len(classes))
        team.values(Probabilities(p, policy.classes))
        store.join_team(team.names, time.time())
        return cls(team, store, catalog, settings)

    def has(self, name: str) -> bool:
        """Return whether a reviewer is on the team."""
        return name in self.stated.names

    def not_on_team(self, name: str) -> HTTPError:
        """Return the error of someone who is not on the team."""
        problem = f"{name!r} is not on the review team"
        fix = "Add the reviewer to the file of --team, or use a token whose name is on it"
        return HTTPError(FORBIDDEN, problem, fix)

    def claim(self, reviewer: str, item_id: str | None = None) -> ReviewItem | None:
        """Claim the row that is worth most with a reviewer, or a given one, within capacity."""
        index, seconds = self._index(reviewer), self.settings.lease_seconds
        for _ in range(MAX_ATTEMPTS):
            now = time.time()
            snapshot = self._snapshot(now, index)
            self._label_by_answers(snapshot, now)
            self._save(snapshot)
            claim = partial(
                self.store.claim_within,
                reviewer,
                limits=self._limits(reviewer, now),
                lease_seconds=seconds,
                now=now,
            )
            if item_id is not None:
                known = {row.id: k for k, row in enumerate(snapshot.rows)}
                row = known.get(item_id)
                has_skill = row is None or np.isfinite(snapshot.values[row, index])
                item = claim([item_id], keep_held=False) if has_skill else None
                return item and self._described(item, snapshot, index)
            ids = [snapshot.rows[k].id for k in snapshot.order_of(index)]
            item = claim(ids)
            if item is not None or not ids:
                return item and self._described(item, snapshot, index)
        return None

    def next_ids(self, reviewer: str) -> list[str]:
        """Return the ids that a reviewer would get, in order."""
        index = self._index(reviewer)
        snapshot = self._snapshot(time.time(), index)
        return [snapshot.rows[k].id for k in snapshot.order_of(index)[:MAX_LISTED]]

    def undo(self, item_id: str, reviewer: str) -> ReviewItem:
        """Undo the last answer of a reviewer for a row, and claim it again."""
        self._index(reviewer)
        now, seconds = time.time(), self.settings.lease_seconds
        limits = self._limits(reviewer, now)
        return self.store.undo_within(item_id, reviewer, limits, lease_seconds=seconds, now=now)

    def label(self, item_id: str, reviewer: str, code: int) -> None:
        """Store an answer; the row gets its label if no further opinion pays."""
        self._index(reviewer)
        team, now = self._team(), time.time()
        members = self.store.team_members()
        prices = np.array([members[name][0] for name in team.names])
        left, _ = self._left(now, Counter(), members)

        def resolve(connection: Connection) -> int | None:
            [row] = waiting_rows(connection, now, 1, item_id)
            posteriors, values = self._valued(team, [row])
            is_open = (values[0] > np.maximum(prices, MIN_GAIN)) & (left > 0)
            is_final = row.is_audit or not is_open.any()
            return self._label_of(team, row, posteriors[0]) if is_final else None

        work = partial(
            label_review, item_id=item_id, reviewer=reviewer, label=code, resolve=resolve
        )
        self.store.write(work)

    def status(self, reviewer: str) -> str:
        """Return how much of a reviewer's capacity is used, in words."""
        now = time.time()
        parts = []
        for one in self._limits(reviewer, now):
            used = self.store.used_capacity(one.start).get(reviewer, 0)
            parts.append(f"{used:,} of {one.capacity:,} {one.words}")
        return f"Your reviews: {', '.join(parts)}."

    def waits(self, reviewer: str) -> str:
        """Return why a reviewer gets no row."""
        index = self._index(reviewer)
        snapshot = self._snapshot(time.time(), index)
        texts = [
            f"{quantity(n)} {'is' if n == 1 else 'are'} {reason}"
            for reason, n in snapshot.reasons(index).items()
        ]
        return f"{'; '.join(texts)}." if texts else "No row waits for review."

    def outcome(self, decision: Mapping[str, Any], answers: Sequence[tuple[str, int]]) -> Outcome:
        """Return what a stored decision and the answers of reviewers lead to.

        Parameters
        ----------
        decision : mapping
            The columns of a decision.
        answers : sequence of (str, int)
            Pairs of a reviewer and a class.
        """
        names = ("id", "policy_id", "probabilities", "reason", "is_audit", "row_costs", "created")
        row = WaitingRow(**{name: decision[name] for name in names}, answers=list(answers))
        row.model_answers = [one.sent for one in self.store.find_model_answers([row.id])[row.id]]
        [posterior], _ = self._valued(self._team(), [row])
        policy = self.catalog.policy(row.policy_id)
        assert isinstance(policy, Policy)
        return outcome_of(policy, posterior, row.row_costs)

    def report(self) -> TeamReport:
        """Return the state of the team."""
        now = time.time()
        team = self._team(is_new=True)
        snapshot, members = self._snapshot(now), self.store.team_members()
        (queue, n_beyond), errors = snapshot.planned(), self._error_rates(team)
        held = _count_held(snapshot.rows)
        used, this_hour = self._used(now)
        pairs, agreeing = _agreement(self.answered)
        confirmed = Counter(name for name, _, _ in _confirmed(self.answered))
        found = []
        for r, one in enumerate(team.reviewers):
            speed = _hourly_limit(one)
            price = float(snapshot.prices[r])
            found.append(
                MemberReport(
                    name=one.name,
                    queue=int(queue[r]),
                    left_today=int(snapshot.left[r]) + held[one.name],
                    used_today=used.get(one.name, 0),
                    capacity=one.capacity,
                    used_this_hour=this_hour.get(one.name, 0),
                    rows_per_hour=speed,
                    is_present=_is_present(members[one.name], now),
                    error_rate=round(errors[r], DIGITS),
                    n_confirmed=confirmed[one.name],
                    n_pairs=pairs[one.name],
                    n_agreeing=agreeing[one.name],
                    shadow_price=price,
                    hour_saves=None if speed is None else price * speed,
                )
            )
        n_unseen = max(self.store.queue_length() - len(snapshot.rows), 0)
        return TeamReport(
            reviewers=found,
            waiting=len(snapshot.rows) + n_unseen,
            beyond_capacity=n_beyond + n_unseen,
            unassigned=len(snapshot.rows) - int(queue.sum()) - n_beyond,
            audited=int(snapshot.is_audit.sum()),
            second_opinions=sum(bool(row.answers) for row in snapshot.rows),
            expected=snapshot.n_expected,
            n_pairs=pairs.total() // 2,
            n_agreeing=agreeing.total() // 2,
        )

    def _index(self, reviewer: str) -> int:
        """Return the position of a reviewer in the team, or raise."""
        if not self.has(reviewer):
            raise self.not_on_team(reviewer)
        return self.stated.names.index(reviewer)

    def _limits(self, reviewer: str, now: float) -> list[Period]:
        """Return the capacity of a reviewer in this hour and on this day."""
        one = self.stated.reviewers[self._index(reviewer)]
        return periods(now, _hourly_limit(one), one.capacity)

    def _team(self, *, is_new: bool = False) -> ReviewTeam:
        """Return the team with what confirmed answers say about its error rates."""
        now = time.monotonic()
        if is_new or now - self._learned_at > LEARN_SECONDS:
            self.answered = self.store.answered_rows()
            known = [one for one in _confirmed(self.answered) if self.has(one[0])]
            n_classes = len(self._policy().classes)
            self._learned, self._learned_at = self.stated, now
            if known:
                names, truth, answers = zip(*known, strict=True)
                codes = np.array(truth, np.int64), np.array(answers, np.int64)
                self._learned = self.stated.learn(names, *codes, n_classes=n_classes)
        return self._learned

    def _policy(self) -> _Reviewed:
        """Return what reviewers need to know of the active policy."""
        policy = self.catalog.active_served[1]
        if not isinstance(policy, Policy | Cascade):
            problem = "The review team needs a policy of one class per row"
            raise HTTPError(CONFLICT, problem, "Activate one, or serve without --team")
        return _Reviewed.of(policy)

    def _error_rates(self, team: ReviewTeam) -> list[float]:
        """Return how often each reviewer is expected to err, the mean over classes."""
        found = _answerers(team, self._policy().classes).values()
        return [float(1 - np.diag(one.likelihoods).mean()) for one in found]

    def _valued(
        self, team: ReviewTeam, rows: Sequence[WaitingRow]
    ) -> tuple[FloatArray, FloatArray]:
        """Return posteriors after the answers so far, and values; -inf for who was asked."""
        n_classes = len(self._policy().classes)
        posteriors = np.zeros((len(rows), n_classes))
        values = np.zeros((len(rows), len(team.reviewers)))
        by_policy: dict[int, list[int]] = defaultdict(list)
        for k, row in enumerate(rows):
            by_policy[row.policy_id].append(k)
        for policy_id, some in by_policy.items():
            policy = self.catalog.served(policy_id)
            assert isinstance(policy, Policy | Cascade)
            known = _Reviewed.of(policy)
            asked = _answerers(team, known.classes)
            for k in some:
                row = rows[k]
                if isinstance(policy, Policy):
                    p = stored_posterior(policy, row.probabilities, row.reason, row.model_answers)
                else:
                    p = np.frombuffer(row.probabilities, "<f4").astype(np.float64)
                for name, code in row.answers:
                    if name in asked:
                        p = asked[name].updated(p[np.newaxis], np.array([code]))[0]
                posteriors[k] = p
            columns = cost_columns(known.costs, [rows[k].row_costs for k in some])
            is_answered = np.array([bool(rows[k].answers) for k in some])
            values[some] = known.values(team, posteriors[some], is_answered, columns)
        for k, row in enumerate(rows):
            values[k, [name in row.seen_by for name in team.names]] = -np.inf
        return posteriors, np.nan_to_num(values, nan=-np.inf, neginf=-np.inf)

    def _label_of(self, team: ReviewTeam, row: WaitingRow, posterior: FloatArray) -> int:
        """Return the label of a row: one of the answers, the most credible if they differ.

        That is the one under which all answers are most probable; the model only breaks
        ties. Metrics and refits use labels, so the model has no other influence on them. For an
        audited row it is the last answer.
        """
        if row.is_audit:
            return row.answers[-1][1]
        classes = self._policy().classes
        asked = _answerers(team, classes)
        found = [asked[name].likelihoods[:, code] for name, code in row.answers if name in asked]
        fit = np.log(np.maximum(found, 1e-300)).sum(axis=0) if found else np.zeros(len(classes))
        given = sorted({code for _, code in row.answers})
        return max(given, key=lambda code: (round(float(fit[code]), 9), float(posterior[code])))

    def _used(self, now: float) -> tuple[dict[str, int], dict[str, int]]:
        """Return how many rows each reviewer has reviewed today, and this hour."""
        hour, day = periods(now, 0, 0)
        return self.store.used_capacity(day.start), self.store.used_capacity(hour.start)

    def _left(
        self, now: float, held: Counter[str], members: dict[str, tuple[float, float]]
    ) -> IntArray:
        """Return how many rows reviewers who are there can still review today, and this hour."""
        [day] = periods(now, None, 0)
        used, this_hour = self._used(now)
        left = []
        for one in self.stated.reviewers:
            today = one.capacity - used.get(one.name, 0) - held[one.name]
            if (limit := _hourly_limit(one)) is None:
                soon = today
            else:
                assert one.rows_per_hour is not None
                today = min(today, int(np.ceil(one.rows_per_hour * (day.end - now) / 3600)))
                soon = min(today, limit - this_hour.get(one.name, 0) - held[one.name])
            is_present = _is_present(members[one.name], now)
            left.append((today * is_present, soon * is_present))
        return np.maximum(np.array(left, np.int64).T, 0)

    def _snapshot(self, now: float, claiming: int | None = None) -> _QueueSnapshot:
        """Return the queue, and the prices of rows that wait and are expected.

        Who claims is there, whenever it was last seen.
        """
        team, members = self._team(), self.store.team_members()
        if claiming is not None:
            name = team.names[claiming]
            members[name] = (members[name][0], now)
        rows = self.store.waiting_rows(now, MAX_ROWS)
        posteriors, values = self._valued(team, rows)
        held = _count_held(rows)
        left, left_this_hour = self._left(now, held, members)
        [day] = periods(now, None, 0)
        arrived, n_expected = self.store.arrived_rows(now - DAY, day.end - DAY, MAX_ROWS)
        is_free = [k for k, row in enumerate(rows) if row.holder is None and not row.is_audit]
        demand = np.concatenate([values[is_free], self._valued(team, arrived)[1]])
        prices = team.prices(demand, left) if len(demand) else np.zeros(len(team.reviewers))
        return _QueueSnapshot(
            team.names, rows, posteriors, values, prices, left, n_expected,
            left_this_hour=left_this_hour,
            is_paced=np.array([one.rows_per_hour is not None for one in team.reviewers]),
            errors=np.array(self._error_rates(team)),
        )  # fmt: skip

    def _save(self, snapshot: _QueueSnapshot) -> None:
        """Store the prices, if they changed, for answers and for other processes."""
        members = self.store.team_members()
        before = np.array([members[name][0] for name in self.stated.names])
        prices = snapshot.prices
        if np.abs(prices - before).max() > snapshot.tolerance / 10:
            self.store.save_prices(dict(zip(self.stated.names, prices.tolist(), strict=True)))

    def _label_by_answers(self, snapshot: _QueueSnapshot, now: float) -> None:
        """Label the rows whose further opinions do not pay any more."""
        best = snapshot.best
        for k, row in enumerate(snapshot.rows):
            if row.answers and row.holder is None and best[k] < 0:
                code = self._label_of(self._team(), row, snapshot.posteriors[k])
                self.store.label_by_answers(row.id, len(row.answers), code, now)

    def _described(self, item: ReviewItem, snapshot: _QueueSnapshot, index: int) -> ReviewItem:
        """Return a claimed row with its value for the reviewer, and whether others answered."""
        for k, row in enumerate(snapshot.rows):
            if row.id == item.id and np.isfinite(snapshot.values[k, index]):
                value = float(snapshot.values[k, index])
                return replace(item, value_with_reviewer=value, n_answers=len(row.answers))
        return item


def _answerers(team: ReviewTeam, classes: tuple[ClassName, ...]) -> dict[str, Answerer]:
    """Return the reviewers of a team by name, with how often each answers what."""
    return dict(zip(team.names, team.answerers(classes, len(classes)), strict=True))


def _hourly_limit(one: Reviewer) -> int | None:
    """Return how many rows a reviewer may review in an hour; None without such a limit."""
    return None if one.rows_per_hour is None else max(int(one.rows_per_hour), 1)


def _is_present(member: tuple[float, float], now: float) -> bool:
    """Return whether a reviewer, of whom the price and the last claim are known, is there."""
    return now - member[1] < ABSENT_SECONDS


def _count_held(rows: Sequence[WaitingRow]) -> Counter[str]:
    """Return how many rows each reviewer has claimed."""
    return Counter(row.holder for row in rows if row.holder is not None)


def _confirmed(answered: Sequence[AnsweredRow]) -> list[tuple[str, int, int]]:
    """Return reviewer, true class and answer where the truth or two people say what is true."""
    return [
        (name, truth, code)
        for row in answered
        if (truth := row.confirmed) is not None
        for name, code in row.answers
    ]


def _agreement(answered: Sequence[AnsweredRow]) -> tuple[Counter[str], Counter[str]]:
    """Return in how many pairs of answers to one row each reviewer is, and how many agree."""
    pairs, agreeing = Counter[str](), Counter[str]()
    for row in answered:
        for name, code in row.answers:
            others = [other for person, other in row.answers if person != name]
            pairs[name] += len(others)
            agreeing[name] += others.count(code)
    return pairs, agreeing
