"""One row at a time, to one person at a time; blind where that is wished."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dubito.calibrate import IdentityCalibrator
from dubito.decide import CostMatrix, Policy
from dubito.serve.asking import AskedRows
from dubito.serve.deciding import _decide_rows
from dubito.serve.pages.review import _row_of
from dubito.serve.running import put_in_force
from dubito.serve.settings import Settings
from dubito.serve.store import Store
from tests.serve.pages.conftest import Person


def shown_row(page: str) -> str | None:
    found = re.search(r'name="item" value="([^"]*)"', page.split('action="/review"')[-1])
    return found[1] if found and 'action="/review"' in page else None


def test_rows_come_by_worth_and_those_drawn_at_random_first(anna: Person, store: Store) -> None:
    order = []
    while (name := shown_row(anna.get("/review"))) is not None:
        order.append(name)
        raw = name.replace("&lt;", "<").replace("&gt;", ">")
        answer = anna.post("/review", item=raw, answer="settle:1")
        assert (answer.status, answer.headers["location"]) == (303, "/review")
        assert store.label(raw) == 1
    assert order == ["d&lt;b&gt;", "c", "e", "b"]
    assert "Nothing waits for you" in anna.get("/review")
    assert "Row b is settled: 1." in anna.get("/review")


def test_a_row_shows_what_speaks_for_it_and_only_safe_links(anna: Person, store: Store) -> None:
    page = anna.get("/review")
    assert "Drawn at random, so that figures stand for all rows." in page
    assert "1, reason: lowest expected cost" in page
    assert "folder/d.png" in page
    assert 'href="folder' not in page
    assert "4 rows wait." in page
    assert page.count("data-key=") == 5
    for name in ("d<b>", "c", "e"):
        anna.get("/review")
        anna.post("/review", item=name, answer="settle:0")
    page = anna.get("/review")
    assert "javascript:alert(1)" in page
    assert 'href="javascript' not in page
    assert "reject, reason: rejecting costs less" in page
    item = store.next_review("anna")
    assert item is not None
    assert f"{item.review_value:.3g} of cost saved, on average" in page
    for share in item.probabilities:
        assert f"{100 * share:.1f}&nbsp;%" in page


def test_web_links_open_without_telling_where_from(anna: Person, store: Store) -> None:
    item = store.next_review("anna")
    assert item is not None
    service = anna.app.state.service
    assert _row_of(replace(item, link="https://example.org"), service)["is_web"]
    assert not _row_of(replace(item, link="data:text/html,x"), service)["is_web"]
    assert _row_of(replace(item, link="http://["), service)["link"] == "http://["


def test_blind_readers_see_nothing_of_the_models_opinion(store: Store) -> None:
    page = Person(store, "ben", ["review"], is_blind=True).sign_in().get("/review")
    assert "What the model thinks is hidden on purpose." in page
    assert "&nbsp;%" not in page
    for word in ("reason", "cost saved", "at random", "gauge", "action</dt>"):
        assert word not in page
    assert re.findall(r'class="name">(\w+)<', page) == ["0", "1", "2"]


def test_two_people_never_get_the_same_row(anna: Person, store: Store) -> None:
    ben = Person(store, "ben", ["review"]).sign_in()
    mine, theirs = shown_row(anna.get("/review")), shown_row(ben.get("/review"))
    assert mine != theirs
    assert shown_row(anna.get("/review")) == mine
    refused = ben.post("/review", item="d<b>", answer="settle:0")
    assert refused.status == 409
    assert "Nothing was changed: id &#39;d&lt;b&gt;&#39; is not held for" in refused.text
    assert store.label("d<b>") is None


def test_unsure_asks_a_second_reader_and_skipping_leaves_it_to_others(
    anna: Person, store: Store
) -> None:
    ben = Person(store, "ben", ["review"]).sign_in()
    anna.get("/review")
    anna.post("/review", item="d<b>", answer="unsure")
    page = anna.get("/review")
    assert shown_row(page) == "c"
    assert "Row d&lt;b&gt; goes to a second reader." in page
    assert "Another reader was unsure." in ben.get("/review")
    anna.post("/review", item="c", answer="skip")
    assert "Row c is left to others." in anna.get("/review")
    assert shown_row(anna.get("/review")) == "e"


def test_what_was_done_can_be_taken_back(anna: Person, store: Store) -> None:
    anna.get("/review")
    assert "Undo the last" not in anna.get("/review")
    anna.post("/review", item="d<b>", answer="settle:2")
    assert "Undo the last" in anna.get("/review")
    answer = anna.post("/review/undo", item="d<b>")
    assert answer.headers["location"] == "/review?item=d%3Cb%3E"
    assert shown_row(anna.get(answer.headers["location"])) == "d&lt;b&gt;"
    assert store.label("d<b>") is None
    refused = anna.post("/review/undo", item="d<b>")
    assert refused.status == 409
    assert "nothing of" in refused.text


def test_answers_that_no_button_gives_are_refused(anna: Person, store: Store) -> None:
    anna.get("/review")
    wrong = ["", "settle", "settle:3", "settle:-1", "settle:²", "settle:" + "1" * 5000, "activate"]
    for answer in wrong:
        refused = anna.post("/review", item="d<b>", answer=answer)
        assert refused.status == 422
        assert "The page sent no answer that is known. Try loading it again." in refused.text
    assert store.label("d<b>") is None


def test_ids_that_no_row_can_have_are_refused(anna: Person) -> None:
    anna.get("/review")
    told = "The id must be 1 to 200 printable characters."
    answer = anna.ask("GET", "/review?item=%00SECRET")
    assert (answer.status, told in answer.text) == (422, True)
    for address, form in (
        ("/review", {"item": "\x00SECRET", "answer": "skip"}),
        ("/review/undo", {"item": "\x00SECRET"}),
        ("/review", {"answer": "skip"}),
    ):
        answer = anna.post(address, **form)
        assert (answer.status, told in answer.text) == (422, True)


@pytest.mark.parametrize(("n_classes", "is_long"), [(33, False), (34, True)])
def test_every_class_has_a_key_or_can_be_found(
    n_classes: int, is_long: bool, tmp_path: Path
) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/many.db")
    names = [f"class {k}" for k in range(n_classes)]
    costs = CostMatrix.zero_one(names).with_reject(0.1)
    shares = np.full((n_classes, n_classes), 1 / n_classes)
    policy = Policy.fit(shares, np.arange(n_classes), costs=costs, calibrator=IdentityCalibrator())
    put_in_force(store, policy)
    body = {"probabilities": shares[:1].tolist(), "ids": ["a"]}
    settings = Settings(audit_share=0)
    asked = AskedRows.of(body, n_classes, settings)
    store.add_decisions(_decide_rows(asked, 1, policy, settings, np.random.default_rng(0)))
    page = Person(store, "ben", ["review"]).sign_in().get("/review")
    keys = re.findall('data-key="(.)"', page)
    assert len(keys) == len(set(keys)) == 35
    assert keys[-2:] == ["u", "s"]
    assert ('id="find"' in page) == is_long
    store.close()
