"""The review queue of a team: values, skills, capacity, second opinions, agreement, restarts."""

import re
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from threading import Thread
from typing import Any

import httpx
import numpy as np
import pytest

from dubito.decide import Reviewer, ReviewTeam
from dubito.errors import BadValueError
from dubito.serve import team as team_module
from dubito.serve.http_errors import HTTPError
from dubito.serve.service import PolicyCatalog, Settings
from dubito.serve.store import NewDecisions, Store
from dubito.serve.store import review as review_module
from dubito.serve.store.review import AnsweredRow, periods
from dubito.serve.team import TeamQueue
from tests.serve.conftest import SURE, TORN, Api

New = Callable[..., NewDecisions]
NOON = time.mktime((2026, 3, 5, 12, 10, 0, 0, 0, -1))
OF_TWO = [0.3, 0.2, -9.0]  # between a and b
DOUBTS = [[0.5, 0.1, -9.0], [0.3, 0.0, -9.0], [0.2, 0.1, -9.0]]  # all are rejected


class Clock:
    """The time of the service, which stands still."""

    def __init__(self, now: float) -> None:
        self.now, self.monotonic = now, time.monotonic

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock(NOON)
    for module in (team_module, review_module):
        monkeypatch.setattr(module, "time", found)
    return found


def queue_of(store: Store, *reviewers: Reviewer, **settings: Any) -> TeamQueue:
    return TeamQueue.open(ReviewTeam(reviewers), store, PolicyCatalog(store), Settings(**settings))


def ask(queue: TeamQueue, name: str) -> str:
    item = queue.claim(name)
    assert item is not None
    return item.id


def test_each_row_goes_to_whom_it_is_worth_most_with(store: Store, new: New, clock: Clock) -> None:
    queue = queue_of(store, Reviewer("ann", 1, 0.02), Reviewer("bob", 2, 0.25))
    store.add_decisions(new({"much": TORN, "some": DOUBTS[0], "less": [1.2, 0.0, -9.0]}))
    assert queue.next_ids("bob")[0] != "much"
    first = ask(queue, "bob")
    assert ask(queue, "ann") == "much"
    assert first == "some"
    assert ask(queue, "bob") == first  # the same until it is answered
    store.label_review("much", "ann", 0)
    with pytest.raises(HTTPError) as caught:
        queue.claim("ann")
    again = r"ann has reached the limit of 1 review today\. Come back tomorrow at 00:00 .*\."
    assert re.fullmatch(again, str(caught.value))
    assert (caught.value.status, caught.value.retry_after) == (429, 11 * 3600 + 3001)


def test_rows_are_left_for_others_while_they_are_there(
    store: Store, new: New, clock: Clock
) -> None:
    queue = queue_of(store, Reviewer("ann", 9, 0.02), Reviewer("bob", 9, 0.25))
    store.add_decisions(new({"x": TORN}))
    assert queue.claim("bob") is None
    assert queue.waits("bob") == "1 row is worth more with other reviewers."
    clock.now += 2 * 86_400  # ann has not come for two days
    assert ask(queue, "bob") == "x"
    assert not queue.report().reviewers[0].is_present


def test_skills_are_respected(store: Store, new: New, clock: Clock) -> None:
    queue = queue_of(
        store, Reviewer("ann", 9, 0.02, skills=["c"]), Reviewer("bob", 9, 0.2, skills=["a", "b"])
    )
    store.add_decisions(new({"ab": OF_TWO}))
    store.add_decisions(new({"drawn": SURE}, audit_fraction=1.0))
    assert queue.claim("ann") is None
    assert queue.claim("ann", "ab") is None
    assert ask(queue, "bob") == "drawn"
    queue.label("drawn", "bob", 2)
    assert store.get_label("drawn") == 2  # the answer itself, whatever the model predicts
    assert ask(queue, "bob") == "ab"


