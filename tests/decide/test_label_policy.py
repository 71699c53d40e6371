"""Policies for several labels per row, against plain loops over rows, labels and sets of labels."""

import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import fbeta_score

from dubito import LabelCosts, MultiLabel, MultiLabelPolicy
from dubito.arrays import FloatArray
from dubito.calibrate import MultiLabelCalibrator
from dubito.data import ArrayShards, Batch, LabelMatrix
from dubito.data.shards import CountedShards
from dubito.decide import CostMatrix, FBeta, Policy, load_policy, policy_from_json
from dubito.decide.multilabel.label_decisions import LabelRule
from dubito.decide.policy.loading import seal_policy
from dubito.errors import BadFileError, BadTypeError, BadValueError, DubitoError, DubitoWarning
from dubito.serialization.documents import decode_document, encode_document
from dubito.serialization.objects import clone

NAMES = ("cough", "fever", "rash", "tumor")
COSTS = LabelCosts(1, {"tumor": 20, "*": 5}, review=0.3, review_row=1.1)
PLATT = MultiLabelCalibrator("platt", other_labels=False)


def simulated(n_rows: int = 400, n_labels: int = 4, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Return log odds that are twice too large, and labels of which some are unknown."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-1, 1.5, (n_rows, n_labels))
    y = (rng.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(float)
    y[rng.random(odds.shape) < 0.1] = np.nan
    return 2 * odds, y


def fitted(**settings: Any) -> MultiLabelPolicy:
    odds, y = simulated()
    given = {"calibrator": PLATT} | settings
    return MultiLabelPolicy.fit(MultiLabel.from_logits(odds, NAMES), y, **given)


@pytest.fixture(scope="module")
def policy() -> MultiLabelPolicy:
    return fitted(costs=COSTS)


@pytest.fixture(scope="module")
def samples() -> MultiLabelPolicy:
    return fitted(f_beta=FBeta(1, "samples"))


def best_by_hand(p: FloatArray, costs: LabelCosts) -> tuple[list[str], bool, float, float]:
    """Return the actions of one row of lowest expected cost, over all combinations of them."""
    fps, fns, reviews = costs.false_positive, costs.false_negative, costs.review or [None] * p.size
    best: tuple[float, int, tuple[str, ...]] | None = None
    for actions in product(("negative", "positive", "review"), repeat=p.size):
        total = 0.0
        for k, action in enumerate(actions):
            review = np.inf if reviews[k] is None else reviews[k]
            total += {
                "negative": fns[k] * p[k],
                "positive": fps[k] * (1 - p[k]),
                "review": review,
            }[action]
        if best is None or total < best[0] - 1e-12:
            best = (total, 0, actions)
    assert best is not None
    least = sum(min(fns[k] * p[k], fps[k] * (1 - p[k])) for k in range(p.size))
    if costs.review_row is not None and costs.review_row < best[0]:
        return ["review"] * p.size, True, costs.review_row, least - costs.review_row
    return list(best[2]), False, best[0], least - best[0]


@pytest.mark.parametrize(
    "costs",
    [
        LabelCosts(),
        LabelCosts(1, 5, review=0.4),
        LabelCosts(1, 5, review_row=1.2),
        LabelCosts([1, 2, 3], [5, 1, 9], review=[0.4, None, 1.1], review_row=1.5),
    ],
)
def test_decisions_are_the_best_of_all_combinations(costs: LabelCosts) -> None:
    rng = np.random.default_rng(1)
    p = rng.random((60, 3)) ** 2
    named = costs.for_labels("abc")
    found = LabelRule(named, None, None, ("a", "b", "c")).decide(p)
    for row in range(60):
        actions, is_row, cost, value = best_by_hand(p[row], named)
        assert [found.actions[k] for k in found.action[row]] == actions
        assert found.review_row[row] == is_row
        assert found.expected_cost[row] == pytest.approx(cost)
        assert found.review_value[row] == pytest.approx(value, abs=1e-12)
    order = found.review_order
    assert set(order) == set(np.flatnonzero((found.action == 2).any(axis=1)))
    assert (np.diff(found.review_value[order]) <= 0).all()


def expected_f_beta(p: FloatArray, chosen: tuple[int, ...], beta: float) -> float:
    """Return the expected score of a set of labels, over all outcomes."""
    total = 0.0
    for truth in product((0, 1), repeat=p.size):
        chance = np.prod(np.where(truth, p, 1 - p))
        hits, bottom = np.dot(truth, chosen), beta**2 * sum(truth) + sum(chosen)
        total += chance * ((1 + beta**2) * hits / bottom if bottom else 1.0)
    return float(total)


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_sets_of_highest_expected_f_beta_are_the_best_of_all_sets(beta: float) -> None:
    rng = np.random.default_rng(2)
    rows = [rng.random(4) ** power for power in (0.3, 1, 3) for _ in range(4)]
    rows += [np.array(one) for one in ([0, 0, 0, 0], [1, 1, 0, 0.5], [1, 1, 1, 1])]
    found = FBeta(beta, "samples").best_sets(np.array(rows, dtype=np.float64))
    for p, chosen in zip(rows, found, strict=True):
        best = max(expected_f_beta(p, one, beta) for one in product((0, 1), repeat=4))
        assert expected_f_beta(p, tuple(chosen.astype(int)), beta) == pytest.approx(best, abs=1e-12)


@pytest.mark.slow
def test_sets_of_ten_labels_are_the_best_of_all_1024() -> None:
    rng = np.random.default_rng(3)
    truths = np.array(list(product((0, 1), repeat=10)))
    bottoms = truths.sum(1)[:, None] + truths.sum(1)[None]
    scores = np.where(bottoms > 0, 2 * truths @ truths.T / np.maximum(bottoms, 1), 1.0)
    p = rng.random((30, 10)) ** rng.choice([0.3, 1, 4], (30, 1))
    for row, chosen in zip(p, FBeta(1, "samples").best_sets(p), strict=True):
        chances = np.prod(np.where(truths, row, 1 - row), axis=1)
        expected = chances @ scores
        code = int(chosen.astype(int) @ 2 ** np.arange(10)[::-1])
        assert expected[code] == pytest.approx(expected.max(), abs=1e-12)


def test_sets_of_many_labels_keep_their_precision() -> None:
    p = np.random.default_rng(4).random((3, 200)) ** 8
    found = FBeta(1, "samples").best_sets(p)
    for row, chosen in zip(p, found, strict=True):
        order = np.argsort(-row)
        values = []
        for size in range(1, 60):  # by convolution of the chosen and the other labels
            parts = []
            for some in (row[order[:size]], row[order[size:]]):
                counts = np.ones(1)
                for one in some:
                    counts = np.convolve(counts, [1 - one, one])
                parts.append(counts)
            i, j = np.ogrid[: parts[0].size, : parts[1].size]
            values.append((np.outer(*parts) * 2 * i / (i + j + size)).sum())
        assert chosen.sum() == 1 + int(np.argmax(values))


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("average", ["macro", "micro"])
def test_thresholds_of_f_beta_are_the_best_of_all_cuts(average: str, beta: float) -> None:
    rng = np.random.default_rng(5)
    p, weight = rng.random((50, 3)) ** [1, 2, 4], rng.integers(1, 4, 50).astype(float)
    found = FBeta(beta, average).thresholds(p, weight)
    assert found is not None

    def score(p: FloatArray, weight: FloatArray, cut: float) -> float:
        chosen = p >= cut
        hits = weight @ (chosen * p)
        return float((1 + beta**2) * hits / (beta**2 * weight @ p + weight @ chosen))

    parts = [(p[:, k], weight) for k in range(3)]
    if average == "micro":
        parts = [(p.ravel(), np.repeat(weight, 3))] * 3
    for (chances, counts), threshold in zip(parts, found, strict=True):
        best = max(score(chances, counts, cut) for cut in chances)
        assert score(chances, counts, threshold) == pytest.approx(best)
        assert threshold == pytest.approx(best / (1 + beta**2))


@pytest.mark.parametrize("average", ["macro", "micro", "samples"])
def test_the_realized_score_is_that_of_scikit_learn(average: Any) -> None:
    rng = np.random.default_rng(6)
    y, chosen = rng.random((80, 4)) < 0.3, rng.random((80, 4)) < 0.4
    y[:, 3] = chosen[:, 3] = False  # never true, never predicted: left out of the mean
    weight = rng.integers(1, 4, 80).astype(float)
    values = FBeta(2.0, average).row_scores(y.astype(float), chosen, weight)
    empty = {"macro": np.nan, "micro": 0, "samples": 1.0}[average]
    expected = fbeta_score(
        y, chosen, beta=2, average=average, sample_weight=weight, zero_division=empty
    )
    assert np.average(values, weights=weight) == pytest.approx(expected, abs=1e-12)


def test_costs_of_reported_rows_are_those_of_a_loop() -> None:
    odds, y = simulated()
    outputs = MultiLabel.from_logits(odds, NAMES)
    weight = np.random.default_rng(7).integers(1, 4, len(y)).astype(float)
    batch = Batch.of(y, outputs, sample_weight=weight)
    policy, evidence = MultiLabelPolicy.fit_shards(
        ArrayShards(batch), costs=COSTS, calibrator=PLATT
    )
    costs, report, found = policy.costs, policy.report, evidence.decisions
    labels, weight = evidence.y, evidence.batch.weight
    total, current, n_row, by_label = 0.0, 0.0, 0.0, np.zeros((4, 5))
    for k in range(4):
        known = ~np.isnan(labels[:, k])
        factor = weight.sum() / weight[known].sum()
        for i in np.flatnonzero(known):
            truth, times = int(labels[i, k]), weight[i] * factor
            errors = (costs.false_negative[k] * truth, costs.false_positive[k] * (1 - truth))
            if not found.review_row[i]:
                action = found.action[i, k]
                total += times * (costs.review[k] if action == 2 else errors[action])
            current += times * errors[int(evidence.uncalibrated[i, k] >= 0.5)]
            cell = 4 if found.action[i, k] == 2 else [[3, 2], [1, 0]][found.action[i, k]][truth]
            by_label[k, cell] += weight[i] / weight[known].sum()
    for i in np.flatnonzero(found.review_row):
        total, n_row = total + weight[i] * costs.review_row, n_row + weight[i]
    n = weight.sum()
    assert report.cost.value == pytest.approx(total / n)
    assert report.current_cost == pytest.approx(current / n)
    assert report.current_saved.value == pytest.approx((current - total) / n)
    assert report.row_review_rate.value == pytest.approx(n_row / n)
    table = [list(row.values()) for row in report.confusion.values()]
    np.testing.assert_allclose(table, by_label, atol=1e-12)
    assert report.gap.low < report.gap.value < report.gap.high
    assert report.gap.value == pytest.approx(report.expected_cost - report.cost.value)


def test_evidence_is_cross_fitted() -> None:
    odds, y = simulated(200)
    batch = Batch.of(y, MultiLabel.from_logits(odds, NAMES))
    policy, evidence = MultiLabelPolicy.fit_shards(ArrayShards(batch), calibrator=PLATT)
    held_out = evidence.decisions.probabilities
    in_sample = policy.predict_proba(evidence.batch.outputs)
    assert not np.allclose(held_out, in_sample, atol=1e-6)
    first = 40  # the first of five folds
    others = clone(PLATT).fit(evidence.batch.take(slice(first, None)))
    np.testing.assert_allclose(
        held_out[:first], others.predict_proba(evidence.batch.outputs.take(slice(first)))
    )


def test_a_file_is_the_same_policy(
    policy: MultiLabelPolicy, samples: MultiLabelPolicy, tmp_path: Path
) -> None:
    odds, _ = simulated(100, seed=9)
    outputs = MultiLabel.from_logits(odds, NAMES)
    for one in (policy, fitted(f_beta=FBeta(2.0, "micro")), samples):
        path = tmp_path / "policy.json"
        one.save(path)
        for again in (MultiLabelPolicy.load(path), load_policy(path)):
            assert isinstance(again, MultiLabelPolicy)
            assert again.to_json() == one.to_json()
            assert (again.costs, again.report) == (one.costs, one.report)
            assert str(again) == str(one)
            before, after = one.decide(outputs), again.decide(outputs)
            np.testing.assert_array_equal(before.action, after.action)
            np.testing.assert_array_equal(before.expected_cost, after.expected_cost)


def test_results_show_what_they_are(policy: MultiLabelPolicy, samples: MultiLabelPolicy) -> None:
    assert repr(policy) == "MultiLabelPolicy(4 labels, costs)"
    assert repr(samples) == "MultiLabelPolicy(4 labels, samples F1)"
    found = policy.decide(MultiLabel([[0.9, 0.1, 0.5, 0.0]], NAMES))
    assert repr(found).startswith("MultiLabelDecisions(shape (1, 4), mean review_row ")
    assert str(found).startswith("1 row x 4 labels: negative ")
    explained = policy.explain(MultiLabel([[0.9, 0.1, 0.5, 0.0]] * 3, NAMES), row=2).splitlines()
    assert len(explained) == 5
    cost = found.expected_cost[0]
    expected = f"Action: review labels, at an expected cost of {cost:.4g}."
    assert explained[0] == expected or found.review_row[0]
    for k, line in enumerate(explained[1:]):
        assert line.startswith(
            f"{NAMES[k]}: {found.actions[found.action[0, k]]}. The model predicts "
        )
    with pytest.raises(BadValueError, match="from 0 to 2, got 3"):
        policy.explain([[0.9, 0.1, 0.5, 0.0]] * 3, row=3)


def test_each_class_names_the_one_that_reads_a_file(
    policy: MultiLabelPolicy, tmp_path: Path
) -> None:
    one = Policy.fit([[0.8, 0.2], [0.3, 0.7]] * 20, [0, 1] * 20, costs=CostMatrix.zero_one(2))
    with pytest.raises(BadFileError, match=r"holds a MultiLabelPolicy.*Use MultiLabelPolicy.load"):
        Policy.from_json(policy.to_json())
    with pytest.raises(BadFileError, match=r"holds a Policy, not.*Use Policy.load, or load_policy"):
        MultiLabelPolicy.from_json(one.to_json())
    assert isinstance(policy_from_json(one.to_json()), Policy)
    path = tmp_path / "policy.json"
    path.write_text(policy.to_json().replace('"review_row": 1.1', '"review_row": 0.9'))
    with pytest.raises(BadFileError, match="dubito policy seal"):
        load_policy(path)
    seal_policy(path)
    sealed = load_policy(path)
    assert sealed.costs.review_row == 0.9  # type: ignore[union-attr]
    assert "Edited by hand" in str(sealed)
    path.write_text('{"a": 1}')
    with pytest.raises(BadFileError, match="not a dubito policy"):
        load_policy(path)


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        ("costs.false_negative", 5.0, "costs.false_negative"),
        ("costs.false_positive", [1.0, 1.0], "costs.false_positive"),
        ("costs.review", [0.1, 0.1, -1.0, 0.1], r"costs.review"),
        ("costs.review_row", 0.0, "costs.review_row"),
        ("f_beta", {"beta": 1.0, "average": "macro"}, "f_thresholds"),
        ("f_beta", {"beta": 1.0, "average": "samples"}, "costs"),
        ("f_beta", {"beta": 1.0, "average": "mean"}, "average"),
        ("f_thresholds", [0.5] * 4, "f_thresholds"),
        ("report.cost", [1.0, 2.0], "report.cost"),
        ("report.confusion", {"cough": {"review": 2.0}}, "report.confusion"),
        ("calibrator.fitted.n_labels_", 3, "calibrator"),
        ("provenance", {}, "provenance"),
    ],
)
def test_a_changed_entry_is_named(
    policy: MultiLabelPolicy, path: str, value: Any, place: str
) -> None:
    document, _ = decode_document(policy.to_json(), "file")
    *parents, last = path.split(".")
    holder: Any = document
    for one in parents:
        holder = holder[one]
    holder[last] = value
    with pytest.raises(DubitoError, match=place):
        MultiLabelPolicy.from_json(encode_document(document, "test"))


