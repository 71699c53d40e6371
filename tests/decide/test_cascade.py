"""Cascades: chosen tiers, decisions row by row, held-out costs, files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from dubito import Cascade, TopLabel
from dubito.decide import load_policy
from dubito.errors import BadFileError, DubitoError

COSTS = {"small": 0.002, "large": 0.12}


def models(n: int, seed: int = 0) -> dict[str, TopLabel]:
    """A model that is right on easy rows, and a better one; both are over-confident."""
    rng = np.random.default_rng(seed)
    ease = rng.normal(size=n)

    def one(skill: float) -> TopLabel:
        odds = 2 * ease + skill + 0.5 * rng.normal(size=n)
        return TopLabel(expit(2 * odds + 1), rng.random(n) < expit(odds))

    return {"small": one(0.5), "large": one(3.0)}


@pytest.fixture(scope="module")
def cascade() -> Cascade:
    return Cascade.fit(models(600), costs=COSTS, abstain_cost=0.4)


def follow(cascade: Cascade, tops: dict[str, TopLabel], costs: dict[str, Any]) -> Any:
    """Return the realized cost per row when each model is called only as the cascade says."""
    n = tops["small"].n_rows
    known = {name: np.full(n, np.nan) for name in tops}
    paid, is_open = np.zeros(n), np.ones(n, bool)
    for _ in range(len(tops) + 1):
        decisions = cascade.decide(known, costs=costs)
        for k, action in enumerate(decisions.actions):
            rows = is_open & (decisions.action == k)
            what, _, name = action.partition(" ")
            if what == "call":
                known[name][rows] = tops[name].confidence[rows]
                paid[rows] += np.broadcast_to(costs[name], n)[rows]
            else:
                is_open[rows] = False
                paid[rows] += 1 - tops[name].correct[rows] if what == "answer" else 0.4
    assert not is_open.any()
    return paid


def test_costs_less_than_each_model_and_than_rejecting(cascade: Cascade) -> None:
    assert cascade.tiers == ("small", "large")
    tops = models(20_000, seed=1)
    cost = follow(cascade, tops, COSTS).mean()
    for name, top in tops.items():
        fit = models(600)[name]
        alone = Cascade.fit({name: fit}, costs={name: COSTS[name]}, abstain_cost=0.4)
        decisions = alone.decide({name: top.confidence})
        answers = decisions.action == decisions.actions.index(f"answer {name}")
        assert cost < 0.97 * (COSTS[name] + np.where(answers, 1 - top.correct, 0.4).mean())
    assert cost < 0.4
    # What was promised on held-out rows holds on new ones.
    assert cascade.report.cost.low < cost < cascade.report.cost.high
    assert cascade.report.saved.low > 0


def test_a_sealed_cascade_says_that_it_was_edited(cascade: Cascade, tmp_path: Path) -> None:
    path = tmp_path / "cascade.json"
    cascade.save(path)
    assert "Edited by hand" not in str(Cascade.load(path))
    path.write_text(path.read_text().replace('"error_cost": 1.0', '"error_cost": 2.0'))
    Cascade.seal(path)
    edited = Cascade.load(path)
    assert edited.error_cost == 2.0
    for text in (str(edited), edited._repr_html_()):
        assert "Edited by hand on" in text
        assert "the figures above describe the policy before the edit." in text


def test_the_file_decides_as_the_cascade(cascade: Cascade, tmp_path: Path) -> None:
    path = tmp_path / "cascade.json"
    cascade.save(path)
    loaded = Cascade.load(path)
    known = {"small": [0.2, 0.7, 0.999], "large": [np.nan, 0.9, np.nan]}
    assert np.array_equal(loaded.decide(known).expected_cost, cascade.decide(known).expected_cost)
    assert str(loaded) == str(cascade)
    with pytest.raises(BadFileError, match=r"holds a Cascade.*Cascade\.load"):
        load_policy(path)


def test_no_model_is_called_where_none_pays() -> None:
    """All chains then reject every row; the shortest one is chosen, despite rounding."""
    found = Cascade.fit(models(200), costs={"small": 0.5, "large": 0.5}, abstain_cost=0.05)
    assert found.tiers == ()
    first, second, *_ = str(found).splitlines()
    assert first == "Call no model: abstain for all rows."
    assert second.endswith(
        "the same as abstaining on all rows (0.05). No model alone is worth a call."
    )


def test_confidences_of_exactly_0_and_1_leave_the_others_calibrated() -> None:
    rng = np.random.default_rng(0)
    n = 2000
    odds = rng.normal(1, 1.5, n)
    is_one, is_zero = np.arange(n) % 10 == 0, np.arange(n) % 10 == 1
    confidence = np.where(is_one, 1.0, np.where(is_zero, 0.0, expit(odds)))
    truth = np.where(is_one, 0.74, np.where(is_zero, 0.3, expit(odds)))
    found = Cascade.fit({"a": TopLabel(confidence, rng.random(n) < truth)}, costs={"a": 0})
    chance = found.decide({"a": [0.0, 0.5, 0.9, 0.99, 1.0]}).p_correct
    assert np.abs(chance - [0.3, 0.5, 0.9, 0.99, 0.74]).max() < 0.06


def test_confidences_beyond_the_range_of_the_fit() -> None:
    """They are as certain as a little beyond the most certain rows: 400 rows prove no more."""
    rng = np.random.default_rng(0)
    odds = rng.normal(1, 1, 400)
    top = TopLabel(expit(odds), rng.random(400) < expit(odds))
    found = Cascade.fit({"a": top}, costs={"a": 0}, abstain_cost=0.3)
    chance = found.decide({"a": [0.0, 1e-9, 1 - 1e-9, 1.0]}).p_correct
    assert chance[0] == chance[1] > 0.01
    assert chance[2] == chance[3] < 0.999
    assert found.thresholds[-1].high == 1.0


def test_nothing_is_known_before_the_first_call(cascade: Cascade) -> None:
    found = cascade.decide({"small": [np.nan, 0.9]})
    assert np.isnan(found.p_correct).tolist() == [True, False]
    assert found.names[0] == "call small"


def test_folds_that_choose_other_tiers_are_counted() -> None:
    reports = [
        Cascade.fit(models(80, seed), costs=COSTS, abstain_cost=0.2).report for seed in range(6)
    ]
    assert any(one.n_other_folds for one in reports)
    for one in reports:
        sentence = f"{one.n_other_folds} of 5 folds chose other tiers, which these figures include"
        assert (sentence in str(one)) == (one.n_other_folds > 0)
        assert "It is no significant" not in str(one)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"review_error_rate": 0.1}, "review_error_rate.* without a review_cost"),
        ({"cost_per_second": 0.1}, "cost_per_second.* without latencies"),
    ],
)
def test_settings_that_would_be_ignored_raise(settings: Any, message: str) -> None:
    with pytest.raises(DubitoError, match=message):
        Cascade.fit(models(60), costs=COSTS, **settings)


def test_answers_are_correct_or_wrong() -> None:
    tops = models(60)
    tops["small"] = TopLabel(tops["small"].correct, tops["small"].confidence)
    message = (
        r"`outputs\['small'\]` must say .* correct, 1 or 0, got 0\..* in row 0\. .*in this order"
    )
    with pytest.raises(DubitoError, match=message):
        Cascade.fit(tops, costs=COSTS)