def test_capacity_is_by_hour_and_by_day(store: Store, new: New, clock: Clock) -> None:
    queue = queue_of(store, Reviewer("ann", 3, 0.02, rows_per_hour=2))
    store.add_decisions(new(dict.fromkeys("vwxyz", TORN)))
    for kind in ("skip", "escalate"):  # to look at a row takes time, too
        store.pass_review(ask(queue, "ann"), "ann", kind)
    with pytest.raises(HTTPError, match=r"of 2 reviews this hour\. Come back at 13:00"):
        queue.claim("ann")
    assert queue.status("ann") == "Your reviews: 2 of 2 this hour, 2 of 3 today."
    clock.now += 3600
    last = ask(queue, "ann")
    queue.label(last, "ann", 1)
    with pytest.raises(HTTPError, match=r"of 3 reviews today\. Come back tomorrow"):
        queue.claim("ann")
    assert queue.undo(last, "ann").id == last
    queue.label(last, "ann", 0)
    clock.now += 86_400
    store.pass_review(ask(queue, "ann"), "ann", "skip")
    ask(queue, "ann")
    with pytest.raises(HTTPError, match="this hour"):  # yesterday's answer would be one more
        queue.undo(last, "ann")


def test_a_second_opinion_is_asked_where_it_pays(store: Store, new: New, clock: Clock) -> None:
    reviewers = [Reviewer("ann", 9, 0.1, cost=0.01), Reviewer("bob", 9, 0.1, cost=0.01)]
    queue = queue_of(store, *reviewers, Reviewer("cy", 9, 0.1, cost=0.01))
    store.add_decisions(new({"x": DOUBTS[0]}))
    assert ask(queue, "ann") == "x"
    queue.label("x", "ann", 1)  # against the model: uncertain
    assert store.get_label("x") is None
    assert queue.claim("ann") is None
    assert "1 row is waiting for an answer of someone else" in queue.waits("ann")
    with pytest.raises(HTTPError, match="not claimed by 'bob'"):
        queue.label("x", "bob", 1)
    item = queue.claim("bob")
    assert item is not None
    assert (item.id, item.n_answers) == ("x", 1)
    assert queue.claim("cy") is None  # no one else at the same time
    queue.label("x", "bob", 1)
    assert store.get_label("x") == 1
    report = queue.report()
    assert (report.n_pairs, report.n_agreeing) == (1, 1)
    assert [one.n_confirmed for one in report.reviewers] == [1, 1, 0]
    with pytest.raises(HTTPError, match="with another reviewer"):
        queue.undo("x", "ann")
    queue.undo("x", "bob")
    queue.label("x", "bob", 0)
    assert store.get_label("x") is None  # two against each other, a third one pays
    assert ask(queue, "cy") == "x"
    queue.label("x", "cy", 0)
    assert store.get_label("x") == 0
    report = queue.report()
    assert (report.n_pairs, report.n_agreeing) == (3, 1)
    assert [one.n_confirmed for one in report.reviewers] == [1, 1, 1]
    assert report.reviewers[0].error_rate > report.reviewers[1].error_rate


def test_labels_are_answers_and_actions_follow_costs(store: Store, new: New, clock: Clock) -> None:
    weak = Reviewer("bob", 9, confusion=[[0.5, 0.5, 0], [0.45, 0.55, 0], [0, 0, 1]])
    queue = queue_of(store, weak)
    store.add_decisions(new({"x": DOUBTS[0]}))
    assert queue.claim("bob", "x") is not None
    queue.label("x", "bob", 1)
    assert store.get_label("x") == 1  # though a is more probable
    row = store.get_decision("x")
    assert row is not None
    assert [one[:2] for one in store.answers_of("x")] == [("bob", 1)]
    after = queue.outcome(row, [("bob", 1)])
    p = np.frombuffer(row["probabilities"], "<f4").astype(float) * [0.5, 0.55, 0]
    np.testing.assert_allclose(after.probabilities, p / p.sum(), rtol=1e-6)
    assert after.action == "a"


def test_of_different_answers_the_most_credible_is_the_label(
    store: Store, new: New, clock: Clock
) -> None:
    careful, weak = Reviewer("ann", 1, 0.05, cost=0.01), Reviewer("bob", 9, 0.4)
    queue = queue_of(store, weak, careful)
    store.add_decisions(new({"x": [0.1, 0.0, -9.0]}))
    assert queue.claim("bob", "x") is not None
    queue.label("x", "bob", 0)
    assert store.get_label("x") is None
    assert ask(queue, "ann") == "x"
    queue.label("x", "ann", 1)
    assert store.get_label("x") == 1


