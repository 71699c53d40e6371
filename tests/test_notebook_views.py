"""Results in notebooks: the verdict first, tables with all their cells, every name escaped."""

from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression

from dubito import CostMatrix, Logits, MultiLabel, Normal, Policy, Probabilities, TopLabel, audit
from dubito.calibrate import (
    CalibratedClassifier,
    OneVsRest,
    PlattScaling,
    TemperatureScaling,
    VarianceScaling,
    cross_validate_calibrator,
)
from dubito.decide import (
    Cascade,
    CostSensitiveClassifier,
    ErrorCosts,
    LabelCosts,
    MultiLabelPolicy,
    OODGate,
    RegressionPolicy,
    Reviewer,
    ReviewTeam,
    RiskBound,
    cost_report,
    cost_savings,
)
from dubito.doubt import (
    ConformalClassifier,
    ConformalRegressor,
    conditional_coverage,
    diagnose_ood,
)
from dubito.monitor import compare, detect_drift

RNG = np.random.default_rng(0)
HOSTILE = "<script>alert(1)</script>"
NAMES = (HOSTILE, "b & c", "d")
Z = Logits(3 * RNG.normal(size=(240, 3)), NAMES)
Y = np.array(NAMES)[(Z.array / 2 + RNG.gumbel(size=(240, 3))).argmax(axis=1)]
TWO = Probabilities(RNG.random(200), ["no", HOSTILE])
IS = np.where(RNG.random(200) < TWO.array[:, 1], HOSTILE, "no")
SEVERAL = MultiLabel(RNG.random((200, 2)), [HOSTILE, "mass"])
MARKS = (RNG.random((200, 2)) < SEVERAL.array).astype(float)
T = RNG.normal(size=200)
SPREAD = np.linspace(0.5, 1.5, 200)
NORMAL = Normal(T + SPREAD * RNG.normal(size=200), SPREAD)
GROUPS = np.where(np.arange(200) % 2, HOSTILE, "other")
COSTS = CostMatrix.zero_one(NAMES).with_reject(0.2)
ONE = TemperatureScaling()
LAC = ConformalClassifier(0.9).fit(Z, Y)


