import numpy as np

from dubito import Logits, Probabilities, audit
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
