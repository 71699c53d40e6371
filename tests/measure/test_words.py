import re
from dataclasses import replace

import numpy as np

from dubito import Logits, Probabilities, TopLabel, audit
from dubito.measure import Interval
from dubito.measure.words import verdict_on

RNG = np.random.default_rng(0)


def test_lines_fit_a_terminal() -> None:
    groups = RNG.choice(["a", "b" * 40], 3000)
    names = [f"a class of a long name, number {k}" for k in range(12)]
    logits = Logits(RNG.normal(0, 3, (3000, 12)), classes=names)
    printed = str(audit(RNG.choice(names, 3000), logits, groups=groups))
    assert max(len(line) for line in printed.splitlines()) <= 100
    assert "class (worst 10)" in printed
    assert printed.splitlines()[0].startswith("Over-confident.")


def test_small_and_impossible_figures_are_told_in_words() -> None:
    y = np.repeat([0, 1], [700, 300])
    printed = str(audit(y, Probabilities(np.tile([0.999, 0.001], (1000, 1)))))
    assert "<0.0001" in printed
    assert "inf " in str(audit([1], [[1.0, 0.0]]))


def test_intervals_are_left_out_where_there_are_none() -> None:
    result = audit([0, 1, 1], [0.2, 0.7, 0.6], n_resamples=0)
    assert "interval" not in str(result)
    assert verdict_on(result) == result.verdict


def test_two_classes_need_no_table_of_classes() -> None:
    assert "class  " not in str(audit([0, 1, 1], [0.2, 0.7, 0.6]))


def test_the_interval_of_a_verdict_keeps_its_sign() -> None:
    result = replace(
        audit(None, TopLabel(np.full(400, 0.9), np.arange(400) < 300)),
        intervals={"gap": Interval(0.15, -0.02, 0.25)},
    )
    assert "15.0 points too sure (95 % interval -2.0 to 25.0)" in result.verdict
    under = audit(None, TopLabel(np.full(400, 0.6), np.arange(400) < 360))
    low, high = re.findall(r"interval ([\d.]+) to ([\d.]+)", under.verdict)[0]
    assert float(low) < 30 < float(high)


def test_rows_are_worth_what_their_weights_make_them() -> None:
    top = TopLabel(np.full(1000, 0.9), np.arange(1000) >= 100)
    heavy = np.where(np.arange(1000) == 0, 1e6, 1.0)
    assert audit(None, top, sample_weight=heavy).verdict.startswith("Too few rows to tell")
    three = np.where(np.arange(1000) < 3, 1.0, 0.0)
    result = audit(None, top, sample_weight=three)
    assert result.n_rows == 3
    assert result.verdict.startswith("Too few rows to tell (3 rows)")