def test_labels_may_be_permuted(policy: MultiLabelPolicy) -> None:
    odds, y = simulated()
    order = [2, 0, 3, 1]
    names = [NAMES[k] for k in order]
    other = MultiLabelPolicy.fit(
        MultiLabel.from_logits(odds[:, order], names), y[:, order], costs=COSTS, calibrator=PLATT
    )
    one, two = (
        policy.decide(MultiLabel.from_logits(odds, NAMES)),
        other.decide(MultiLabel.from_logits(odds[:, order], names)),
    )
    np.testing.assert_array_equal(one.action[:, order], two.action)
    np.testing.assert_allclose(one.expected_cost, two.expected_cost, atol=1e-6)
    assert policy.report.cost.value == pytest.approx(other.report.cost.value, abs=1e-6)
    by_name = policy.decide(MultiLabel.from_logits(odds[:, order], names))
    np.testing.assert_array_equal(by_name.action, one.action)


def test_blocks_of_rows_decide_like_all_rows(
    policy: MultiLabelPolicy, samples: MultiLabelPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    odds, _ = simulated(300, seed=8)
    outputs = MultiLabel.from_logits(odds, NAMES)
    for one in (policy, samples):
        whole = one.decide(outputs)
        with monkeypatch.context() as patch:
            patch.setenv("DUBITO_BLOCK_ENTRIES", "44")
            parts = one.decide(outputs)
        single = [one.decide(outputs.take(slice(k, k + 1))) for k in range(5)]
        for name in ("action", "fallback", "review_row", "expected_cost", "review_value"):
            np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))
            few = np.concatenate([getattr(each, name) for each in single])
            np.testing.assert_array_equal(getattr(whole, name)[:5], few)
    assert len(policy.decide(outputs.take(slice(0, 0)))) == 0


