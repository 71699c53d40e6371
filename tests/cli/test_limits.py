"""Limits of metrics: what they mean, and the messages about those that are crossed or unknown."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dubito.cli.limits import crossed_limits, limit_warnings
from dubito.errors import BadValueError
from dubito.measure import audit
from tests.cli.conftest import Run

METRICS = {"expected_calibration_error": 0.05, "accuracy": 0.9, "brier_score.high": 0.25}


@pytest.mark.parametrize(
    ("limit", "is_crossed"),
    [
        ("ece>0.03", True),
        ("ece > 0.05", False),
        ("ece>=0.05", True),
        ("ece<5e-2", False),
        ("ece<=5e-2", True),
        ("accuracy<0.95", True),
        ("accuracy<0.9", False),
        ("brier_score.high>0.2", True),
    ],
)
def test_a_limit_is_crossed_or_not(limit: str, is_crossed: bool) -> None:
    assert bool(crossed_limits([limit], METRICS)) == is_crossed


def test_crossed_limits_are_listed_in_order() -> None:
    assert crossed_limits(["accuracy<1", "ece>0.5", "ece>0"], METRICS) == [
        "--fail-on 'accuracy<1': accuracy is 0.9",
        "--fail-on 'ece>0': expected_calibration_error is 0.05",
    ]


def test_a_signed_gap_needs_its_size_to_fail_in_both_directions(run: Run, made: Path) -> None:
    too_low = {"gap": -0.18}
    assert crossed_limits(["gap>0.01"], too_low) == []
    assert crossed_limits(["abs(gap)>0.01", "abs( gap ) >= 0.2"], too_low) == [
        "--fail-on 'abs(gap)>0.01': abs(gap) is 0.18"
    ]
    frame = pd.DataFrame({"confidence": [0.6] * 50, "correct": [1] * 50})
    frame.to_csv("timid.csv", index=False)
    columns = ["--confidence", "confidence", "--correct", "correct"]
    done = run("audit", "timid.csv", *columns, "--fail-on", "gap>0.01")
    assert done.exit_code == 0
    assert done.stderr.endswith(
        "dubito: --fail-on 'gap>0.01': gap is signed (predicted - observed), so that the other "
        "direction passes. Use abs(gap) for both.\n"
    )
    both = ["--fail-on", "gap>0.01", "--fail-on", "gap<-0.5"]
    assert "is signed" not in run("audit", "timid.csv", *columns, *both).stderr
    sized = run("audit", "timid.csv", *columns, "--fail-on", "abs(gap)>0.01")
    assert sized.exit_code == 1
    assert sized.stderr.endswith("dubito: --fail-on 'abs(gap)>0.01': abs(gap) is 0.4\n")


@pytest.mark.parametrize(
    "limit",
    ["ece", "ece>", "ece=0.1", "ece>much", ">0.1", "ece>-", "", "abs(ece>0.1", "ece)>0.1"],
)
def test_a_malformed_limit_raises(limit: str) -> None:
    with pytest.raises(BadValueError) as caught:
        crossed_limits([limit], METRICS)
    assert str(caught.value) == (
        "--fail-on must be a metric or abs(metric), one of < <= > >=, and a number, "
        f"got {limit!r}. Pass e.g. --fail-on 'ece>0.03'."
    )


def test_an_unknown_metric_lists_those_that_exist() -> None:
    with pytest.raises(BadValueError) as caught:
        crossed_limits(["acuracy<0.8"], METRICS)
    assert str(caught.value) == (
        "--fail-on must name a metric, got 'acuracy'. Use one of accuracy, ece."
    )
    with pytest.raises(BadValueError) as caught:
        crossed_limits(["log_los>0.9"], {"accuracy": 0.8, "log_loss": 0.1})
    assert str(caught.value) == (
        "--fail-on must name a metric, got 'log_los'. Use one of log_loss, accuracy."
    )


GROUPED = {
    "gap": 0.01,
    "group.a.b.gap": -0.2,
    "group.a.b.gap.low": -0.3,
    "group.*.gap": 0.3,
    "group.age<30.gap": 0.4,
    "disparity.gap": 0.6,
}


@pytest.mark.parametrize(
    ("limit", "names"),
    [
        ("abs(group.*.gap)>0.1", ["abs(group.a.b.gap)", "abs(group.age<30.gap)"]),
        ("group.a.b.gap<-0.1", ["group.a.b.gap"]),
        ("group.a.b.gap.low<-0.25", ["group.a.b.gap.low"]),
        ("group.'*'.gap>0.1", ["group.*.gap"]),
        ('group."a.b".gap<0', ["group.a.b.gap"]),
        ("group.age<30.gap>0.1", ["group.age<30.gap"]),
        ("disparity.gap>0.5", ["disparity.gap"]),
        ("disparity.*>0.5", ["disparity.gap"]),
        ("gap>0.1", []),
    ],
)
def test_names_of_groups_may_hold_anything(limit: str, names: list[str]) -> None:
    found = crossed_limits([limit], GROUPED, ["a.b", "*", "age<30"], ["*"])
    assert [one.rpartition(": ")[2].rpartition(" is ")[0] for one in found] == names


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (
            "group.c.gap>0.1",
            "must name a group, or all by group.*, got 'c'. Use one of a.b, *, age",
        ),
        ("group.a.b.ece>0.1", "must name a metric, got 'group.a.b.ece'. Use one of gap."),
        (
            "disparity.fpr>0",
            "must name a metric, got 'disparity.fpr'. Use one of disparity.gap, gap",
        ),
    ],
)
def test_unknown_names_are_listed(limit: str, said: str) -> None:
    with pytest.raises(BadValueError) as caught:
        crossed_limits([limit], GROUPED, ["a.b", "*", "age<30"])
    assert said in str(caught.value)
    for limit in ("group.a.gap>0", "group.*.gap>0"):
        with pytest.raises(BadValueError, match="Pass --group COLUMN as well"):
            crossed_limits([limit], {"gap": 1.0})


def test_any_group_is_any_that_has_the_metric() -> None:
    metrics = {"group.a.false_negative_rate": 0.5, "group.a.gap": 0.1, "group.b.gap": 0.2}
    [found] = crossed_limits(["group.*.fnr>0.1"], metrics, ["a", "b"])
    assert found.endswith("group.a.false_negative_rate is 0.5")
    with pytest.raises(BadValueError, match=r"got 'group.a.fpr'. Use one of fnr, gap"):
        crossed_limits(["group.*.fpr>0.1"], metrics, ["a", "b"])


def test_groups_that_are_left_out_and_one_sided_limits_are_said() -> None:
    assert limit_warnings(["group.*.gap>0.1"], ["tiny"]) == [
        "--fail-on 'group.*.gap>0.1': group.*.gap is signed (predicted - observed), so that the "
        "other direction passes. Use abs(group.*.gap) for both.",
        "--fail-on 'group.*' leaves out 1 group of too few rows: tiny.",
    ]


def test_limits_of_two_classes_are_on_the_positive_one_as_shown(run: Run) -> None:
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 8, 400)
    y = (rng.random(400) < np.minimum(3 * p, 1)) * 1
    site = np.where(rng.random(400) < 0.5, "a", "b")
    pd.DataFrame({"p": p, "label": y, "site": site}).to_csv("rare.csv", index=False)
    found = audit(y, p, groups=site, n_resamples=0)
    top, positive, group = found, found.positive, found.groups["a"].positive
    assert positive is not None
    assert group is not None
    wanted = {
        "gap": positive.gap,
        "expected_calibration_error": positive.expected_calibration_error,
        "maximum_calibration_error": positive.maximum_calibration_error,
        "top_label_gap": top.gap,
        "top_label_expected_calibration_error": top.expected_calibration_error,
        "group.a.expected_calibration_error": group.expected_calibration_error,
    }
    short = ["gap", "ece", "mce", "top_label_gap", "top_label_ece", "group.a.ece"]
    limits = [word for name in short for word in ("--fail-on", f"abs({name})>-1")]
    done = run("audit", "rare.csv", "--group", "site", "--json", *limits)
    assert [one.split(": ")[1] for one in json.loads(done.stdout)["findings"]] == [
        f"abs({name}) is {abs(value):.6g}" for name, value in wanted.items()
    ]
    unknown = run("audit", "rare.csv", "--fail-on", "positive_ece>0.1").stderr
    assert ", ece, " in unknown
    assert ", top_label_ece, " in unknown


@pytest.mark.parametrize("strategy", ["quantile", "uniform", "log"])
def test_the_number_of_bins_is_also_that_of_the_positive_class(run: Run, strategy: str) -> None:
    p = np.linspace(0.001, 0.999, 100)
    pd.DataFrame({"p": p, "label": [0, 1] * 50}).to_csv("even.csv", index=False)
    said = run("audit", "even.csv", "--bins", "5", "--bin-strategy", strategy).stdout
    found = audit([0, 1] * 50, p, n_bins=5, bin_strategy=strategy).positive
    assert found is not None
    assert found.curve.edges.size == 6
    assert f"ECE ({found.curve.bins.size} {strategy} bin" in said
    default = audit([0, 1] * 50, p, bin_strategy=strategy)
    assert default.positive is not None
    assert (default.n_bins, default.positive.curve.edges.size) == (15, 11)