def test_audited_rows_go_to_the_most_careful(store: Store, new: New, clock: Clock) -> None:
    queue = queue_of(store, Reviewer("ann", 1, 0.02), Reviewer("bob", 9, 0.3))
    store.add_decisions(new({"x": SURE}, audit_fraction=1.0))
    assert queue.claim("bob") is None
    assert queue.waits("bob") == "1 row is left for the audit of a more careful reviewer."
    store.add_decisions(new({"y": SURE}, audit_fraction=1.0))
    ask(queue, "bob")  # ann has time for one of them only
    assert queue.claim("ann") is not None
    assert {row.holder for row in store.waiting_rows(clock.now, 9)} == {"ann", "bob"}


def test_no_one_idles_while_others_cannot_reach_rows(store: Store, new: New, clock: Clock) -> None:
    ann = Reviewer("ann", 9, 0.02, rows_per_hour=1)
    bob, cy = (Reviewer(name, 9, e, rows_per_hour=1) for name, e in (("bob", 0.2), ("cy", 0.3)))
    queue = queue_of(store, ann, bob, cy)
    store.add_decisions(new({"much": TORN, "some": DOUBTS[0]}))
    assert queue.next_ids("bob") == ["some"]
    assert queue.next_ids("ann")[0] == "much"
    assert queue.claim("cy") is None  # the others can reach all rows
    assert queue.waits("cy") == "2 rows are worth more with other reviewers."
    store.add_decisions(new({"less": [1.0, 0.0, -9.0]}))
    assert queue.next_ids("cy") == ["less"]


def test_queues_keep_to_capacity_and_add_up(store: Store, new: New, clock: Clock) -> None:
    ann, bob = Reviewer("ann", 3, 0.02), Reviewer("bob", 2, 0.2, rows_per_hour=20)
    queue = queue_of(store, ann, bob, Reviewer("cy", 0, 0.01))
    store.add_decisions(new({f"{k}": [0.1 * k, 0.0, -9.0] for k in range(7)}))
    store.add_decisions(new({"drawn": SURE, "too": SURE}, audit_fraction=1.0))
    store.add_decisions(new({"mild": [1.9, 0.0, -9.0]}))
    ask(queue, "ann")
    for _ in range(3):
        report = queue.report()
        rows = [one.queue for one in report.reviewers]
        left = [one.left_today for one in report.reviewers]
        assert all(n <= most for n, most in zip(rows, left, strict=True))
        assert sum(rows) + report.beyond_capacity + report.unassigned == report.waiting
        queue.label(ask(queue, "ann"), "ann", 0)
    assert rows == [1, 2, 0]  # of the last round: ann has one review left
    assert report.audited == 0
    assert report.beyond_capacity + report.unassigned == report.waiting - 3


def test_a_row_is_final_when_no_one_can_be_asked(store: Store, new: New, clock: Clock) -> None:
    queue = queue_of(store, Reviewer("ann", 9, 0.1), Reviewer("bob", 9, 0.1))
    store.add_decisions(new({"x": DOUBTS[0]}))
    ask(queue, "ann")
    queue.label("x", "ann", 1)
    assert store.get_label("x") is None
    clock.now += 2 * 86_400  # bob does not come
    assert queue.claim("ann") is None
    assert store.get_label("x") == 1
    assert queue.undo("x", "ann").id == "x"


def test_error_rates_are_learned_from_the_truth(store: Store, new: New) -> None:
    queue = queue_of(store, Reviewer("ann", 99, 0.1), Reviewer("bob", 0, 0.1))
    rows = {f"{k}": [*TORN[:2], 0.01 * k] for k in range(12)}
    store.add_decisions(new(rows))
    for _ in rows:
        queue.label(ask(queue, "ann"), "ann", 0)
    before = queue.report().reviewers[0]
    assert (before.n_confirmed, before.used_today) == (0, 12)
    store.add_labels(list(rows), [1] * 8 + [0] * 4, truth_by="program")
    ann, bob = queue.report().reviewers
    assert (ann.n_confirmed, ann.error_rate > 0.2 > bob.error_rate) == (12, True)