@pytest.mark.slow
def test_streamed_rows_fit_the_same_policy() -> None:
    odds, y = simulated(1000)
    batch = Batch.of(y, MultiLabel.from_logits(odds, NAMES))
    streamed = CountedShards(ArrayShards(batch, 300))  # not taken for rows in memory
    assert len(list(streamed.batches())) > 1
    for settings in ({"costs": COSTS}, {"f_beta": FBeta()}):
        one, two = (
            MultiLabelPolicy.fit(rows, calibrator=PLATT, **settings) for rows in (streamed, batch)
        )
        assert one.report.cost.value == pytest.approx(two.report.cost.value, rel=1e-6)
        for first, second in zip(one.thresholds, two.thresholds, strict=True):
            assert first.positive == pytest.approx(second.positive, rel=1e-6)
            assert first.uncalibrated_positive == pytest.approx(
                second.uncalibrated_positive, rel=1e-6
            )


def test_single_precision_decides_the_same(policy: MultiLabelPolicy) -> None:
    odds, _ = simulated(100, seed=11)
    exact = policy.decide(MultiLabel.from_logits(odds, NAMES))
    short = policy.decide(MultiLabel.from_logits(odds.astype(np.float32), NAMES))
    assert short.probabilities.dtype == np.float32
    np.testing.assert_array_equal(exact.action, short.action)
    np.testing.assert_allclose(exact.expected_cost, short.expected_cost, rtol=1e-5)


