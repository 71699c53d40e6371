"""The whole cycle in a browser: reject, review by keyboard, label, monitor."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect

from dubito.calibrate import IdentityCalibrator
from dubito.decide import CostMatrix, Policy, ReviewTeam
from dubito.serve.app import create_app
from dubito.serve.policies import deploy_policy
from dubito.serve.run import open_socket
from dubito.serve.service import Settings
from dubito.serve.store import Store
from studies.common.serving import fitted_label_policy, fitted_value_policy
from tests.serve.stored import draw, fitted_policy

DOUBTFUL = [[0.3, 0.2, 0.0], [0.5, 0.0, 0.1], [0.0, 0.2, 0.6]]  # all are rejected


@pytest.fixture(scope="module")
def policy(request: Any) -> Policy:
    n_classes = getattr(request, "param", 3)
    if n_classes == 3:
        return fitted_policy()
    costs = CostMatrix.zero_one([f"class {k}" for k in range(n_classes)]).with_reject(0.25)
    known = np.eye(n_classes)
    return Policy.fit(known, np.arange(n_classes), costs=costs, calibrator=IdentityCalibrator())


class Served:
    """A service on a port of its own, in a thread."""

    def __init__(
        self,
        store: Store,
        listener: socket.socket,
        reviewers: ReviewTeam | None = None,
        **settings: Any,
    ) -> None:
        self.store, self.token = store, store.create_token("program", ["decide"])
        self.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(
            create_app(store, Settings(**settings), reviewers), log_config=None, lifespan="off"
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]})
        self.thread.start()

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join()
        self.store.close()

    def send(self, path: str, body: dict[str, Any]) -> Any:
        """Ask the API as a program does."""
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        request = Request(self.address + path, json.dumps(body).encode(), headers)
        with urlopen(request, timeout=10) as answer:
            return json.load(answer)


@pytest.fixture
def served(policy: Policy, tmp_path: Path, request: Any) -> Iterator[Served]:
    store = Store.open(f"sqlite:///{tmp_path}/dubito.db")
    deploy_policy(store, policy)
    service = Served(store, open_socket("127.0.0.1", 0), **getattr(request, "param", {}))
    yield service
    service.stop()


class Someone:
    """A person at the pages, and the requests and console messages of their browser."""

    def __init__(self, browser: Browser, served: Served, name: str, **settings: Any) -> None:
        self.served, self.token = served, served.store.create_token(name, ["review", "admin"])
        self.context = browser.new_context(**settings)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(10_000)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(f"{served.address}/")
        self.page.get_by_label("Token").fill(self.token)
        self.page.get_by_label("Token").press("Enter")
        self.page.wait_for_url("**/review")

    def row(self) -> str:
        """Return which row is shown."""
        return self.page.locator("h1").inner_text().removeprefix("Row ")

    def press(self, key: str) -> str:
        """Answer by a key, and return which row comes next."""
        before = self.page.locator("body").evaluate("body => body.dataset.seen = 'yes'")
        assert before == "yes"
        self.page.keyboard.press(key)
        expect(self.page.locator("body[data-seen]")).to_have_count(0)
        self.page.wait_for_load_state("load")
        return self.row()

    def leave(self) -> None:
        """Check that all went well behind the scenes."""
        assert self.complaints == []
        assert all(url.startswith((self.served.address, "data:")) for url in self.requests)
        assert not any(self.token in url for url in self.requests)
        self.context.close()


@pytest.mark.slow
def test_the_whole_round(browser: Browser, served: Served, policy: Policy) -> None:
    answer = served.send("/v1/decide", {"logits": DOUBTFUL, "ids": ["a", "b", "c"]})
    assert len(answer["decisions"]) == 3
    anna = Someone(browser, served, "anna")
    expect(anna.page.locator("#status")).to_contain_text("3 rows wait for review.")
    anna.page.goto(f"{served.address}/monitor")
    expect(anna.page.locator("#labels")).to_contain_text(
        "0 labels in the last 30 days; 3 rows wait"
    )
    anna.page.get_by_role("link", name="Review", exact=True).click()
    first = anna.row()
    second = anna.press("2")
    assert (served.store.get_label(first), second != first) == (1, True)
    status = anna.page.locator("#status")
    expect(status).to_contain_text(f"Row {first} was labeled 1.")
    assert status.get_attribute("aria-live") == "polite"
    assert anna.page.evaluate("document.activeElement.id") == "row"
    assert anna.press("z") == first
    assert served.store.get_label(first) is None
    anna.press("3")
    assert served.store.get_label(first) == 2
    anna.page.goto(f"{served.address}/monitor")
    expect(anna.page.locator("#labels")).to_contain_text("1 label in the last 30 days; 2 rows wait")
    anna.leave()


def test_two_reviewers_an_escalation_and_keys_without_effect(
    browser: Browser, served: Served
) -> None:
    served.send("/v1/decide", {"logits": DOUBTFUL, "ids": ["a", "b", "c"]})
    anna, ben = (Someone(browser, served, name) for name in ("anna", "ben"))
    mine, theirs = anna.row(), ben.row()
    assert mine != theirs
    for key in ("9", "Control+1", "x", "Escape"):
        anna.page.keyboard.press(key)
    assert anna.row() == mine
    third = anna.press("e")
    assert third not in (mine, theirs)
    assert ben.press("s") == mine
    expect(ben.page.locator(".facts")).to_contain_text("Another reviewer escalated this row.")
    ben.press("1")
    assert served.store.get_label(mine) == 0
    anna.leave()
    ben.leave()


def test_it_works_without_a_script(browser: Browser, served: Served) -> None:
    served.send("/v1/decide", {"logits": DOUBTFUL[:1], "ids": ["a"]})
    anna = Someone(browser, served, "anna", java_script_enabled=False)
    anna.page.get_by_role("button", name="2", exact=False).first.click()
    expect(anna.page.locator("h1")).to_have_text("Nothing to review")
    assert served.store.get_label("a") is not None
    anna.page.get_by_role("button", name="Undo the last answer").click()
    expect(anna.page.locator("h1")).to_have_text("Row a")
    anna.page.get_by_role("button", name="Sign out anna").click()
    expect(anna.page.locator("h1")).to_have_text("Sign in with a token")
    anna.page.goto(f"{served.address}/review")
    assert anna.page.url.endswith("/sign-in")
    anna.leave()


@pytest.mark.parametrize("served", [{"blind": True}], indirect=True)
def test_blind_reviewers_see_no_prediction_on_a_phone_in_dark_mode(
    browser: Browser, served: Served
) -> None:
    served.send("/v1/decide", {"logits": DOUBTFUL[:1], "ids": ["a" * 200]})
    phone: Any = {"viewport": {"width": 360, "height": 700}, "color_scheme": "dark"}
    anna = Someone(browser, served, "anna", **phone)
    expect(anna.page.locator("body")).to_contain_text("Predictions are hidden on purpose.")
    assert anna.page.locator(".probability, .gauge").count() == 0
    for path in ("/review", "/monitor"):
        anna.page.goto(served.address + path)
        assert anna.page.evaluate("document.documentElement.scrollWidth") <= 360
    ink = anna.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ink == "rgb(20, 23, 27)"
    anna.leave()


@pytest.mark.slow
@pytest.mark.parametrize("served", [{"audit_fraction": 0.3}], indirect=True)
def test_labels_a_candidate_and_its_activation(
    browser: Browser, served: Served, policy: Policy
) -> None:
    logits, y = draw(np.random.default_rng(1), 600, 2.7)
    ids = [f"r{k}" for k in range(600)]
    served.send("/v1/decide", {"logits": logits.tolist(), "ids": ids})
    anna = Someone(browser, served, "anna")
    served.send("/v1/labels", {"ids": ids, "labels": y.tolist()})
    anna.page.goto(f"{served.address}/monitor")
    expect(anna.page.locator("#labels")).to_contain_text(
        "600 labels in the last 30 days; 0 rows wait"
    )
    assert anna.page.get_by_text("unknown", exact=True).count() == 0
    assert anna.page.locator("svg circle").count() > 4
    before = served.store.active_id()
    anna.page.get_by_role("button", name="Refit to the labels so far").click()
    activate = anna.page.get_by_role("button", name="Activate policy 2")
    expect(activate).to_be_visible()
    assert served.store.active_id() == before
    activate.click()
    expect(anna.page.locator("h1")).to_have_text("Active policy: 2")
    assert served.store.active_id() == 2
    anna.page.get_by_role("button", name="Roll back to policy 1").click()
    expect(anna.page.locator("h1")).to_have_text("Active policy: 1")
    assert served.store.active_id() == 1
    anna.leave()


@pytest.mark.parametrize("policy", [40], indirect=True)
def test_one_of_many_classes_is_found_by_name(browser: Browser, served: Served) -> None:
    served.send("/v1/decide", {"logits": [[0.0] * 40] * 3, "ids": ["a", "b", "c"]})
    anna = Someone(browser, served, "anna")
    first = anna.row()
    second = anna.press("w")  # the 31st key
    assert served.store.get_label(first) == 30
    anna.page.keyboard.press("/")
    anna.page.keyboard.type("CLASS 3")
    expect(anna.page.locator("button.choice:visible")).to_have_count(11)
    assert anna.row() == second
    third = anna.press("Enter")
    assert served.store.get_label(second) == 3
    anna.page.keyboard.press("/")
    anna.page.keyboard.type("39")
    expect(anna.page.locator("button.choice:visible")).to_have_count(1)
    anna.page.keyboard.press("Escape")
    expect(anna.page.locator("button.choice:visible")).to_have_count(40)
    anna.page.keyboard.press("/")
    anna.page.keyboard.type("39")
    anna.press("Enter")
    assert served.store.get_label(third) == 39
    anna.leave()


@pytest.fixture
def labels_served(tmp_path: Path, request: Any) -> Iterator[Served]:
    store = Store.open(f"sqlite:///{tmp_path}/dubito.db")
    deploy_policy(store, getattr(request, "param", fitted_label_policy)())
    service = Served(store, open_socket("127.0.0.1", 0), audit_fraction=0.0)
    yield service
    service.stop()


def labels_shown(page: Page) -> list[str]:
    """Return the labels of a row from top to bottom."""
    return page.locator("fieldset.label .name").all_inner_texts()


def stored_answers(served: Served, row: str) -> dict[str, str]:
    """Return the stored answers by label."""
    answers = served.store.get_label(row)
    assert isinstance(answers, str)
    return dict(zip(["edema", "effusion", "fracture"], answers, strict=True))


def test_labels_are_answered_one_by_one_by_keyboard_and_mouse(
    browser: Browser, labels_served: Served
) -> None:
    rows = {"probabilities": [[0.9, 0.5, 0.4], [0.9, 0.5, 0.5], [0.2, 0.002, 0.003]]}
    labels_served.send("/v1/decide", {**rows, "ids": ["a", "b", "c"]})
    anna = Someone(browser, labels_served, "anna")
    first, shown = anna.row(), labels_shown(anna.page)
    left = anna.page.locator("#left")
    expect(left).to_have_text("3 labels left")
    for key, n_left in (
        ("y", "2 labels left"),
        ("u", "1 label left"),
        ("n", "All labels answered"),
    ):
        anna.page.keyboard.press(key)
        expect(left).to_have_text(n_left)
    assert anna.page.evaluate("document.activeElement.id") == "save"
    second = anna.press("Enter")
    assert second != first
    assert stored_answers(labels_served, first) == dict(zip(shown, "y?n", strict=True))
    expect(anna.page.locator("#status")).to_contain_text("1 yes, 1 no, 1 unknown.")

    assert anna.press("z") == first  # an undo shows the answers again
    assert labels_served.store.get_label(first) is None
    expect(left).to_have_text("All labels answered")
    checked = anna.page.locator("fieldset.label input:checked")
    values = checked.evaluate_all("all => all.map((one) => one.value)")
    assert values == ["yes", "unknown", "no"]

    def click(label: str, answer: str) -> None:
        group = anna.page.get_by_role("group", name=label)
        group.get_by_role("radio", name=answer, exact=True).click()

    click(shown[1], "Yes")
    anna.page.reload()  # nothing is lost
    expect(anna.page.locator("fieldset.label input[value=yes]:checked")).to_have_count(2)
    anna.page.get_by_role("button", name="Save all answers").click()
    expect(anna.page.locator("h1")).not_to_have_text(f"Row {first}")
    assert stored_answers(labels_served, first) == dict(zip(shown, "yyn", strict=True))

    assert anna.row() == second
    anna.page.keyboard.press("y")
    anna.page.get_by_role("button", name="Save all answers").click()  # two are missing
    expect(left).to_have_text("2 labels left")
    assert (anna.row(), labels_served.store.get_label(second)) == (second, None)
    assert anna.press("e") == "c"
    expect(anna.page.locator(".chip")).to_have_count(1)
    expect(left).to_have_text("1 label left")
    anna.page.keyboard.press("n")
    click("fracture", "Yes")  # optional
    anna.page.get_by_role("button", name="Save all answers").click()
    expect(anna.page.locator("h1")).to_have_text("Nothing to review")
    assert stored_answers(labels_served, "c") == {"edema": "n", "effusion": "?", "fracture": "y"}
    anna.leave()


@pytest.mark.parametrize("labels_served", [fitted_value_policy], indirect=True)
def test_a_true_value_is_typed_and_letters_are_shortcuts_while_the_field_is_empty(
    browser: Browser, labels_served: Served
) -> None:
    body = {"mean": [90.0, 110.0], "std": [20.0, 19.0], "ids": ["a", "b"]}
    labels_served.send("/v1/decide", body)
    phone: Any = {"viewport": {"width": 390, "height": 700}}
    anna = Someone(browser, labels_served, "anna", **phone)
    assert anna.page.evaluate("document.activeElement.id") == "number"
    assert anna.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert (anna.row(), anna.press("s")) == ("a", "b")
    anna.page.keyboard.type("12x")
    anna.page.keyboard.press("Enter")  # the browser rejects it
    assert (anna.row(), labels_served.store.get_label("b")) == ("b", None)
    anna.page.fill("#number", "1e2")
    anna.page.keyboard.press("Enter")
    expect(anna.page.locator("h1")).to_have_text("Nothing to review")
    assert labels_served.store.get_label("b") == "100.0"
    expect(anna.page.locator("#status")).to_contain_text("Row b was labeled 100.")
    assert anna.press("z") == "b"
    assert labels_served.store.get_label("b") is None
    anna.leave()


def test_labels_fit_a_phone_and_need_no_script(browser: Browser, labels_served: Served) -> None:
    labels_served.send("/v1/decide", {"probabilities": [[0.9, 0.5, 0.4]], "ids": ["a"]})
    phone: Any = {"viewport": {"width": 390, "height": 700}, "java_script_enabled": False}
    anna = Someone(browser, labels_served, "anna", **phone)
    for name, answer in (("edema", "No"), ("effusion", "Yes"), ("fracture", "Unknown")):
        group = anna.page.get_by_role("group", name=name)
        group.get_by_role("radio", name=answer, exact=True).click()
    assert anna.page.evaluate("document.documentElement.scrollWidth") <= 390
    anna.page.get_by_role("button", name="Save all answers").click()
    expect(anna.page.locator("h1")).to_have_text("Nothing to review")
    assert stored_answers(labels_served, "a") == {"edema": "n", "effusion": "y", "fracture": "?"}
    anna.leave()


def test_an_expired_lease_is_reported_and_changes_nothing(browser: Browser, served: Served) -> None:
    served.send("/v1/decide", {"logits": DOUBTFUL[:1], "ids": ["a"]})
    anna = Someone(browser, served, "anna")
    assert served.store.claim_review("ben", now=time.time() + 3600, lease_seconds=7200) is not None
    anna.page.keyboard.press("1")
    expect(anna.page.locator("#status")).to_contain_text("Nothing was changed")
    assert served.store.get_label("a") is None