def test_prices_count_what_is_expected_and_survive(store: Store, new: New, clock: Clock) -> None:
    clock.now -= 86_400
    reviewers = [Reviewer("ann", 3, 0.02, rows_per_hour=2), Reviewer("bob", 3, 0.25)]
    queue = queue_of(store, *reviewers)
    clock.now += 1200
    yesterday = {f"y{k}": TORN for k in range(20)}
    made = new(yesterday)
    made.columns["created"] = [clock.now] * 20
    store.add_decisions(made)
    store.add_labels(list(yesterday), [0] * 20)
    clock.now += 86_400 - 1200
    made = new({"mild": [1.2, 0.0, -9.0]})
    made.columns["created"] = [clock.now] * 1
    store.add_decisions(made)
    assert queue.claim("ann") is None  # better rows are coming
    report = queue.report()
    assert (report.expected, report.waiting, report.unassigned) == (20, 1, 1)
    ann = report.reviewers[0]
    assert ann.shadow_price > 0.1
    assert ann.hour_saves == pytest.approx(2 * ann.shadow_price)
    kept = store.team_members()["ann"][0]
    assert kept == pytest.approx(ann.shadow_price, rel=0.01)
    clock.now += 7200  # what was expected did not come
    assert ask(queue_of(store, *reviewers), "ann") == "mild"  # after a restart