@pytest.mark.parametrize("average", ["macro", "micro"])
def test_linearized_scores_vary_like_resampled_ones(average: str) -> None:
    rng = np.random.default_rng(12)
    y = (rng.random((500, 3)) < 0.3).astype(float)
    chosen = rng.random((500, 3)) < 0.2 + 0.5 * y
    aim, ones = FBeta(1, average), np.ones(500)
    values = aim.row_scores(y, chosen, ones)
    drawn = []
    for _ in range(400):
        rows = rng.integers(500, size=500)
        drawn.append(aim.row_scores(y[rows], chosen[rows], ones).mean())
    assert values.std() / np.sqrt(500) == pytest.approx(np.std(drawn), rel=0.15)


def test_thresholds_are_where_decisions_change(
    policy: MultiLabelPolicy, samples: MultiLabelPolicy
) -> None:
    for k, one in enumerate(policy.thresholds):
        assert one.label == NAMES[k]
        assert one.review == pytest.approx(0.3 / policy.costs.false_negative[k])
        assert one.positive == pytest.approx(0.7)
        for raw, below, above in (
            (one.uncalibrated_review, 0, 2),
            (one.uncalibrated_positive, 2, 1),
        ):
            assert raw is not None
            odds = np.full((2, 4), -14.0)
            odds[:, k] = np.log(raw / (1 - raw)) + np.array([-0.01, 0.01])
            action = policy.decide(MultiLabel.from_logits(odds, NAMES)).action[:, k]
            assert action.tolist() == [below, above]
    assert all(one.positive is None for one in samples.thresholds)
    plain = fitted(costs=LabelCosts(1, 3)).thresholds
    assert {(one.review, one.positive) for one in plain} == {(None, 0.25)}


