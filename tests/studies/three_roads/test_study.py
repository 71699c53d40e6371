"""The study of three approaches: values by hand, sentences, and its page."""

import re
from pathlib import Path

import numpy as np
import pytest

from dubito.doubt import ClassConditionalDensity
from dubito.measure import Interval
from studies.three_roads import approaches, study

DOCS = Path(__file__).parents[3] / "docs"


def test_costs_equal_those_of_the_threshold_by_hand() -> None:
    rows = approaches.normal(0, 200, 500)
    found = study.when_costs_change(rows, 5)
    assert rows.true_posterior is not None
    posterior = ClassConditionalDensity("shared").fit(rows.x, rows.y).posteriors(rows.new_x).array
    is_one = rows.new_y == 1
    for method, chance in {
        "true posterior": rows.true_posterior,
        "generative": posterior[:, 1],
    }.items():
        is_alarm = chance > 1 / 6
        expected = 5 * (is_one & ~is_alarm).mean() + (~is_one & is_alarm).mean()
        assert found[method] == pytest.approx(expected)


def test_a_rare_class_is_weighted_by_its_new_prior() -> None:
    rows = approaches.normal(0, 200, 500)
    found = study.when_a_class_gets_rare(rows)
    prior = rows.y.mean()
    rare = prior / 10
    chance = approaches.posteriors(rows.x, rows.y, rows.new_x)["discriminative"][:, 1]
    odds = chance / (1 - chance) * rare / (1 - rare) * (1 - prior) / prior
    for method, is_alarm in {
        "discriminative": chance > 1 / 6,
        "discriminative (adjusted)": odds > 1 / 5,
    }.items():
        missed, false = (~is_alarm[rows.new_y == 1]).mean(), is_alarm[rows.new_y == 0].mean()
        assert found[method] == pytest.approx(5 * rare * missed + (1 - rare) * false)


def test_rejecting_and_voting_equal_those_by_hand() -> None:
    rows = approaches.normal(0, 200, 500)
    chance = approaches.posteriors(rows.x, rows.y, rows.new_x)["discriminative"].max(axis=1)
    is_wrong = approaches.logistic(rows.x, rows.y).predict(rows.new_x) != rows.new_y
    expected = np.where(chance <= 0.9, 0.1, is_wrong).mean()
    assert study.when_rows_can_be_rejected(rows)["discriminative"] == pytest.approx(expected)
    groups = slice(0, 4), slice(4, 7), slice(7, 10)
    votes = sum(
        approaches.linear_svm(rows.x[:, one], rows.y).predict(rows.new_x[:, one]) for one in groups
    )
    found = study.when_models_are_combined(rows)["discriminant (vote)"]
    assert found == pytest.approx(((votes >= 2) != rows.new_y).mean())


def test_densities_detect_far_rows_and_posteriors_do_not() -> None:
    is_ood, found = study.ood_scores(approaches.ood_rows(is_quick=True)["far away"])
    assert found["generative density"][is_ood].min() > np.median(
        found["generative density"][~is_ood]
    )
    confidence = found["discriminative posterior"]
    assert np.median(confidence[is_ood]) < np.median(confidence[~is_ood])


def test_sentences_report_significant_differences() -> None:
    low, high, none = Interval(-2, -3, -1), Interval(2, 1, 3), Interval(0.5, -1, 2)
    gaps = {"a": low, "b": high, "c": none}
    assert " ".join(
        line.strip() for line in study.compare_in_words(gaps, "one", "other", "cost")
    ) == (
        "- one vs. other, cost: lower on a (by 2.0000); higher on b (by 2.0000); "
        "no significant difference on c."
    )
    curve = {"20": low, "50": none, "100": high}
    crossed = " ".join(line.strip() for line in study.crossing("set", "logistic", curve))
    assert "lower error at n = 20; logistic at n =" in crossed
    assert crossed.endswith("cross, as Ng and Jordan (2001) claim.")
    for other in ({"20": high, "50": low}, {"20": low}, {"20": none}):
        assert study.crossing("set", "logistic", other)[-1].endswith(" no crossing.")


def test_titles_match_the_stored_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["-o", str(tmp_path / "tables.txt"), "--differences", str(tmp_path / "gaps.md")]
    study.main(["--quick", *files])
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "tables.txt").read_text()
    shown = (DOCS / "studies" / "three_roads.md").read_text().split("**Verdicts**")[0]
    tables, stored = (
        re.findall(r"^(\*\*.*|\| [a-z(].*? \|)", text, re.MULTILINE)
        for text in ((tmp_path / "gaps.md").read_text(), shown)
    )
    assert tables == stored
    assert "Seeds: 20." in shown
    shown = (DOCS / "three_roads.txt").read_text()
    titles, theirs = (
        [line for line in text.splitlines() if line[:1] == "("] for text in (printed, shown)
    )
    assert titles == theirs
    assert len(titles) == 11


def test_the_page_quotes_only_the_stored_text() -> None:
    quoted = (DOCS / "three_roads.md").read_text().split("```")[1::2]
    shown = (DOCS / "three_roads.txt").read_text().splitlines()
    lines = [line for block in quoted for line in block.splitlines() if line]
    assert lines
    assert all(line in shown for line in lines)
