"""The page in a real browser: offline, exact, readable in the dark and on a phone."""

import re
from collections.abc import Iterator
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from playwright.sync_api import Browser, Page

from dubito import LabelCosts, MultiLabel, MultiLabelPolicy, Normal, Probabilities, TopLabel, audit
from dubito.calibrate import MultiLabelCalibrator, PlattScaling
from dubito.data import ArrayShards, Batch
from dubito.data.labels import Labels
from dubito.decide import CostMatrix, OODGate, Policy, action_intervals, realized_cost
from dubito.doubt import MahalanobisDistance
from dubito.measure import confusion_at
from dubito.report import Report, make_report
from dubito.report.reports import TITLE, _classifier_report
from dubito.report.sample import Outcome, Sample
from dubito.report.summary import Summary

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def path(summary: Summary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = _classifier_report(summary, f"{HOSTILE} & co")
    return page.save(tmp_path_factory.mktemp("report") / "report.html")


class Opened:
    """A page opened from a file, with its requests and console messages."""

    def __init__(self, browser: Browser, path: Path, **settings: Any) -> None:
        self.context = browser.new_context(**settings)
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.messages: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", lambda dialog: self.messages.append(dialog.message))
        self.page.goto(path.as_uri())

    def outcome(self, policy: str) -> Outcome:
        """Return the outcome of a decision rule on the page, in full precision."""
        row = self.page.locator(f'[data-policy="{policy}"]')
        names = ("coverage", "risk", "cost")
        cells = [row.locator(f'[data-figure="{name}"]') for name in names]
        return Outcome(*(float(cell.get_attribute("data-value") or "nan") for cell in cells))

    def set_threshold(self, threshold: float) -> None:
        self.page.fill("#threshold-number", f"{threshold:.3f}")

    def close(self) -> None:
        self.context.close()


@pytest.fixture(scope="module")
def tab(browser: Browser, path: Path) -> Iterator[Opened]:
    """A tab of the usual size; to open one takes longer than most tests."""
    found = Opened(browser, path)
    yield found
    found.close()


@pytest.fixture
def opened(tab: Opened, path: Path) -> Iterator[Opened]:
    tab.page.goto("about:blank")  # what was typed into the page before is gone
    tab.page.set_viewport_size({"width": 1280, "height": 720})
    tab.requests.clear()
    tab.messages.clear()
    tab.page.goto(path.as_uri())
    yield tab
    assert tab.messages == []


def assert_same(found: Outcome, expected: Outcome) -> None:
    assert found.coverage == pytest.approx(expected.coverage, abs=1e-12)
    assert found.risk == pytest.approx(expected.risk, abs=1e-12)
    assert found.cost == pytest.approx(expected.cost, abs=1e-9)


def test_it_opens_from_a_file_without_requests(opened: Opened, path: Path) -> None:
    assert opened.requests == [path.as_uri()]
    assert opened.page.title() == f"{HOSTILE} & co"
    assert opened.page.locator("h2").first.inner_text() != ""


def test_user_input_is_text_and_never_markup(opened: Opened) -> None:
    assert opened.page.evaluate("document.scripts.length") == 2
    assert opened.page.locator("table b, table script").count() == 0
    options = opened.page.locator("[data-choice] option").all_inner_texts()
    assert f"predicted as {HOSTILE}" in options
    assert "group north & south" in options
    assert opened.page.get_by_text("<b>row-", exact=False).count() > 0


def test_nothing_can_reach_the_network(opened: Opened) -> None:
    script = "fetch('http://127.0.0.1:9/').then(() => 'reached', () => 'refused')"
    assert opened.page.evaluate(script) == "refused"
    assert "Content Security Policy" in " ".join(opened.messages)
    opened.messages.clear()


def test_the_slider_matches_the_library(opened: Opened, summary: Summary) -> None:
    for threshold in (0.0, 0.35, 0.5, 0.777, 0.95, 1.0):
        opened.page.locator("#threshold").evaluate(
            "(e, value) => { e.value = value; e.dispatchEvent(new Event('input')); }",
            f"{threshold}",
        )
        assert opened.page.input_value("#threshold-number") == f"{threshold:g}"
        assert_same(opened.outcome("yours"), summary.sample.at(threshold))


def test_the_initial_page_matches_the_library(opened: Opened, summary: Summary) -> None:
    sample = summary.sample
    assert_same(opened.outcome("expected"), sample.optimal)
    assert_same(opened.outcome("cheapest"), sample.at(sample.cheapest_threshold))
    nothing = np.zeros(len(sample.batch), bool)
    assert_same(opened.outcome("none"), sample.outcome(nothing))
    shown = opened.page.locator('[data-policy="cheapest"] [data-figure="threshold"]')
    assert shown.inner_text() == f"{sample.cheapest_threshold:.3f}"


def with_costs(sample: Sample, table: Any) -> Sample:
    costs = CostMatrix(table, sample.costs.actions, reject=sample.costs.actions[-1])
    return Sample(sample.batch, sample.answers, costs, True, True)


def test_edited_costs_match_the_library(opened: Opened, summary: Summary) -> None:
    rng = np.random.default_rng(5)
    for _ in range(3):
        table = rng.integers(-2, 30, (4, 3)) / 4
        for a, k in np.ndindex(4, 3):
            place = f'input[data-action="{a}"][data-class="{k}"]'
            opened.page.fill(place, f"{table[a, k]}")
        opened.set_threshold(0.6)
        expected = with_costs(summary.sample, table)
        assert_same(opened.outcome("expected"), expected.optimal)
        assert_same(opened.outcome("yours"), expected.at(0.6))
        assert_same(opened.outcome("cheapest"), expected.at(expected.cheapest_threshold))
        costs = {key: opened.outcome(key).cost for key in ("expected", "cheapest", "yours", "none")}
        best = opened.page.locator("tr.best").get_attribute("data-policy") or ""
        assert costs[best] == min(costs.values())
    opened.page.click("[data-reset]")
    assert_same(opened.outcome("expected"), summary.sample.optimal)


def test_a_decision_is_wrong_by_its_action(opened: Opened, summary: Summary) -> None:
    """If one error is expensive, the action is often not the most probable class."""
    table = np.array([[0, 20, 1], [2, 0, 2], [1, 20, 0], [0.5, 0.5, 0.5]])
    for a, k in np.ndindex(4, 3):
        opened.page.fill(f'input[data-action="{a}"][data-class="{k}"]', f"{table[a, k]}")
    opened.set_threshold(0.0)
    sample = with_costs(summary.sample, table)
    assert_same(opened.outcome("yours"), sample.at(0.0))
    labels: Any = sample.batch.labels
    is_wrong = sample.acting != labels.codes  # here each class has one action that is cheapest
    expected = float(sample.weight @ is_wrong / sample.weight.sum())
    assert opened.outcome("none").risk == pytest.approx(expected)
    errors = float(sample.weight @ (1 - sample.answers.rows.correct) / sample.weight.sum())
    assert expected > errors + 0.05
    chart = opened.page.locator("#risk-chart svg")
    assert float(chart.get_attribute("data-high") or "nan") >= expected
    assert opened.page.evaluate(INSIDE) == []


def test_an_emptied_cost_keeps_its_last_value(opened: Opened, summary: Summary) -> None:
    place = 'input[data-action="0"][data-class="1"]'
    opened.page.fill(place, "50")
    opened.page.fill(place, "")
    table = summary.sample.costs.array.copy()
    table[0, 1] = 50
    assert_same(opened.outcome("expected"), with_costs(summary.sample, table).optimal)
    opened.page.click("[data-reset]")
    assert opened.page.inner_text("[data-message]") == ""
    assert_same(opened.outcome("expected"), summary.sample.optimal)


def test_an_invalid_threshold_keeps_its_last_value(opened: Opened, summary: Summary) -> None:
    table = summary.sample.costs.array.copy()
    for cost, typed in enumerate(["2", "", "-1"], start=7):
        opened.set_threshold(0.6)
        opened.page.fill("#threshold-number", typed)
        assert "threshold must be a number from 0 to 1" in opened.page.inner_text("[data-message]")
        opened.page.fill('input[data-action="0"][data-class="1"]', f"{cost}")
        table[0, 1] = cost
        assert_same(opened.outcome("yours"), with_costs(summary.sample, table).at(0.6))
        opened.set_threshold(0.7)
        assert opened.page.inner_text("[data-message]") == ""


def test_a_reject_action_of_the_costs_is_the_review(browser: Browser, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    p = rng.dirichlet([1, 1], 200)
    y = np.where(rng.uniform(size=200) < p[:, 0], "ham", "spam")
    (tmp_path / "costs.csv").write_text("action,ham,spam\nkeep,0,4\nask,0.5,0.5\ndrop,9,0\n")
    costs = CostMatrix.from_csv(tmp_path / "costs.csv", reject="ask")
    batch = Batch.of(y, Probabilities(p, ("ham", "spam")))
    summary = Summary.of(ArrayShards(batch), costs=costs)
    opened = Opened(browser, _classifier_report(summary, TITLE).save(tmp_path / "page.html"))
    assert opened.page.locator(".costs tbody tr").count() == 3
    assert opened.page.inner_text(".costs tr.reject th").split() == ["ask", "review"]
    assert opened.outcome("none").coverage == 1.0
    assert_same(opened.outcome("none"), summary.sample.outcome(np.zeros(200, bool)))
    assert_same(opened.outcome("expected"), summary.sample.optimal)
    assert opened.messages == []
    opened.close()


def test_a_policy_is_shown_as_the_library_evaluates_it(
    browser: Browser, batch: Any, costs: CostMatrix, tmp_path: Path
) -> None:
    known = batch.take(np.flatnonzero(np.arange(240) != 7))
    policy = Policy.fit(
        known.outputs,
        known.labels,
        costs=costs,
        features=known.features,
        ood=OODGate(MahalanobisDistance(), alpha=0.2),
    )
    summary = Summary.of(ArrayShards(batch), policy=policy)
    found, evaluated = summary.sample, summary.policy_report
    assert found.decided is not None
    assert evaluated is not None
    opened = Opened(browser, _classifier_report(summary, TITLE).save(tmp_path / "page.html"))
    assert evaluated.risk is not None
    expected = Outcome(evaluated.coverage.value, evaluated.risk.value, 1000 * evaluated.cost.value)
    assert_same(opened.outcome("policy"), expected)
    assert opened.page.locator('circle[data-mark="policy"]:visible').count() == 2
    opened.page.fill('input[data-action="0"][data-class="1"]', "7")
    table = found.costs.array.copy()
    table[0, 1] = 7
    again = with_costs(found, table).outcome_of(found.decided)
    assert_same(opened.outcome("policy"), again)
    assert opened.messages == []
    opened.close()


def test_a_page_without_an_editor_has_no_console_messages(browser: Browser, tmp_path: Path) -> None:
    costs = CostMatrix([[0, "1 + amount"], [1, 0]])
    page = make_report([0, 1] * 20, [[0.8, 0.2], [0.3, 0.7]] * 20, costs=costs)
    opened = Opened(browser, page.save(tmp_path / "page.html"))
    assert opened.page.locator("#threshold").count() == 0
    assert opened.messages == []
    opened.close()


def test_a_cost_that_is_not_a_number_is_reported_and_ignored(
    opened: Opened, summary: Summary
) -> None:
    opened.page.fill('input[data-action="0"][data-class="1"]', "")
    assert "must be a number" in opened.page.inner_text("[data-message]")
    assert_same(opened.outcome("expected"), summary.sample.optimal)


def test_the_dots_lie_on_the_curves(opened: Opened, summary: Summary) -> None:
    opened.set_threshold(0.6)
    chart = opened.page.locator("#risk-chart svg")
    left, right, bottom, top = map(float, (chart.get_attribute("data-box") or "").split())
    high = float(chart.get_attribute("data-high") or "nan")
    mark, outcome = chart.locator('[data-mark="yours"]'), summary.sample.at(0.6)
    x = left + outcome.coverage * (right - left)
    y = bottom + outcome.risk / high * (top - bottom)
    assert float(mark.get_attribute("cx") or "nan") == pytest.approx(x, abs=0.06)
    assert float(mark.get_attribute("cy") or "nan") == pytest.approx(y, abs=0.06)


RARE = (("ok", "fraud"), ("pass", "block"), [[0, 30], [2, 0]])  # classes, actions, costs


def rare_rows(n_rows: int = 1500) -> tuple[Any, Probabilities]:
    """Return labels of a rare class and probabilities that are too extreme."""
    rng = np.random.default_rng(8)
    odds = rng.normal(-3, 1.6, n_rows)
    is_fraud = rng.random(n_rows) < 1 / (1 + np.exp(0.4 - 0.7 * odds))
    p = 1 / (1 + np.exp(-odds))
    return np.where(is_fraud, "fraud", "ok"), Probabilities(np.column_stack([1 - p, p]), RARE[0])


@pytest.fixture(scope="module")
def rare(tmp_path_factory: pytest.TempPathFactory) -> tuple[Summary, Path]:
    """A policy that blocks, reviews or passes, and its report on the rows of its fit."""
    y, outputs = rare_rows()
    costs = CostMatrix(RARE[2], RARE[1], RARE[0]).with_reject(0.9, "review")
    weight = 1 + np.arange(len(y)) % 2
    rows = ArrayShards(Batch.of(y, outputs, sample_weight=weight))
    settings = dict.fromkeys(("deploy_prior", "ood", "risk"))
    policy, evidence = Policy.fit_shards(
        rows, costs=costs, calibrator=PlattScaling(), random_state=0, **settings
    )
    summary = Summary.of(rows, policy=policy, evidence=evidence)
    page = _classifier_report(summary, TITLE)
    return summary, page.save(tmp_path_factory.mktemp("rare") / "page.html")


class ThresholdPage(Opened):
    """A page with thresholds of P(positive)."""

    def shown(self, place: str) -> float | None:
        """Return a figure in full precision, None where it is undefined."""
        value = self.page.locator(place).get_attribute("data-value") or "nan"
        return None if value == "null" else float(value)

    def assert_matches_python(self, summary: Summary, thresholds: list[float]) -> None:
        """Compare cost, precision, recall and actions with functions of the library."""
        assert summary.costs is not None
        after = summary.after
        assert isinstance(after.labels, Labels)
        y, weight, outputs = after.labels, after.labeled_weight, after.outputs
        assert isinstance(outputs, Probabilities)
        p = Probabilities(outputs.array.astype(np.float32), outputs.classes)
        order = [summary.costs.actions.index(one) for one in ("pass", "review", "block")]
        taken = np.take(order, np.searchsorted(thresholds, p.array[:, 1], side="right"))
        paid = realized_cost(y.codes, taken, summary.costs, sample_weight=weight)
        assert self.shown('[data-out="cost"]') == pytest.approx(paid, abs=1e-9)
        assert self.shown('[data-out="total"]') == pytest.approx(1e4 * paid, abs=1e-9)
        for k, threshold in enumerate(thresholds):
            found = confusion_at(y, p, threshold=threshold, sample_weight=weight)
            for name in ("precision", "recall", "false_positive_rate", "selection_rate"):
                place = f'[data-rates="{k}"] [data-cell="{name}"]'
                expected = getattr(found, name)
                assert self.shown(place) == pytest.approx(expected, abs=1e-9), name
        for number in order:
            for side, name in enumerate(("negative", "positive")):
                expected = weight[(taken == number) & (y.codes == side)].sum() / weight.sum()
                place = f'[data-taken="{number}"] [data-cell="{name}"]'
                assert self.shown(place) == pytest.approx(expected, abs=1e-9)


@pytest.fixture
def moved(browser: Browser, rare: tuple[Summary, Path]) -> Iterator[ThresholdPage]:
    found = ThresholdPage(browser, rare[1])
    yield found
    assert found.messages == []
    found.close()


def slider_values(page: Page) -> list[float]:
    values = page.locator("[data-slider]:visible").evaluate_all(
        "sliders => sliders.map(one => one.getAttribute('aria-valuenow'))"
    )
    return [float(value) for value in values]


def test_thresholds_start_where_the_policy_has_them(
    moved: ThresholdPage, rare: tuple[Summary, Path]
) -> None:
    policy = rare[0].policy
    assert policy is not None
    optimal = [one.low for one in policy.thresholds[1:]]
    assert slider_values(moved.page) == pytest.approx(optimal, abs=1e-12)
    moved.assert_matches_python(rare[0], optimal)
    assert moved.shown('[data-best="cost"]') == moved.shown('[data-out="cost"]')
    # The policy decides the same rows by the same probabilities, in double precision.
    assert moved.shown('[data-out="cost"]') == pytest.approx(policy.report.cost.value, abs=1e-9)


@pytest.mark.parametrize("way", ["mouse", "touch", "keyboard", "number"])
def test_a_moved_threshold_has_the_cost_precision_and_recall_of_python(
    browser: Browser, rare: tuple[Summary, Path], way: str
) -> None:
    opened = ThresholdPage(browser, rare[1], has_touch=way == "touch")
    page, before = opened.page, slider_values(opened.page)
    slider = page.locator('[data-slider="0"]')
    slider.scroll_into_view_if_needed()
    box = slider.locator("rect").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 3
    if way == "mouse":
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 11, y + 5, steps=3)
        page.mouse.up()
        page.mouse.move(x + 60, y)
    elif way == "touch":
        session = opened.context.new_cdp_session(page)
        for kind, by in (("touchStart", 0), ("touchMove", 6), ("touchMove", 14), ("touchEnd", 0)):
            points = [] if kind == "touchEnd" else [{"x": x + by, "y": y}]
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    elif way == "keyboard":
        slider.focus()
        for key in ("ArrowRight", "PageUp", "ArrowUp", "ArrowLeft"):
            page.keyboard.press(key)
    else:
        page.locator('[data-limit="0"] input').fill("0.0625")
    after = slider_values(page)
    assert after[0] != before[0]
    assert after[1] == before[1]
    opened.assert_matches_python(rare[0], after)
    best = opened.shown('[data-best="cost"]')
    assert best != opened.shown('[data-out="cost"]')
    page.click("[data-reset]")
    assert slider_values(page) == before
    assert opened.shown('[data-out="cost"]') == best
    assert opened.messages == []
    opened.close()


def test_thresholds_keep_their_order_and_stay_on_the_axis(
    moved: ThresholdPage, rare: tuple[Summary, Path]
) -> None:
    low, high = (moved.page.locator(f'[data-slider="{k}"]') for k in (0, 1))
    low.focus()
    moved.page.keyboard.press("End")
    assert slider_values(moved.page)[0] == slider_values(moved.page)[1]
    moved.assert_matches_python(rare[0], slider_values(moved.page))
    high.focus()
    moved.page.keyboard.press("End")
    low.focus()
    moved.page.keyboard.press("Home")
    moved.assert_matches_python(rare[0], slider_values(moved.page))
    moved.page.locator('[data-limit="0"] input').fill("0.9999")
    assert "from 0 to 1, in order" in moved.page.inner_text("[data-message]")


def test_edited_costs_move_the_optimal_thresholds(moved: ThresholdPage) -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        table = rng.integers(0, 40, (3, 2)) / 4
        for a, k in np.ndindex(3, 2):
            place = f'.editor input[data-action="{a}"][data-class="{k}"]'
            moved.page.fill(place, f"{table[a, k]}")
        costs = CostMatrix(table, ["pass", "block", "review"], reject="review")
        expected = [one.low for one in action_intervals(costs)[1:]]
        assert slider_values(moved.page) == pytest.approx(expected, abs=1e-12)


def test_the_script_changes_no_text_of_the_page(
    browser: Browser, rare: tuple[Summary, Path]
) -> None:
    texts = []
    for is_enabled in (False, True):
        opened = Opened(browser, rare[1], java_script_enabled=is_enabled)
        texts.append(opened.page.locator("#decisions").inner_text())
        opened.close()
    assert texts[0] == texts[1]


def test_without_costs_the_threshold_is_one_half(browser: Browser, tmp_path: Path) -> None:
    y, outputs = rare_rows(300)
    found = audit(y, outputs, pos_label="fraud")
    page = Report.of(ArrayShards(Batch.of(y, outputs)), audit=found)
    opened = ThresholdPage(browser, page.save(tmp_path / "page.html"))
    assert slider_values(opened.page) == [0.5]
    assert "No costs were given" in opened.page.inner_text("#decisions")
    assert opened.messages == []
    opened.close()


INSIDE = """() => {
  const bad = [];
  for (const svg of document.querySelectorAll("svg.chart")) {
    if (!svg.getClientRects().length) continue;
    const frame = svg.getBoundingClientRect(), title = svg.getAttribute("aria-label");
    const say = (what, e) => bad.push(`${title}: ${what} ${e.outerHTML.slice(0, 90)}`);
    const boxes = (query) => [...svg.querySelectorAll(query)]
      .map((e) => [e, e.getBoundingClientRect()]).filter(([, box]) => box.width > 0);
    for (const [e, box] of boxes("text, circle, rect:not(.reach), path")) {
      const wide = Math.max(frame.left - box.left, box.right - frame.right);
      if (Math.max(wide, frame.top - box.top, box.bottom - frame.bottom) > 1) say("outside", e);
    }
    const texts = boxes("text");
    texts.forEach(([one, a], k) => texts.slice(k + 1).forEach(([other, b]) => {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1 && down > 3) say(`overlaps ${other.textContent}:`, one);
    }));
  }
  return bad;
}"""


@pytest.mark.parametrize("width", [390, 1280])
def test_marks_and_labels_are_inside_their_charts(
    browser: Browser, path: Path, rare: tuple[Summary, Path], width: int
) -> None:
    for one in (path, rare[1]):
        opened = Opened(browser, one, viewport={"width": width, "height": 800})
        assert opened.page.evaluate(INSIDE) == []
        opened.close()


def test_it_prints_on_two_pages(browser: Browser, path: Path, rare: tuple[Summary, Path]) -> None:
    for one in (path, rare[1]):
        opened = Opened(browser, one)
        printed = opened.page.pdf(format="A4")
        assert 1 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", printed)) <= 2
        opened.close()


def test_a_menu_selects_the_view(opened: Opened, summary: Summary) -> None:
    shown = opened.page.locator("[data-option]:visible")
    assert shown.count() == 1
    opened.page.select_option("[data-choice]", index=2)
    assert shown.count() == 1
    title = shown.locator("svg").first.get_attribute("aria-label") or ""
    assert title.endswith(summary.views[2].name)


def test_the_keyboard_reaches_everything(opened: Opened) -> None:
    page = opened.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.focus("#threshold")
    before = float(page.input_value("#threshold"))
    page.keyboard.press("ArrowLeft")
    assert float(page.input_value("#threshold-number")) == pytest.approx(before - 0.001)


def test_a_screen_reader_finds_names_and_headings_in_order(opened: Opened) -> None:
    page = opened.page
    unnamed = "e => !(e.labels && e.labels.length) && !e.getAttribute('aria-label')"
    fields = f"[...document.querySelectorAll('input, select')].filter({unnamed}).length"
    assert page.evaluate(fields) == 0
    assert page.locator("svg:not([aria-label])").count() == 0
    levels = [
        int(tag[1])
        for tag in page.locator("h1, h2, h3").evaluate_all("es => es.map(e => e.tagName)")
    ]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert page.get_attribute("html", "lang") == "en"


CONTRAST = """() => {
  const channel = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = (color) => {
    const [r, g, b] = color.match(/[\\d.]+/g).map((v) => channel(Number(v) / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const back = (e) => {
    for (; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if (!/, 0\\)$/.test(color)) return color;
    }
  };
  const tags = "h1, h2, h3, p, dt, dd, th, td, a, summary, button, label, li, text, input, span";
  const low = [];
  for (const e of document.querySelectorAll(tags)) {
    if (!e.getClientRects().length || e.matches(".skip, .swatch, [type=range]")) continue;
    const style = getComputedStyle(e);
    const pair = [light(e.tagName === "text" ? style.fill : style.color), light(back(e))];
    const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    if (ratio < 4.5) low.push(`${e.outerHTML.slice(0, 80)} ${ratio}`);
  }
  return low;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_have_enough_contrast(browser: Browser, path: Path, scheme: Any) -> None:
    opened = Opened(browser, path, color_scheme=scheme)
    page = opened.page
    paper = "getComputedStyle(document.body).backgroundColor"
    first = page.evaluate(paper)
    assert page.evaluate(CONTRAST) == []
    page.click("[data-toggle]")
    assert page.evaluate(paper) != first
    assert page.evaluate(CONTRAST) == []
    page.reload()
    assert page.evaluate(paper) != first, "the choice is remembered"
    assert opened.messages == []
    opened.close()


def test_nothing_is_wider_than_the_screen(opened: Opened) -> None:
    page = opened.page
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    for width in (320, 360, 768):
        page.set_viewport_size({"width": width, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_scrollable_table_fades_at_its_edge(browser: Browser, path: Path) -> None:
    opened = Opened(browser, path, viewport={"width": 240, "height": 740}, color_scheme="light")
    table = opened.page.locator("#metrics .scroll").first

    def edges() -> tuple[float, float]:
        picture = imread(BytesIO(table.screenshot()), format="png")[:, :, :3].mean(axis=(0, 2))
        return float(picture[:3].mean()), float(picture[-3:].mean())

    left, right = edges()
    assert right < left - 0.05
    table.evaluate("one => { one.scrollLeft = one.scrollWidth; }")
    left, right = edges()
    assert left < right - 0.05
    opened.close()


def test_it_prints_light_in_dark_mode(browser: Browser, path: Path) -> None:
    opened = Opened(browser, path, color_scheme="dark")
    opened.page.emulate_media(media="print", color_scheme="dark")
    assert opened.page.evaluate("getComputedStyle(document.body).color") == "rgb(29, 33, 38)"
    assert not opened.page.is_visible("[data-toggle]")
    assert opened.page.pdf()[:5] == b"%PDF-"
    opened.close()


def test_without_scripts_all_numbers_are_shown(browser: Browser, path: Path) -> None:
    opened = Opened(browser, path, java_script_enabled=False)
    shown = opened.page.locator('[data-policy="expected"] [data-figure="cost"]')
    assert float(shown.inner_text()) > 0
    assert opened.page.locator("svg:visible").count() >= 6
    assert not opened.page.is_visible("[data-choice]")
    opened.close()


def test_a_top_label_report_matches_the_library(browser: Browser, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    outputs = TopLabel(rng.uniform(size=150), rng.uniform(size=150))
    summary = Summary.of(ArrayShards(Batch.of(None, outputs)))
    opened = Opened(browser, _classifier_report(summary, TITLE).save(tmp_path / "page.html"))
    for threshold in (0.2, 0.4, 0.6, 0.9):
        opened.set_threshold(threshold)
        assert_same(opened.outcome("yours"), summary.sample.at(threshold))
    assert_same(opened.outcome("expected"), summary.sample.optimal)
    assert opened.messages == []
    opened.close()


def test_a_regression_has_no_console_messages(browser: Browser, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    mean = rng.normal(size=100)
    page = make_report(
        mean + rng.normal(size=100), Normal(mean, np.full(100, 0.5)), ids=[HOSTILE] * 100
    )
    opened = Opened(
        browser, page.save(tmp_path / "page.html"), viewport={"width": 360, "height": 700}
    )
    assert opened.messages == []
    assert len(opened.requests) == 1
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360
    opened.close()


def test_a_policy_of_many_labels_fits_the_page(browser: Browser, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    odds = rng.normal(-1, 1.5, (200, 14))
    y = (rng.random(odds.shape) < 1 / (1 + np.exp(-odds))) * 1.0
    names = [f"{HOSTILE} finding {k}" if k == 3 else f"finding {k}" for k in range(14)]
    shards = ArrayShards(Batch.of(y, MultiLabel.from_logits(2 * odds, names)))
    costs = LabelCosts(1, 4, review=0.4, review_row=4.5)
    policy, evidence = MultiLabelPolicy.fit_shards(
        shards, costs=costs, calibrator=MultiLabelCalibrator("temperature")
    )
    path = Report.of(shards, policy=policy, evidence=evidence).save(tmp_path / "labels.html")
    for width in (390, 1280):
        screen = {"width": width, "height": 800}
        opened = Opened(browser, path, viewport=screen, color_scheme="dark")
        page = opened.page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("#decisions tbody tr").count() == 14
        assert page.locator("section h2").nth(1).inner_text() == "What is decided?"
        assert page.evaluate(INSIDE) == []
        assert opened.messages == []
        opened.close()