@pytest.mark.slow
def test_nasty_rows_have_finite_figures() -> None:
    rng = np.random.default_rng(10)
    p = rng.random((60, 5))
    p[:, 1] = p[:, 1] > 0.5  # only 0 and 1
    y = (rng.random(p.shape) < 0.5 * p).astype(float)
    y[:, 2] = np.nan  # never known
    y[:, 3] = 0  # never true
    y[5] = np.nan
    for settings in (
        {"costs": LabelCosts(1, 5, review=0.4, review_row=1.5)},
        {"f_beta": FBeta()},
        {"f_beta": FBeta(average="micro")},
        {"f_beta": FBeta(average="samples")},
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DubitoWarning)
            one = MultiLabelPolicy.fit(p, y, **settings)
        assert list(one.report.confusion) == ["0", "1", "3", "4"]
        assert "nan" not in str(one)
        found = one.decide([[0.0, 1.0, 0.5, 0.0, 1.0], [1.0, 0.0, 1.0, 1.0, 0.0]])
        for values in (found.probabilities, found.expected_cost, found.review_value):
            assert np.isfinite(values).all()
    single = MultiLabelPolicy.fit(p[:, :1], (p[:, :1] > 0.4).astype(float))
    assert single.decide([[0.99], [0.01]]).action.tolist() == [[1], [0]]
    assert "1 label:" in str(single.decide([[0.99]]))


