"""Three roads to a decision, side by side: what does knowing more of the data buy?

    python -m studies.three_roads            # a few minutes
    python -m studies.three_roads --quick    # small made sets, drawn twice
    python -m studies.three_roads -o FILE    # writes the tables there too

Generative, discriminative and discriminant (see `roads`): when costs change after training, when a
class gets rare, when rows are strange or few, may be rejected, or models are combined.

Each set is drawn 20 times into rows to learn from and rows to test on. Made sets are new at every
draw (Student's intervals); real ones share rows (intervals after Nadeau and Bengio, 2003).
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import wrap

import numpy as np
from sklearn.model_selection import cross_val_predict, train_test_split
from threadpoolctl import threadpool_limits

from dubito import Probabilities
from dubito.arrays import BoolArray, FloatArray
from dubito.decide import (
    CostMatrix,
    LogLinearPool,
    adjust_prior,
    combine_posteriors,
    optimal_actions,
    realized_cost,
)
from dubito.doubt import ClassConditionalDensity, least_confidence
from dubito.measure import Interval, paired_difference, roc_auc
from studies.credit_costs import corrected_interval
from studies.three_roads.roads import (
    Rows,
    Source,
    Strangers,
    correlated,
    logistic,
    machine,
    posteriors,
    regression,
    sources,
    strangers,
)

__all__ = [
    "crossing",
    "doubts",
    "main",
    "told",
    "when_a_class_gets_rare",
    "when_costs_change",
    "when_models_are_combined",
    "when_rows_are_few",
    "when_rows_can_be_rejected",
]

N_DRAWS = 20
RATIOS = (5, 50)  # what missing a row of class 1 costs, where a false alarm costs 1
RARER = 10  # times, after training
REJECT_COST = 0.1
SIZES = (20, 50, 100, 200, 500, 1000, 2000)
NO_PENALTY = 1e4  # a weight of the rows beside which the penalty does not count
N_GROUPS = 3  # of features, a model each

Found = Mapping[str, FloatArray]  # of each way one figure a draw


def over_draws(one: Callable[[Rows], Mapping[str, float]], source: Source, n_draws: int) -> Found:
    """Return the figures of each way over the draws of a source."""
    found: dict[str, list[float]] = {}
    for seed in range(n_draws):
        for way, value in one(source.draw(seed)).items():
            found.setdefault(way, []).append(value)
    return {way: np.array(values) for way, values in found.items()}


def two_costs(miss: float) -> CostMatrix:
    """Return the costs of a false alarm, 1, and of a miss."""
    return CostMatrix.from_errors(false_positive=1, false_negative=miss)


def when_costs_change(rows: Rows, miss: float) -> Mapping[str, float]:
    """Return what each road costs a row, if costs are told only after training."""
    x, y, new_x, new_y, truth = rows
    costs = two_costs(miss)
    known = {} if truth is None else {"the truth": np.stack([1 - truth, truth], axis=1)}
    known |= posteriors(x, y, new_x)
    actions = {way: optimal_actions(one, costs) for way, one in known.items()}
    actions["discriminant"] = machine(x, y).predict(new_x)
    actions["discriminant (trained again)"] = machine(x, y, miss).predict(new_x)
    return {way: realized_cost(new_y, taken, costs) for way, taken in actions.items()}


def when_a_class_gets_rare(rows: Rows) -> Mapping[str, float]:
    """Return what each road costs a row where class 1 is ten times rarer than it was.

    Test rows are weighted instead of left out: the same mean with less noise.
    """
    x, y, new_x, new_y, _ = rows
    costs, share, new_share = two_costs(RATIOS[0]), y.mean(), new_y.mean()
    rare = share / RARER
    weight = np.where(new_y == 1, rare / new_share, (1 - rare) / (1 - new_share))
    actions = {}
    for way, one in posteriors(x, y, new_x).items():
        adjusted = adjust_prior(Probabilities(one), [1 - share, share], [1 - rare, rare])
        actions[way] = optimal_actions(one, costs)
        actions[f"{way} (adjusted)"] = optimal_actions(adjusted, costs)
    actions["discriminant (these costs)"] = machine(x, y, RATIOS[0]).predict(new_x)
    return {
        way: realized_cost(new_y, taken, costs, sample_weight=weight)
        for way, taken in actions.items()
    }


def when_rows_can_be_rejected(rows: Rows) -> Mapping[str, float]:
    """Return what each road costs a row where an error costs 1 and asking a person 0.1."""
    x, y, new_x, new_y, _ = rows
    costs = CostMatrix.zero_one(2).with_reject(REJECT_COST)
    found = posteriors(x, y, new_x)
    actions = {way: optimal_actions(one, costs) for way, one in found.items()}
    actions["discriminant (cannot reject)"] = machine(x, y).predict(new_x)
    return {way: realized_cost(new_y, taken, costs) for way, taken in actions.items()}


def when_models_are_combined(rows: Rows) -> Mapping[str, float]:
    """Return the error of three models on a third of the features each, brought together."""
    x, y, new_x, new_y, _ = rows
    groups = np.array_split(np.arange(x.shape[1]), N_GROUPS)
    prior = [1 - y.mean(), y.mean()]
    models = [posteriors(x[:, one], y, new_x[:, one]) for one in groups]
    held_out = [
        cross_val_predict(regression(), x[:, one], y, method="predict_proba") for one in groups
    ]
    votes = [machine(x[:, one], y).predict(new_x[:, one]) for one in groups]
    classes = {
        way: combine_posteriors([one[way] for one in models], prior).array.argmax(axis=1)
        for way in models[0]
    }
    pool = LogLinearPool().fit(held_out, y)
    pooled = pool.predict_proba([one["discriminative"] for one in models])
    classes["discriminative (pool)"] = pooled.argmax(axis=1)
    classes["discriminant (vote)"] = (np.mean(votes, axis=0) > 0.5).astype(np.int64)
    return {way: float((one != new_y).mean()) for way, one in classes.items()}


def when_rows_are_few(rows: Rows, n: int) -> Mapping[str, float]:
    """Return the error of each road after n rows, both classes among them."""
    x, y = rows.x, rows.y
    if n < y.size:
        x, _, y, _ = train_test_split(x, y, train_size=n, stratify=y, random_state=0)
    found = {
        "naive densities": ClassConditionalDensity("diagonal")
        .fit(x, y)
        .posteriors(rows.new_x)
        .array,
        "shared densities": ClassConditionalDensity("shared")
        .fit(x, y)
        .posteriors(rows.new_x)
        .array,
        "logistic": logistic(x, y).predict_proba(rows.new_x),
        "logistic (no penalty)": logistic(x, y, NO_PENALTY).predict_proba(rows.new_x),
    }
    classes = {way: one.argmax(axis=1) for way, one in found.items()}
    classes["machine"] = machine(x, y).predict(rows.new_x)
    return {way: float((one != rows.new_y).mean()) for way, one in classes.items()}


def doubts(one: Strangers) -> tuple[BoolArray, Mapping[str, FloatArray]]:
    """Return which rows are strange, and what each road can doubt them by."""
    x = np.concatenate([one.new_x, one.strange_x])
    is_strange = np.repeat([False, True], [len(one.new_x), len(one.strange_x)])
    shared, own = (
        ClassConditionalDensity(kind).fit(one.x, one.y) for kind in ("shared", "per_class")
    )
    values = machine(one.x, one.y).decision_function(x)
    largest = np.abs(values) if values.ndim == 1 else values.max(axis=1)
    return is_strange, {
        "generative density": shared.score(x),
        "generative density (own)": own.score(x),
        "generative posterior": least_confidence(shared.posteriors(x).array),
        "discriminative posterior": least_confidence(logistic(one.x, one.y).predict_proba(x)),
        "discriminant score": -largest,
    }


def told(gaps: Mapping[str, Interval], first: str, second: str, what: str) -> list[str]:
    """Say on what the first is below the second beyond chance, above it, or neither."""
    lower = [f"{name} (by {-gap.value:.4f})" for name, gap in gaps.items() if gap.high < 0]
    higher = [f"{name} (by {gap.value:.4f})" for name, gap in gaps.items() if gap.low > 0]
    unsure = [name for name, gap in gaps.items() if gap.low <= 0 <= gap.high]
    sides = {"lower": lower, "higher": higher, "no sure difference": unsure}
    said = "; ".join(f"{side} on {', '.join(names)}" for side, names in sides.items() if names)
    return wrap(f"- {first} against {second}, {what}: {said}.", 100, subsequent_indent="  ")


def compared(
    found: Mapping[str, Found], from_: Mapping[str, Source], first: str, second: str
) -> Mapping[str, Interval]:
    """Return the first way less the second on the same draws, of each source."""
    return {
        name: corrected_interval(ways[first] - ways[second], from_[name].test_to_train)
        for name, ways in found.items()
    }


def table(found: Mapping[str, Found], from_: Mapping[str, Source]) -> list[str]:
    """Return a line for each way, a column for each source."""
    ways = list(dict.fromkeys(way for one in found.values() for way in one))
    lines = [f"{'':<30}" + "".join(f" {name:>22}" for name in found)]
    for way in ways:
        cells = (
            short(corrected_interval(one[way], from_[name].test_to_train)) if way in one else ""
            for name, one in found.items()
        )
        lines.append(f"{way:<30}{''.join(f' {cell:>22}' for cell in cells)}".rstrip())
    return lines


def short(interval: Interval) -> str:
    """Return an interval in three digits."""
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def part(
    title: str,
    one: Callable[[Rows], Mapping[str, float]],
    pairs: Sequence[tuple[str, str]],
    from_: Mapping[str, Source],
    n_draws: int,
    what: str = "cost",
) -> list[str]:
    """Return a table of one question, and in words how pairs of ways compare."""
    found = {name: over_draws(one, source, n_draws) for name, source in from_.items()}
    lines = [title, "", *table(found, from_), ""]
    for first, second in pairs:
        lines += told(compared(found, from_, first, second), first, second, what)
    return lines


def curves(from_: dict[str, Source], n_draws: int) -> list[str]:
    """Return errors by the number of rows to learn from, and in words where roads cross."""
    lines, words = [], []
    all_sources = from_ | {"correlated": Source(correlated, 0.0, from_["normal"].largest)}
    for name, source in all_sources.items():
        found = {
            str(n): over_draws(partial(when_rows_are_few, n=n), source, n_draws)
            for n in SIZES
            if n <= source.largest
        }
        ways = next(iter(found.values()))
        turned = {way: {n: one[way] for n, one in found.items()} for way in ways}
        lines += [f"{name}, by rows to learn from", *table(turned, dict.fromkeys(ways, source)), ""]
        for rival in ("logistic (no penalty)", "logistic"):
            same = dict.fromkeys(found, source)
            gaps = compared(found, same, "naive densities", rival)
            words += crossing(name, rival, gaps)
    return [*lines, *words]


def crossing(name: str, rival: str, gaps: Mapping[str, Interval]) -> list[str]:
    """Say at which numbers of rows which road has the lower error, and whether they cross."""
    naive = [n for n, gap in gaps.items() if gap.high < 0]
    other = [n for n, gap in gaps.items() if gap.low > 0]
    is_crossed = bool(naive and other) and int(naive[-1]) < int(other[0])
    verdict = "they cross as Ng and Jordan, 2001, say" if is_crossed else "no crossing is shown"
    text = (
        f"- {name}: naive densities have the lower error beyond chance at n = "
        f"{', '.join(naive) or 'none'}; {rival} at n = {', '.join(other) or 'none'}: {verdict}."
    )
    return wrap(text, 100, subsequent_indent="  ")


def strangeness(is_quick: bool) -> list[str]:
    """Return AUROC of what each road can doubt strangers by, and in words what p(x) adds."""
    kinds = {name: doubts(one) for name, one in strangers(is_quick).items()}
    ways = list(next(iter(kinds.values()))[1])
    lines = [f"{'':<34}" + "".join(f" {name:>14}" for name in kinds)]
    for way in ways:
        cells = "".join(
            f" {roc_auc(is_strange, of[way]):>14.4f}" for is_strange, of in kinds.values()
        )
        lines.append(f"{way:<34}{cells}")
    lines.append("")
    n_resamples = 50 if is_quick else 500
    for first in ways[:2]:
        second = "discriminative posterior"
        gaps = {
            name: paired_difference(
                roc_auc, is_strange, of[first], of[second], n_resamples=n_resamples
            )
            for name, (is_strange, of) in kinds.items()
        }
        lines += told(gaps, first, second, "AUROC")
    return lines


def report(is_quick: bool) -> str:
    """Return all parts as text."""
    from_, n_draws = sources(is_quick), 2 if is_quick else N_DRAWS
    run = partial(part, from_=from_, n_draws=n_draws)
    discriminant = "discriminant"
    parts = [
        [f"{n_draws} draws of each set; in brackets 95 % intervals; lower, higher: beyond chance"],
        *(
            run(
                f"(a) Costs told after training: a miss costs {miss}, a false alarm 1; cost a row",
                partial(when_costs_change, miss=miss),
                [
                    (discriminant, "discriminative"),
                    (f"{discriminant} (trained again)", "discriminative"),
                    ("generative", "discriminative"),
                ],
            )
            for miss in RATIOS
        ),
        run(
            f"(b) Class 1 is {RARER} times rarer after training, a miss costs {RATIOS[0]}; cost",
            when_a_class_gets_rare,
            [
                ("generative (adjusted)", "generative"),
                ("discriminative (adjusted)", "discriminative"),
                ("discriminative (adjusted)", f"{discriminant} (these costs)"),
            ],
        ),
        [
            "(c) Strangers: AUROC, the chance that a stranger has more doubt than a known row",
            "",
            *strangeness(is_quick),
        ],
        ["(d) Few rows: error by rows to learn from", "", *curves(from_, n_draws)],
        run(
            f"(e) Rejecting at {REJECT_COST:g}, an error costs 1; cost a row",
            when_rows_can_be_rejected,
            [
                ("generative", f"{discriminant} (cannot reject)"),
                ("discriminative", f"{discriminant} (cannot reject)"),
                ("generative", "discriminative"),
            ],
        ),
        run(
            f"(e) {N_GROUPS} models, each on a part of the features, combined; error",
            when_models_are_combined,
            [
                ("generative", f"{discriminant} (vote)"),
                ("discriminative", f"{discriminant} (vote)"),
                ("discriminative (pool)", f"{discriminant} (vote)"),
                ("discriminative (pool)", "discriminative"),
            ],
            what="error",
        ),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print all parts, and write them where asked."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m studies.three_roads", description=__doc__, formatter_class=raw
    )
    parser.add_argument("--quick", action="store_true", help="small made sets, drawn twice")
    parser.add_argument("-o", type=Path, help="a file to write the tables to")
    asked = parser.parse_args(arguments)
    with threadpool_limits(1):  # for matrices so small, threads cost more than they save
        text = report(asked.quick)
    print(text)
    if asked.o is not None:
        asked.o.write_text(f"{text}\n")
