"""Three approaches to a decision compared: what does modeling more of the data buy?

    python -m studies.three_roads            # a few minutes
    python -m studies.three_roads --quick    # small simulated sets, drawn twice
    python -m studies.three_roads -o FILE    # also writes the tables to FILE
    python -m studies.three_roads --differences FILE    # and paired differences, with verdicts

Generative, discriminative and discriminant models (see `approaches`): when costs change after
training, when a class becomes rare, when rows are out of distribution or few, when rows may be
rejected, and when models are combined. Then the three approaches to regression (see `regressions`).

Each set is drawn 20 times into training and test rows. Simulated sets are new at every draw
(Student's intervals); draws of real ones overlap (intervals after Nadeau and Bengio, 2003). In
tables they are cut at 0, and at 1 for an AUROC.
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
from studies.claims import CLAIMS
from studies.common.reporting import markdown_table
from studies.credit_costs import corrected_interval
from studies.three_roads import regressions
from studies.three_roads.approaches import (
    OODRows,
    Rows,
    Source,
    correlated,
    linear_svm,
    logistic,
    ood_rows,
    posteriors,
    regression,
    sources,
)
from studies.verdicts import with_verdicts

N_DRAWS = 20
RATIOS = (5, 50)  # cost of missing a row of class 1, if a false alarm costs 1
RARER = 10  # times, after training
REJECT_COST = 0.1
SIZES = (20, 50, 100, 200, 500, 1000, 2000)
NO_PENALTY = 1e4  # weight of the rows at which the penalty is negligible
N_GROUPS = 3  # groups of features, one model each

Found = Mapping[str, FloatArray]  # one value per draw, by method


def over_draws(one: Callable[[Rows], Mapping[str, float]], source: Source, n_draws: int) -> Found:
    """Return the values of each method over the draws of a source."""
    found: dict[str, list[float]] = {}
    for seed in range(n_draws):
        for method, value in one(source.draw(seed)).items():
            found.setdefault(method, []).append(value)
    return {method: np.array(values) for method, values in found.items()}


def two_costs(miss: float) -> CostMatrix:
    """Return costs where a false alarm costs 1."""
    return CostMatrix.from_errors(false_positive=1, false_negative=miss)


def when_costs_change(rows: Rows, miss: float) -> Mapping[str, float]:
    """Return the mean cost of each approach if costs are known only after training."""
    x, y, new_x, new_y, truth = rows
    costs = two_costs(miss)
    known = {} if truth is None else {"true posterior": np.stack([1 - truth, truth], axis=1)}
    known |= posteriors(x, y, new_x)
    actions = {method: optimal_actions(one, costs) for method, one in known.items()}
    actions["discriminant"] = linear_svm(x, y).predict(new_x)
    actions["discriminant (retrained)"] = linear_svm(x, y, miss).predict(new_x)
    return {method: realized_cost(new_y, taken, costs) for method, taken in actions.items()}


def when_a_class_gets_rare(rows: Rows) -> Mapping[str, float]:
    """Return the mean cost of each approach where class 1 has become ten times rarer.

    Test rows are weighted instead of dropped: the same mean with less noise.
    """
    x, y, new_x, new_y, _ = rows
    costs, prior, new_prior = two_costs(RATIOS[0]), y.mean(), new_y.mean()
    rare = prior / RARER
    weight = np.where(new_y == 1, rare / new_prior, (1 - rare) / (1 - new_prior))
    actions = {}
    for method, one in posteriors(x, y, new_x).items():
        adjusted = adjust_prior(Probabilities(one), [1 - prior, prior], [1 - rare, rare])
        actions[method] = optimal_actions(one, costs)
        actions[f"{method} (adjusted)"] = optimal_actions(adjusted, costs)
    actions["discriminant (these costs)"] = linear_svm(x, y, RATIOS[0]).predict(new_x)
    return {
        method: realized_cost(new_y, taken, costs, sample_weight=weight)
        for method, taken in actions.items()
    }


def when_rows_can_be_rejected(rows: Rows) -> Mapping[str, float]:
    """Return the mean cost of each approach where an error costs 1 and a review 0.1."""
    x, y, new_x, new_y, _ = rows
    costs = CostMatrix.zero_one(2).with_reject(REJECT_COST)
    found = posteriors(x, y, new_x)
    actions = {method: optimal_actions(one, costs) for method, one in found.items()}
    actions["discriminant (cannot reject)"] = linear_svm(x, y).predict(new_x)
    return {method: realized_cost(new_y, taken, costs) for method, taken in actions.items()}


def when_models_are_combined(rows: Rows) -> Mapping[str, float]:
    """Return the error of three combined models, each on a third of the features."""
    x, y, new_x, new_y, _ = rows
    groups = np.array_split(np.arange(x.shape[1]), N_GROUPS)
    prior = [1 - y.mean(), y.mean()]
    models = [posteriors(x[:, one], y, new_x[:, one]) for one in groups]
    held_out = [
        cross_val_predict(regression(), x[:, one], y, method="predict_proba") for one in groups
    ]
    votes = [linear_svm(x[:, one], y).predict(new_x[:, one]) for one in groups]
    classes = {
        method: combine_posteriors([one[method] for one in models], prior).array.argmax(axis=1)
        for method in models[0]
    }
    pool = LogLinearPool().fit(held_out, y)
    pooled = pool.predict_proba([one["discriminative"] for one in models])
    classes["discriminative (pool)"] = pooled.argmax(axis=1)
    classes["discriminant (vote)"] = (np.mean(votes, axis=0) > 0.5).astype(np.int64)
    return {method: float((one != new_y).mean()) for method, one in classes.items()}


def when_rows_are_few(rows: Rows, n: int) -> Mapping[str, float]:
    """Return the error of each approach after n training rows of both classes."""
    x, y = rows.x, rows.y
    if n < y.size:
        x, _, y, _ = train_test_split(x, y, train_size=n, stratify=y, random_state=0)
    found = {
        "naive Bayes": ClassConditionalDensity("diagonal").fit(x, y).posteriors(rows.new_x).array,
        "shared covariance": ClassConditionalDensity("shared")
        .fit(x, y)
        .posteriors(rows.new_x)
        .array,
        "logistic": logistic(x, y).predict_proba(rows.new_x),
        "logistic (no penalty)": logistic(x, y, NO_PENALTY).predict_proba(rows.new_x),
    }
    classes = {method: one.argmax(axis=1) for method, one in found.items()}
    classes["linear SVM"] = linear_svm(x, y).predict(rows.new_x)
    return {method: float((one != rows.new_y).mean()) for method, one in classes.items()}


def ood_scores(one: OODRows) -> tuple[BoolArray, Mapping[str, FloatArray]]:
    """Return which rows are out of distribution, and the scores that each approach offers."""
    x = np.concatenate([one.new_x, one.ood_x])
    is_ood = np.repeat([False, True], [len(one.new_x), len(one.ood_x)])
    shared, own = (
        ClassConditionalDensity(kind).fit(one.x, one.y) for kind in ("shared", "per_class")
    )
    values = linear_svm(one.x, one.y).decision_function(x)
    largest = np.abs(values) if values.ndim == 1 else values.max(axis=1)
    return is_ood, {
        "generative density": shared.score(x),
        "generative density (own)": own.score(x),
        "generative posterior": least_confidence(shared.posteriors(x).array),
        "discriminative posterior": least_confidence(logistic(one.x, one.y).predict_proba(x)),
        "discriminant score": -largest,
    }


def compare_in_words(gaps: Mapping[str, Interval], first: str, second: str, what: str) -> list[str]:
    """Describe where the first is significantly lower or higher than the second."""
    lower = [f"{name} (by {-gap.value:.4f})" for name, gap in gaps.items() if gap.high < 0]
    higher = [f"{name} (by {gap.value:.4f})" for name, gap in gaps.items() if gap.low > 0]
    unclear = [name for name, gap in gaps.items() if gap.low <= 0 <= gap.high]
    sides = {"lower": lower, "higher": higher, "no significant difference": unclear}
    text = "; ".join(f"{side} on {', '.join(names)}" for side, names in sides.items() if names)
    return wrap(f"- {first} vs. {second}, {what}: {text}.", 100, subsequent_indent="  ")


def paired_intervals(
    found: Mapping[str, Found], by_source: Mapping[str, Source], first: str, second: str
) -> Mapping[str, Interval]:
    """Return the paired difference between two methods over the draws of each source."""
    return {
        name: corrected_interval(methods[first] - methods[second], by_source[name].test_to_train)
        for name, methods in found.items()
    }


def table(
    found: Mapping[str, Found], by_source: Mapping[str, Source], highest: float = np.inf
) -> list[str]:
    """Return one line per method, with one column per source; no interval leaves 0 to highest."""
    methods = list(dict.fromkeys(method for one in found.values() for method in one))
    lines = [f"{'':<30}" + "".join(f" {name:>22}" for name in found)]
    for method in methods:
        cells = (
            short(corrected_interval(one[method], by_source[name].test_to_train), highest)
            if method in one
            else ""
            for name, one in found.items()
        )
        lines.append(f"{method:<30}{''.join(f' {cell:>22}' for cell in cells)}".rstrip())
    return lines


def short(interval: Interval, highest: float) -> str:
    """Return an interval with three digits, cut where its values end."""
    low, high = max(interval.low, 0.0), min(interval.high, highest)
    return f"{interval.value:.3f} ({low:.3f} to {high:.3f})"


def part(
    title: str,
    one: Callable[[Rows], Mapping[str, float]],
    pairs: Sequence[tuple[str, str]],
    by_source: Mapping[str, Source],
    n_draws: int,
    differences: list[str],
    what: str = "cost",
) -> list[str]:
    """Return the table of one question, and how pairs of methods compare.

    Their paired differences are added to `differences`, as a Markdown table.
    """
    found = {name: over_draws(one, source, n_draws) for name, source in by_source.items()}
    lines, rows = [title, "", *table(found, by_source, 1.0 if what == "AUROC" else np.inf), ""], []
    for first, second in pairs:
        gaps = paired_intervals(found, by_source, first, second)
        lines += compare_in_words(gaps, first, second, what)
        cells = (f"{gap.value:z.4f} ({gap.low:z.4f} to {gap.high:z.4f})" for gap in gaps.values())
        rows.append([f"{first} minus {second}", *cells])
    differences.append(f"**{title}**\n\n{markdown_table(['', *found], rows)}")
    return lines


def curves(by_source: dict[str, Source], n_draws: int) -> list[str]:
    """Return errors by the number of training rows, and where learning curves cross."""
    lines, sentences = [], []
    all_sources = by_source | {"correlated": Source(correlated, 0.0, by_source["normal"].largest)}
    for name, source in all_sources.items():
        found = {
            str(n): over_draws(partial(when_rows_are_few, n=n), source, n_draws)
            for n in SIZES
            if n <= source.largest
        }
        methods = next(iter(found.values()))
        by_method = {method: {n: one[method] for n, one in found.items()} for method in methods}
        lines += [
            f"{name}, by number of training rows",
            *table(by_method, dict.fromkeys(methods, source)),
            "",
        ]
        for rival in ("logistic (no penalty)", "logistic"):
            same = dict.fromkeys(found, source)
            gaps = paired_intervals(found, same, "naive Bayes", rival)
            sentences += crossing(name, rival, gaps)
    return [*lines, *sentences]


def crossing(name: str, rival: str, gaps: Mapping[str, Interval]) -> list[str]:
    """Describe which model has the lower error at which size, and whether the curves cross."""
    naive = [n for n, gap in gaps.items() if gap.high < 0]
    other = [n for n, gap in gaps.items() if gap.low > 0]
    is_crossed = bool(naive and other) and int(naive[-1]) < int(other[0])
    verdict = "the curves cross, as Ng and Jordan (2001) claim" if is_crossed else "no crossing"
    text = (
        f"- {name}: naive Bayes has a significantly lower error at n = "
        f"{', '.join(naive) or 'none'}; {rival} at n = {', '.join(other) or 'none'}: {verdict}."
    )
    return wrap(text, 100, subsequent_indent="  ")


def ood_table(is_quick: bool) -> list[str]:
    """Return the AUROC of the scores of each approach on OOD rows, and what p(x) adds."""
    kinds = {name: ood_scores(one) for name, one in ood_rows(is_quick).items()}
    methods = list(next(iter(kinds.values()))[1])
    lines = [f"{'':<34}" + "".join(f" {name:>14}" for name in kinds)]
    for method in methods:
        cells = "".join(f" {roc_auc(is_ood, of[method]):>14.4f}" for is_ood, of in kinds.values())
        lines.append(f"{method:<34}{cells}")
    lines.append("")
    n_resamples = 50 if is_quick else 500
    for first in methods[:2]:
        second = "discriminative posterior"
        gaps = {
            name: paired_difference(roc_auc, is_ood, of[first], of[second], n_resamples=n_resamples)
            for name, (is_ood, of) in kinds.items()
        }
        lines += compare_in_words(gaps, first, second, "AUROC")
    return lines


def report(is_quick: bool) -> tuple[str, str]:
    """Return all parts as text, and their paired differences in Markdown."""
    by_source, n_draws = sources(is_quick), 2 if is_quick else N_DRAWS
    differences = ["Paired differences over draws, with 95 % intervals."]
    run = partial(part, by_source=by_source, n_draws=n_draws, differences=differences)
    discriminant = "discriminant"
    parts = [
        [
            f"{n_draws} draws of each set; 95 % intervals in brackets; "
            "lower, higher: significant at that level"
        ],
        *(
            run(
                f"(a) Costs change after training: a miss costs {miss}, a false alarm 1; "
                "cost per row",
                partial(when_costs_change, miss=miss),
                [
                    (discriminant, "discriminative"),
                    (f"{discriminant} (retrained)", "discriminative"),
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
            "(c) OOD rows: AUROC, the probability that an OOD row has a higher score "
            "than a known row",
            "",
            *ood_table(is_quick),
        ],
        ["(d) Few rows: error by number of training rows", "", *curves(by_source, n_draws)],
        run(
            f"(e) Rejecting at {REJECT_COST:g}, an error costs 1; cost per row",
            when_rows_can_be_rejected,
            [
                ("generative", f"{discriminant} (cannot reject)"),
                ("discriminative", f"{discriminant} (cannot reject)"),
                ("generative", "discriminative"),
            ],
        ),
        run(
            f"(e) {N_GROUPS} models, each on some of the features, combined; error",
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
    parts += regression_parts(is_quick, n_draws, differences)
    tables = "\n\n".join([*differences, f"Seeds: {n_draws}."])
    return "\n\n".join("\n".join(lines) for lines in parts), tables


def regression_parts(is_quick: bool, n_draws: int, differences: list[str]) -> list[list[str]]:
    """Return the parts on joint, conditional and direct models of a number."""
    by_source = regressions.sources(is_quick)
    run = partial(part, by_source=by_source, n_draws=n_draws, differences=differences)
    others = [("joint", "direct"), ("conditional", "direct")]
    return [
        run(
            "(f) Regression: root mean squared error",
            regressions.errors,
            [*others, ("joint", "conditional")],
            what="error",
        ),
        run(
            f"(f) Regression: costs change after training, too low costs "
            f"{regressions.UNDER:g} times too high; cost per row",
            regressions.costs,
            [*others, ("joint", "conditional")],
        ),
        run(
            "(f) Regression: the most important feature is missing; root mean squared error",
            regressions.errors_without_a_feature,
            [*others],
            what="error",
        ),
        run(
            "(f) Regression: rows 3 times as far out; AUROC of what each approach offers",
            regressions.detection,
            [("joint density", "conditional std")],
            what="AUROC",
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print all parts, and write them to a file if requested."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m studies.three_roads", description=__doc__, formatter_class=raw
    )
    parser.add_argument("--quick", action="store_true", help="small simulated sets, drawn twice")
    parser.add_argument("-o", type=Path, help="a file to write the tables to")
    parser.add_argument("--differences", type=Path, help="a file for paired differences")
    options = parser.parse_args(arguments)
    with threadpool_limits(1):  # with matrices this small, threads cost more than they save
        text, differences = report(options.quick)
    print(text)
    if options.differences is not None:
        claims = () if options.quick else CLAIMS["three_roads"]
        options.differences.write_text(f"{with_verdicts(differences, claims)}\n")
    if options.o is not None:
        options.o.write_text(f"{text}\n")