def test_uncertain_labels_are_as_declared() -> None:
    odds, y = simulated(100)
    y[::7, 0] = -1
    outputs = MultiLabel.from_logits(odds, NAMES)
    with pytest.raises(BadValueError, match="uncertain='ignore'"):
        MultiLabelPolicy.fit(outputs, y)
    one = MultiLabelPolicy.fit(outputs, y, uncertain="ones", calibrator=PLATT)
    same = MultiLabelPolicy.fit(
        outputs, LabelMatrix.of(y, outputs, uncertain="ones"), calibrator=PLATT
    )
    assert one.report == same.report
    with pytest.raises(BadValueError, match="must be None without an array y"):
        MultiLabelPolicy.fit(Batch.of(np.abs(y), outputs), uncertain="ones")


def test_costs_that_can_hardly_be_meant_are_warned_about() -> None:
    names = ("a", "b", "c")
    assert LabelCosts(1, 5, review=0.4, review_row=1.0).warnings(names) == []
    [never] = LabelCosts(1, 1, review=[0.6, 0.6, 0.4]).warnings(names)
    assert never == "Review of a and b is never chosen: it would have to cost 0.5 or less."
    [row] = LabelCosts(review_row=1.5).warnings(names)
    assert row == "Review of a row is never chosen: it would have to cost less than 1.5."
    [unused] = LabelCosts(9, 9, review=2.0, review_row=1.0).warnings(names)
    assert unused == "Review of single labels costs more than that of the row: it is unused."
    with pytest.warns(DubitoWarning, match="Review of single labels is never chosen"):
        assert "never chosen" in fitted(costs=LabelCosts(review=0.7)).report.notes[0]