class View(HTMLParser):
    """The texts and tables of a view; fails on a script, an open tag or a table with gaps."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.feed(html)
        assert not self.open
        for table in self.tables:
            assert len({len(row) for row in table}) == 1, table

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag != "script"
        if tag == "br":
            return
        self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        data = data.replace("\u00a0", " ")
        self.texts.append(data)
        if self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data


def policy() -> Policy:
    return Policy.fit(
        Z, Y, costs=COSTS, calibrator=ONE, ood=OODGate("entropy"), risk=RiskBound(0.3)
    )


def multilabel_policy() -> MultiLabelPolicy:
    return MultiLabelPolicy.fit(SEVERAL, MARKS, costs=LabelCosts(1, 4, review=0.4, review_row=0.7))


def regression_policy() -> RegressionPolicy:
    costs, one = ErrorCosts.absolute(), VarianceScaling()
    return RegressionPolicy.fit(NORMAL, T, costs=costs, calibrator=one, review_cost=0.9)


def cascade() -> Cascade:
    tiers = {name: RNG.random(300) for name in ("small", "large")}
    models = {name: TopLabel(p, RNG.random(300) < p) for name, p in tiers.items()}
    return Cascade.fit(models, costs={"small": 0.01, "large": 0.1}, abstain_cost=0.3)


RESULTS: dict[str, tuple[Callable[[], Any], str]] = {  # how to make it, and what it shows
    "audit": (lambda: audit(Y, Z), "ECE (15 uniform bins)"),
    "binary audit": (lambda: audit(IS, TWO, pos_label=HOSTILE, groups=GROUPS), "predicted no"),
    "multi-label audit": (lambda: audit(MARKS, SEVERAL, groups=GROUPS), HOSTILE),
    "regression audit": (lambda: audit(T, NORMAL, groups=GROUPS), "interval score"),
    "costs": (lambda: COSTS, "rejects"),
    "costs of rows": (lambda: CostMatrix([[0, "amount"], ["2 * fee", 0]]), "2 * fee"),
    "costs of labels": (lambda: LabelCosts(1, {HOSTILE: 5, "*": 2}, [0.3, None]), "other labels"),
    "many costs": (lambda: CostMatrix.zero_one(40).with_reject(0.1), "28 more"),
    "policy": (policy, "perfect information"),
    "decisions": (lambda: policy().decide(Z), "expected cost"),
    "multi-label policy": (multilabel_policy, "positive from"),
    "multi-label decisions": (lambda: multilabel_policy().decide(SEVERAL), "positive"),
    "regression policy": (regression_policy, "this policy saves"),
    "regression decisions": (lambda: regression_policy().decide(NORMAL), "review value"),
    "cascade": (cascade, "cost per call"),
    "review plan": (
        lambda: ReviewTeam([Reviewer(HOSTILE, 9, error_rate=0.1)]).plan(Z, COSTS),
        "capacity",
    ),
    "cost report": (lambda: cost_report(Y, Z, COSTS), "Always"),
    "cost savings": (lambda: cost_savings(Y, Z, Z, COSTS), "240 rows"),
    "evidence": (lambda: cross_validate_calibrator(ONE, Z, Y), "Brier score"),
    "regression evidence": (
        lambda: cross_validate_calibrator(VarianceScaling(), NORMAL, T),
        "90 % intervals",
    ),
    "comparison": (
        lambda: compare(Y, {HOSTILE: Z, "new": Logits(Z.array, NAMES)}),
        f"new - {HOSTILE}",
    ),
    "drift": (lambda: detect_drift(Z, Logits(Z.array * 0.3, NAMES), y_reference=Y), "shifted"),
    "diagnosis": (lambda: diagnose_ood(Z, Logits(Z.array * 0.3, NAMES)), "least_confidence"),
    "sets": (lambda: ConformalClassifier(0.9).fit(Z, Y).predict(Z), "size"),
    "set diagnosis": (
        lambda: ConformalClassifier(0.9).fit(Z, Y).predict(Z).diagnose(Y),
        "By class",
    ),
    "intervals": (lambda: ConformalRegressor(0.9).fit(NORMAL, T).predict(NORMAL), "width"),
    "coverage": (
        lambda: conditional_coverage(T, ConformalRegressor(0.9).fit(NORMAL, T).predict(NORMAL)),
        "predicted width",
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_a_verdict_and_tables(name: str) -> None:
    make, shown = RESULTS[name]
    result = make()
    html = result._repr_html_()
    view = View(html)
    assert html.partition(">")[2].startswith("<p><strong>")
    verdict = getattr(result, "verdict", "") or view.texts[0]
    assert verdict in "".join(view.texts)
    assert shown in "".join(view.texts)


def test_figures_are_those_that_are_printed() -> None:
    result = audit(Y, Z)
    [_, *rows] = View(result._repr_html_()).tables[0]
    found = {name.strip(): (value, interval) for name, value, interval, _ in rows}
    between = result.intervals["log_loss"]
    expected = f"{result.log_loss:.4f}", f"{between.low:.4f} to {between.high:.4f}"
    assert found["log loss"] == expected
    lines = str(result).splitlines()
    assert all(
        any(name in line and one[0] in line for line in lines) for name, one in found.items()
    )


def test_only_the_first_rows_are_shown() -> None:
    decisions = policy().decide(Z)
    counts, rows = View(decisions._repr_html_()).tables
    assert sum(int(row[1]) for row in counts[1:]) == 240
    assert [row[0] for row in rows] == ["row", *map(str, range(10)), "…"]
    assert rows[1][1] == decisions.columns()["action"][0]


def test_estimators_show_what_they_learned_above_scikit_learns_diagram() -> None:
    fitted, unfitted = TemperatureScaling().fit(Z, Y), OneVsRest(PlattScaling())
    html, drawn = f"{fitted._repr_html_()}", f"{unfitted._repr_html_()}"
    assert f"<strong>{fitted.summary()}.</strong>" in html
    assert "TemperatureScaling" in html.partition("sk-top-container")[2]
    assert drawn.startswith("<style>")
    assert "PlattScaling" in drawn
    with config_context(display="text"):
        assert fitted._repr_html_() is None


@pytest.mark.parametrize("kind", [CalibratedClassifier, CostSensitiveClassifier])
def test_classifiers_as_well(kind: Any) -> None:
    x = RNG.normal(size=(60, 2))
    model = kind(LogisticRegression(), calibrator=TemperatureScaling(), cv=2)
    assert model._repr_mimebundle_()["text/html"].startswith("<style>")
    model.fit(x, x[:, 0] + RNG.normal(size=60) > 0)
    html = model._repr_mimebundle_()["text/html"]
    assert model._repr_html_().partition("sk-top")[0] == html.partition("sk-top")[0]
    assert f"<strong>{model.summary()}.</strong>" in html
    with config_context(display="text"):
        assert list(model._repr_mimebundle_()) == ["text/plain"]