@pytest.mark.slow
def test_many_claim_at_once(store: Store, new: New) -> None:
    capacity = {"ann": 7, "bob": 5, "cy": 6, "dee": 4, "eve": 3}
    reviewers = [Reviewer(name, n, 0.2, cost=0.001) for name, n in capacity.items()]
    rows = {f"{k}": [0.3, 0.02 * k, -9.0] for k in range(14)}
    store.add_decisions(new(rows))
    held: dict[str, list[tuple[float, float, str]]] = {name: [] for name in rows}
    problems: list[HTTPError] = []

    def work(queue: TeamQueue, name: str) -> None:
        answers = np.random.default_rng(len(name))
        for _ in range(40):
            try:
                item = queue.claim(name)
            except HTTPError as error:
                problems.extend([error] * (error.status != 429))
                return
            if item is None:
                continue
            start = time.perf_counter()
            time.sleep(0.001)
            end = time.perf_counter()
            with suppress(HTTPError):  # the other window was first
                queue.label(item.id, name, int(answers.integers(2)))
                held[item.id].append((end, start, name))

    # Two people per name, as in two windows, and a queue each, as in two processes.
    threads = [
        Thread(target=work, args=(queue_of(store, *reviewers), name))
        for name in capacity
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queue = queue_of(store, *reviewers)  # restarted
    used = {one.name: one.used_today for one in queue.report().reviewers}
    assert all(used[name] <= most for name, most in capacity.items())
    assert sum(used.values()) > len(rows)  # second opinions
    answered = store.answered_rows()
    assert sum(len(one.answers) for one in answered) == sum(used.values())
    assert problems == []
    for holds in held.values():
        # Until the first of two windows answered, the row was held for both.
        first = {name: (start, end) for end, start, name in sorted(holds, reverse=True)}
        for (_, end), (start, _) in pairwise(sorted(first.values())):
            assert end < start


def test_the_api_of_a_team(small_store: Store, running: Callable[..., Api]) -> None:
    reviewers = [Reviewer("ann", 1, 0.02, rows_per_hour=5), Reviewer("bob", 2, 0.2)]
    api = running(small_store, team=ReviewTeam(reviewers))
    bob, eve = api.client_of("bob", "review"), api.client_of("eve", "review")
    api.client.post("/v1/decide", json={"logits": DOUBTS, "ids": ["x", "y", "z"]})
    assert len(bob.get("/v1/review").json()["next"]) >= 2
    item = api.client.post("/v1/review").json()["item"]
    assert item["is_second_opinion"] is False
    first = item
    stored = api.client.get(f"/v1/decisions/{first['id']}").json()
    assert first["review_value"] == stored["review_value"] != first["value_with_reviewer"]
    assert first["value_with_reviewer"] > 0
    api.client.post(f"/v1/review/{item['id']}", json={"action": "label", "label": "a"})
    full = api.client.post("/v1/review")
    assert full.status_code == 429
    assert 0 < int(full.headers["retry-after"]) <= 86_401
    assert full.json()["detail"].startswith(
        "ann has reached the limit of 1 review today. Come back"
    )
    rejected = eve.post("/v1/review")
    assert (rejected.status_code, rejected.json()["detail"]) == (
        403,
        "'eve' is not on the review team. Add the reviewer to the file of --team, or use a token "
        "whose name is on it.",
    )
    for _ in range(2):
        item = bob.post("/v1/review").json()["item"]
        assert bob.post(f"/v1/review/{item['id']}", json={"action": "skip"}).status_code == 200
    found = eve.get("/v1/team").json()
    ann = found["reviewers"][0]
    assert (ann["used_today"], ann["capacity"], ann["rows_per_hour"]) == (1, 1, 5)
    assert (ann["error_rate"], ann["queue"], ann["left_today"]) == (0.02, 0, 0)
    assert (found["beyond_capacity"], found["unassigned"]) == (2, 0)
    assert (found["waiting"], ann["shadow_price"] > 0) == (2, True)
    page = api.client.get("/monitor").text
    assert "Review team" in page
    assert "2 rows wait: 2 beyond today&#39;s capacity.<" in page
    assert "0 more" not in page
    rejected = eve.get("/review")
    assert rejected.status_code == 403
    assert "not on the review team" in rejected.text
    assert '<a href="/monitor">Monitor</a>' in rejected.text
    form = httpx.get(f"{api.address}/sign-in")
    csrf = re.search(r'name="csrf" value="([^"]+)"', form.text)
    assert csrf is not None
    boss = {"csrf": csrf[1], "token": small_store.create_token("boss", ["review", "admin"])}
    there = httpx.post(f"{api.address}/sign-in", data=boss, cookies=form.cookies)
    assert (there.status_code, there.headers["location"]) == (303, "/monitor")
    stored = api.client.get(f"/v1/decisions/{first['id']}").json()
    [given] = stored["reviewer_answers"]
    assert (given["reviewer"], given["label"], stored["label"]) == ("ann", "a", "a")
    assert sum(stored["probabilities_after_review"]) == pytest.approx(1)
    assert stored["action_after_review"] == "a"


def test_a_service_without_a_team_says_so(shared_api: Api) -> None:
    answer = shared_api.client.get("/v1/team")
    assert answer.status_code == 404
    assert answer.json()["detail"].startswith("This service has no review team. Start it with")


@pytest.mark.parametrize(
    ("team", "message"),
    [
        (ReviewTeam([Reviewer("a", 1, 0.1, skills=["dog"])]), "skills"),
        (ReviewTeam([Reviewer("a", 1, 0.1)], ["a", "c", "b"]), "must have the classes a, b, c"),
        (ReviewTeam([Reviewer("a", 1, 0.1, cost="2 * fee")]), "got fee"),
    ],
)
def test_a_team_must_fit_the_policy(small_store: Store, team: ReviewTeam, message: str) -> None:
    with pytest.raises((BadValueError, TypeError), match=message):
        TeamQueue.open(team, small_store, PolicyCatalog(small_store), Settings())


def test_what_confirms_an_answer() -> None:
    two = (("ann", 1), ("bob", 1))
    assert AnsweredRow(two, None).confirmed == 1
    assert AnsweredRow(two, 0).confirmed == 0
    assert AnsweredRow((("ann", 1),), None).confirmed is None
    assert AnsweredRow((("ann", 1), ("bob", 0)), None).confirmed is None
    assert AnsweredRow((*two, ("cy", 0)), None).confirmed == 1
    assert AnsweredRow((*two, ("cy", 0), ("dee", 0)), None).confirmed is None


def test_periods_are_those_of_the_clock() -> None:
    hour, day = periods(NOON, 5, 40)
    assert (NOON - hour.start, hour.end - NOON, hour.capacity) == (600, 3000, 5)
    assert time.localtime(day.start)[3:6] == time.localtime(day.end)[3:6] == (0, 0, 0)
    assert day.start < NOON < day.end