def test_decisions_that_are_all_alike_are_warned_about() -> None:
    with pytest.warns(DubitoWarning, match=r"All rows are reviewed as a whole: 0\.01 is less than"):
        every = fitted(costs=LabelCosts(1, 5, review_row=0.01))
    assert every.report.row_review_rate.value == 1
    assert every.report.cost.value == pytest.approx(0.01)
    y = np.random.default_rng(0).random((100, 2)) < 0.4
    p = np.column_stack([0.2 + 0.6 * y[:, 0], np.full(100, 0.4)])
    with pytest.warns(DubitoWarning, match="macro F1 is highest with 1 predicted in all rows"):
        MultiLabelPolicy.fit(p, y, f_beta=FBeta(), calibrator=PLATT)


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ({"false_positive": 0}, r"`false_positive` must be a finite number above 0.*got 0\."),
        ({"false_negative": float("nan")}, "got nan"),
        ({"false_negative": float("inf")}, "got inf"),
        ({"false_positive": "2"}, "got '2'"),
        ({"false_positive": True}, "got True"),
        ({"false_negative": [1, None, 2, 3]}, "got None"),
        ({"review_row": -1}, "`review_row` must be a finite number above 0"),
        ({"review": {"cough": "cheap", "*": 1}}, "got 'cheap'"),
    ],
)
def test_invalid_costs_raise(costs: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValueError, match=message):
        LabelCosts(**costs)


def test_costs_are_matched_by_name() -> None:
    given = LabelCosts({"b": 2, "a": 1}, {"*": 3, "a": 4}, review={"a": None, "b": 0.5})
    found = given.for_labels(["a", "b"])
    assert (found.false_positive, found.false_negative) == ((1.0, 2.0), (4.0, 3.0))
    assert found.review == (None, 0.5)
    assert LabelCosts(review=[None, None]).for_labels("ab").review is None
    assert LabelCosts({1: 2.0, 0: 3.0}).for_labels((0, 1)).false_positive == (3.0, 2.0)
    with pytest.raises(BadValueError, match=r"must name labels only \(a and b\), got 'c'"):
        LabelCosts({"c": 1, "*": 1}).for_labels(["a", "b"])
    with pytest.raises(BadValueError, match=r"for each label, got none for 'b'.*'\*' for all"):
        LabelCosts({"a": 1}).for_labels(["a", "b"])
    with pytest.raises(BadValueError, match=r"one per label \(2\), got 3"):
        LabelCosts(1, [1, 2, 3]).for_labels(["a", "b"])


