"""The day of a team of five in a browser: capacity, a disagreement, agreement on the monitor."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from dubito.decide import Policy, Reviewer, ReviewTeam
from dubito.serve.policies import deploy_policy
from dubito.serve.run import open_socket
from dubito.serve.store import Store
from tests.serve.stored import fitted_policy
from tests.serve.test_pages_browser import Served, Someone

ROWS = {f"r{k}": [0.9 - 0.02 * k, 0.1, -9.0] for k in range(8)}  # between 0 and 1, all rejected
CAPACITY = {"ann": 2, "bob": 9, "cy": 9, "dee": 9, "eve": 9}


@pytest.fixture(scope="module")
def policy() -> Policy:
    return fitted_policy()


@pytest.fixture
def served(policy: Policy, tmp_path: Path) -> Iterator[Served]:
    store = Store.open(f"sqlite:///{tmp_path}/dubito.db")
    deploy_policy(store, policy)
    team = ReviewTeam([Reviewer(name, n, 0.2, cost=0.005) for name, n in CAPACITY.items()])
    service = Served(store, open_socket("127.0.0.1", 0), reviewers=team)
    yield service
    service.stop()


@pytest.mark.slow
def test_the_day_of_a_team(browser: Browser, served: Served) -> None:
    served.send("/v1/decide", {"logits": list(ROWS.values()), "ids": list(ROWS)})
    team = {name: Someone(browser, served, name) for name in CAPACITY}
    held = {name: one.row() for name, one in team.items()}
    assert len(set(held.values())) == len(team)  # each their own row
    ann, bob, cy = (team[name] for name in ("ann", "bob", "cy"))
    expect(ann.page.locator("#status")).to_contain_text("Your reviews: 0 of 2 today.")

    ann.press("1")
    ann.press("1")
    expect(ann.page.locator("h1")).to_have_text("That is all for now")
    section = ann.page.get_by_role("region", name="That is all for now")
    expect(section).to_contain_text(
        "ann has reached the limit of 2 reviews today. Come back tomorrow at"
    )
    assert served.store.get_label(held["ann"]) == 0

    disputed = bob.row()
    bob.press("2")  # against the model, so that a second opinion pays
    assert served.store.get_label(disputed) is None
    found = cy.press("1")
    for _ in range(len(ROWS)):
        if found == disputed:
            break
        found = cy.press("1")
    assert found == disputed
    expect(cy.page.locator(".facts")).to_contain_text("Another reviewer has answered.")
    assert "labeled" not in cy.page.locator(".facts").inner_text()
    cy.press("1")  # against bob: a third one decides
    for name in ("dee", "eve"):
        while served.store.get_label(disputed) is None and team[name].row() in ROWS:
            team[name].press("1")
    assert served.store.get_label(disputed) == 0

    bob.page.goto(f"{served.address}/monitor")
    shown = bob.page.get_by_role("region", name="Review team")
    expect(shown).to_contain_text("Agreement: ")
    expect(shown.get_by_role("row", name="ann")).to_contain_text("2 of 2")
    pairs = [one for one in served.store.answered_rows() if len(one.answers) > 1]
    assert any(len({code for _, code in one.answers}) > 1 for one in pairs)
    for one in team.values():
        one.leave()
