"""One row at a time, for one reviewer at a time; blind on request."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dubito.calibrate import IdentityCalibrator
from dubito.decide import CostMatrix, Policy
from dubito.serve.decide import DecisionRequest, decide_batch
from dubito.serve.pages.review import _describe, _describe_answer
from dubito.serve.policies import deploy_policy
from dubito.serve.rows import RequestRows
from dubito.serve.service import Settings
from dubito.serve.store import Store
from tests.serve.pages.conftest import Person


def shown_row(page: str) -> str | None:
    found = re.search(r'name="item" value="([^"]*)"', page.split('action="/review"')[-1])
    return found[1] if found and 'action="/review"' in page else None


def test_audited_rows_come_first_then_by_review_value(anna: Person, store: Store) -> None:
    order = []
    while (name := shown_row(anna.get("/review"))) is not None:
        order.append(name)
        raw = name.replace("&lt;", "<").replace("&gt;", ">")
        answer = anna.post("/review", item=raw, answer="label:1")
        assert (answer.status, answer.headers["location"]) == (303, "/review")
        assert store.get_label(raw) == 1
    assert order == ["d&lt;b&gt;", "c", "e", "b"]
    assert "Nothing to review" in anna.get("/review")
    assert "Row b was labeled 1." in anna.get("/review")


def test_a_row_shows_its_prediction_and_only_safe_links(anna: Person, store: Store) -> None:
    page = anna.get("/review")
    assert "Drawn at random for the audit, so that the metrics represent all rows." in page
    assert "1 (reason: lowest expected cost)" in page
    assert "folder/d.png" in page
    assert 'href="folder' not in page
    assert "4 rows wait for review." in page
    assert page.count("data-key=") == 5
    for name in ("d<b>", "c", "e"):
        anna.get("/review")
        anna.post("/review", item=name, answer="label:0")
    page = anna.get("/review")
    assert "javascript:alert(1)" in page
    assert 'href="javascript' not in page
    assert "reject (reason: lower cost)" in page
    item = store.claim_review("anna")
    assert item is not None
    assert f"A label is expected to save a cost of {item.review_value:.3g}." in page
    for share in item.probabilities:
        assert f"{100 * share:.1f}&nbsp;%" in page


def test_only_web_links_are_links(anna: Person, store: Store) -> None:
    item = store.claim_review("anna")
    assert item is not None
    service = anna.app.state.service
    assert _describe(replace(item, link="https://example.org"), service)["is_web"]
    assert not _describe(replace(item, link="data:text/html,x"), service)["is_web"]
    assert _describe(replace(item, link="http://["), service)["link"] == "http://["


def test_blind_reviewers_see_no_prediction(store: Store) -> None:
    page = Person(store, "ben", ["review"], blind=True).sign_in().get("/review")
    assert "Predictions are hidden on purpose." in page
    assert "&nbsp;%" not in page
    for word in ("reason", "save a cost", "at random", "gauge", "Action of the policy"):
        assert word not in page
    assert re.findall(r'class="name">(\w+)<', page) == ["0", "1", "2"]


def test_two_people_never_get_the_same_row(anna: Person, store: Store) -> None:
    ben = Person(store, "ben", ["review"]).sign_in()
    mine, theirs = shown_row(anna.get("/review")), shown_row(ben.get("/review"))
    assert mine != theirs
    assert shown_row(anna.get("/review")) == mine
    rejected = ben.post("/review", item="d<b>", answer="label:0")
    assert rejected.status == 409
    assert "Nothing was changed: id &#39;d&lt;b&gt;&#39; is not claimed by" in rejected.text
    assert store.get_label("d<b>") is None


def test_escalated_and_skipped_rows_go_to_others(anna: Person, store: Store) -> None:
    ben = Person(store, "ben", ["review"]).sign_in()
    anna.get("/review")
    anna.post("/review", item="d<b>", answer="escalate")
    page = anna.get("/review")
    assert shown_row(page) == "c"
    assert "Row d&lt;b&gt; was escalated to a second reviewer." in page
    assert "Another reviewer escalated this row." in ben.get("/review")
    anna.post("/review", item="c", answer="skip")
    assert "Row c was skipped." in anna.get("/review")
    assert shown_row(anna.get("/review")) == "e"


def test_answers_can_be_undone(anna: Person, store: Store) -> None:
    anna.get("/review")
    assert "Undo the last" not in anna.get("/review")
    anna.post("/review", item="d<b>", answer="label:2")
    assert "Undo the last" in anna.get("/review")
    answer = anna.post("/review/undo", item="d<b>")
    assert answer.headers["location"] == "/review?item=d%3Cb%3E"
    assert shown_row(anna.get(answer.headers["location"])) == "d&lt;b&gt;"
    assert store.get_label("d<b>") is None
    rejected = anna.post("/review/undo", item="d<b>")
    assert rejected.status == 409
    assert "has nothing to undo" in rejected.text


def test_unknown_answers_are_rejected(anna: Person, store: Store) -> None:
    anna.get("/review")
    wrong = ["", "label", "label:3", "label:-1", "label:²", "label:" + "1" * 5000, "activate"]
    for answer in wrong:
        rejected = anna.post("/review", item="d<b>", answer=answer)
        assert rejected.status == 422
        assert "The page sent an unknown answer. Reload the page." in rejected.text
    assert store.get_label("d<b>") is None


def test_invalid_ids_are_rejected(anna: Person) -> None:
    anna.get("/review")
    message = "The id must be 1 to 200 printable characters"
    answer = anna.ask("GET", "/review?item=%00SECRET")
    assert (answer.status, message in answer.text) == (422, True)
    for address, form in (
        ("/review", {"item": "\x00SECRET", "answer": "skip"}),
        ("/review/undo", {"item": "\x00SECRET"}),
        ("/review", {"answer": "skip"}),
    ):
        answer = anna.post(address, **form)
        assert (answer.status, message in answer.text) == (422, True)


@pytest.mark.parametrize(("n_classes", "has_search"), [(33, False), (34, True)])
def test_every_class_has_a_key_or_can_be_found(
    n_classes: int, has_search: bool, tmp_path: Path
) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/many.db")
    names = [f"class {k}" for k in range(n_classes)]
    costs = CostMatrix.zero_one(names).with_reject(0.1)
    shares = np.full((n_classes, n_classes), 1 / n_classes)
    policy = Policy.fit(shares, np.arange(n_classes), costs=costs, calibrator=IdentityCalibrator())
    deploy_policy(store, policy)
    body = {"probabilities": shares[:1].tolist(), "ids": ["a"]}
    settings = Settings(audit_fraction=0)
    request = DecisionRequest(RequestRows.of(body, policy, settings), 1, policy)
    [new] = decide_batch([request], settings, np.random.default_rng(0))
    store.add_decisions(new)
    page = Person(store, "ben", ["review"]).sign_in().get("/review")
    keys = re.findall('data-key="(.)"', page)
    assert len(keys) == len(set(keys)) == 35
    assert keys[-2:] == ["e", "s"]
    assert ('id="find"' in page) == has_search
    store.close()


def test_the_last_answer_of_each_reviewer(store: Store) -> None:
    def last(reviewer: str) -> tuple[str, str, int | None] | None:
        found = store.last_review(reviewer)
        return None if found is None else (found["decision_id"], found["kind"], found["label"])

    assert last("anna") is None
    for _ in range(2):
        item = store.claim_review("anna")
        assert item is not None
        store.label_review(item.id, "anna", 2)
    item = store.claim_review("ben")
    assert item is not None
    store.pass_review(item.id, "ben", "skip")
    assert last("anna") == ("c", "label", 2)
    assert last("ben") == (item.id, "skip", None)
    store.undo_review("c", "anna")
    assert last("anna") == ("d<b>", "label", 2)


def test_the_last_answer_is_described() -> None:
    for kind, label, text in (
        ("label", 1, "Row a was labeled 7."),
        ("escalate", None, "Row a was escalated to a second reviewer."),
        ("skip", None, "Row a was skipped."),
    ):
        last = {"decision_id": "a", "kind": kind, "label": label, "answers": None}
        assert _describe_answer(last, ["cat", 7]) == text