def test_bad_arguments_of_a_fit_are_named() -> None:
    odds, y = simulated(50)
    outputs = MultiLabel.from_logits(odds, NAMES)
    for settings, message in (
        ({"costs": CostMatrix.zero_one(2)}, "must be None or a LabelCosts, got CostMatrix"),
        ({"f_beta": 1.0}, "must be None or a FBeta, got float"),
        ({"calibrator": "isotonic"}, "must be 'auto' or a MultiLabelCalibrator"),
    ):
        with pytest.raises(BadTypeError, match=message):
            MultiLabelPolicy.fit(outputs, y, **settings)
    with pytest.raises(BadValueError, match="must be None with costs"):
        MultiLabelPolicy.fit(outputs, y, costs=LabelCosts(), f_beta=FBeta())
    with pytest.raises(BadTypeError, match="`y` must hold the labels"):
        MultiLabelPolicy.fit(outputs)
    with pytest.raises(BadValueError, match=r"at least 0\.001 and at most 1000, got 0"):
        FBeta(0)
    with pytest.raises(BadValueError, match="average"):
        FBeta(1, "weighted")


def test_two_groups_are_enough() -> None:
    odds, y = simulated(200)
    sites = np.array(["north", "south"])[np.arange(200) % 2]
    policy = MultiLabelPolicy.fit(MultiLabel.from_logits(odds), y, calibrator=PLATT, groups=sites)
    assert "cross-fitted in 2 folds" in str(policy.report)


@pytest.mark.parametrize("settings", [{"costs": COSTS}, {"f_beta": FBeta(1, "macro")}])
def test_a_policy_is_evaluated_on_other_rows(settings: dict[str, Any]) -> None:
    odds, y = simulated(150, seed=1)
    y = np.nan_to_num(y)  # all known, so that the figures are plain means
    others = MultiLabel.from_logits(odds, NAMES)
    found = fitted(evaluate_on=Batch.of(y, others), **settings)
    report, decisions = found.report, found.decide(others)
    assert (report.evaluation, report.n_rows) == ("an evaluation set", 150)
    assert report.expected_cost == pytest.approx(decisions.expected_cost.mean())
    assert "150 rows, an evaluation set" in str(found)
    # The labels of other rows may come in another order.
    moved = Batch.of(y[:, ::-1], MultiLabel.from_logits(odds[:, ::-1], NAMES[::-1]))
    assert fitted(evaluate_on=moved, **settings).report.to_dict() == report.to_dict()
    assert np.array_equal(fitted(**settings).decide(others).action, decisions.action)


def test_evaluation_rows_have_the_labels_of_the_fit() -> None:
    odds, y = simulated(50, seed=1)
    fewer = Batch.of(y[:, :3], MultiLabel.from_logits(odds[:, :3], NAMES[:3]))
    with pytest.raises(BadValueError, match="`evaluate_on` must have the 4 labels of the fit"):
        fitted(evaluate_on=fewer)
    with pytest.raises(BadTypeError, match=r"MultiLabelPolicy\.fit: `evaluate_on` must be"):
        fitted(evaluate_on=fewer.outputs)


def test_a_policy_is_evaluated_on_labels_in_any_order(policy: MultiLabelPolicy) -> None:
    odds, y = simulated()
    batch = Batch.of(y, MultiLabel.from_logits(odds, NAMES))
    turned = Batch.of(y[:, ::-1], MultiLabel.from_logits(odds[:, ::-1], NAMES[::-1]))
    first, second = (policy.report_on(policy.evidence_on(one, "here")) for one in (batch, turned))
    assert first.cost == second.cost
    assert first.cost.value != policy.report.cost.value
    assert first.evaluation == "here"
    assert policy.action_names == ("automatic", "review labels", "review row")
    assert policy.has_reviews
    assert not fitted().has_reviews
    assert policy.explain_batch(batch, 1) == policy.explain(batch.outputs, row=1)
    columns, whole = policy.decide_batch(batch).columns(), policy.decide(batch.outputs).columns()
    assert {name: one.tolist() for name, one in columns.items()} == {
        name: one.tolist() for name, one in whole.items()
    }
