"""Five reviewers with limited time: plans by shadow prices beside the exact linear program.

    python -m benchmarks.reviewers FOLDER           # all files reviewers_*.npz of the folder
    python -m benchmarks.reviewers FOLDER --json    # the same figures as JSON
    python -m benchmarks.reviewers --quick          # a small generated set

A file holds `probs`, rows x classes, `labels`, and `votes`, how many people chose each class. Five
reviewers err in 2, 5, 10, 15 and 25 % of rows, and each can review 5 % of the rows. Figures are
errors among one half of the rows, means over 10 random halves; the other half fits the temperature.
Every review is simulated: "by class" the reviewer errs at its rate in every row, and its wrong
answer is drawn from the wrong votes of the class; "by image" its rate is proportional to the wrong
votes of the row (a rate above 1 is 1), from which the wrong answer is drawn. Plans know only rates
and votes by class. All plans of a half see the same answers of a reviewer to a row. Other
simulations of the same reviewers differ in detail, and so do their counts of errors: what can be
compared are ratios to the exact plan of the same run.

"exact" is the whole linear program, written here and solved by HiGHS; "prices" is
`ReviewTeam.plan`; "online" is `ReviewTeam.queue`, which sees rows one by one and starts from the
prices of the other half. "learned" starts from an error rate of 10 % for each: the 25 % of the rows
of the other half that are most worth a review go to the reviewers in turn, and it learns from the
first 500 of these answers, whose truth is confirmed. "final" answers replace the model's. The
speed is that of values, prices and plan for 1,000,000 rows of 10 classes and 5 reviewers.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from dubito.arrays import FloatArray, IntArray
from dubito.calibrate import TemperatureScaling
from dubito.decide import Reviewer, ReviewTeam
from dubito.outputs import Probabilities

__all__ = ["main"]

RATES, CAPACITY, N_HALVES, N_LEARNED = (0.02, 0.05, 0.10, 0.15, 0.25), 0.05, 10, 500
LIMITS = {"prices": 1.03, "learned": 1.10}  # of errors, relative to the exact plan
MAX_SECONDS = 5.0


def load(folder: Path | None) -> Iterator[tuple[str, FloatArray, IntArray, FloatArray]]:
    """Yield the name, the probabilities, the labels and the votes of each set."""
    if folder is None:
        yield ("generated", *generated(2000, 5))
        return
    for path in sorted(folder.glob("reviewers_*.npz")):
        with np.load(path, allow_pickle=False) as file:
            p, labels, votes = (file[name] for name in ("probs", "labels", "votes"))
        p = p.astype(np.float64)
        p /= p.sum(axis=1, keepdims=True)
        yield path.stem.removeprefix("reviewers_"), p, labels.astype(np.int64), votes.astype(float)


def generated(n_rows: int, n_classes: int) -> tuple[FloatArray, IntArray, FloatArray]:
    """Return probabilities, labels drawn from them, and votes that err more on harder rows."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(n_classes, 0.15), n_rows)
    labels = (p.cumsum(axis=1) < rng.random((n_rows, 1))).sum(axis=1)
    chance = 0.9 * np.eye(n_classes)[labels] + 0.1 * rng.dirichlet(np.ones(n_classes), n_rows)
    return p, labels, rng.multinomial(50, chance).astype(float)


def likelihoods(labels: IntArray, votes: FloatArray) -> dict[str, FloatArray]:
    """Return the probability of each answer to each row, reviewers x rows x classes."""
    n_rows, n_classes = votes.shape
    rows = np.arange(n_rows)
    wrong = votes.copy()
    wrong[rows, labels] = 0
    by_class = np.stack([wrong[labels == k].sum(axis=0) for k in range(n_classes)]) + 1e-9
    np.fill_diagonal(by_class, 0)
    by_class /= by_class.sum(axis=1, keepdims=True)
    uncertainty = wrong.sum(axis=1) / votes.sum(axis=1)
    instead = np.where(uncertainty[:, np.newaxis] > 0, wrong, by_class[labels])
    instead /= instead.sum(axis=1, keepdims=True)
    found: dict[str, list[FloatArray]] = {"class": [], "image": []}
    for error in RATES:
        for how, rate, answers in (
            ("class", np.full(n_rows, error), by_class[labels]),
            ("image", np.minimum(error * uncertainty / uncertainty.mean(), 1.0), instead),
        ):
            table = rate[:, np.newaxis] * answers
            table[rows, labels] = 1 - rate
            found[how].append(table)
    return {how: np.stack(tables) for how, tables in found.items()}


def drawn(rng: np.random.Generator, chances: FloatArray) -> IntArray:
    """Return an answer of each reviewer to each row."""
    uniform = rng.random(chances.shape[:2])[..., np.newaxis]
    found = (chances.cumsum(axis=2) < uniform).sum(axis=2)
    return np.asarray(np.minimum(found, chances.shape[2] - 1))


def exact_plan(values: FloatArray, capacity: int) -> IntArray:
    """Return the reviewer of each row by the whole linear program, -1 for none."""
    n_rows, n_reviewers = values.shape
    row, reviewer = np.nonzero(values > 0)
    variable = np.arange(row.size)
    at = np.concatenate([row, n_rows + reviewer]), np.tile(variable, 2)
    limits = csr_array((np.ones(2 * row.size), at), shape=(n_rows + n_reviewers, row.size))
    most = np.append(np.ones(n_rows), np.full(n_reviewers, capacity))
    solved = linprog(-values[row, reviewer], A_ub=limits, b_ub=most, method="highs")
    plan = np.full(n_rows, -1)
    taken = solved.x > 0.5
    plan[row[taken]] = reviewer[taken]
    return plan


def errors(
    team: ReviewTeam, plan: IntArray, p: FloatArray, y: IntArray, answers: IntArray
) -> tuple[int, int]:
    """Return how many decisions are wrong after the reviews of a plan, and the most rows of one."""
    decided = p.argmax(axis=1)
    for r, name in enumerate(team.names):
        rows = np.flatnonzero(plan == r)
        if rows.size:
            after = team.update(p[rows], name, answers[r, rows]).array
            decided[rows] = after.argmax(axis=1)
    most = np.bincount(plan[plan >= 0], minlength=len(RATES)).max()
    return int((decided != y).sum()), int(most)


def over_halves(p: FloatArray, y: IntArray, votes: FloatArray, n_halves: int) -> dict[str, Any]:
    """Return the errors of each plan in each half, by how reviewers err, and excess capacity."""
    n_classes = p.shape[1]
    chances = likelihoods(y, votes)
    truth = np.stack([np.stack([t[y == k][0] for k in range(n_classes)]) for t in chances["class"]])
    found: dict[str, Any] = {how: {} for how in chances}
    excess = 0
    for seed in range(n_halves):
        rng = np.random.default_rng(seed)
        fit, new = np.array_split(rng.permutation(len(y)), 2)
        scaling = TemperatureScaling().fit(Probabilities(p[fit]), y[fit])
        known, q = (scaling.predict_proba(Probabilities(p[rows])) for rows in (fit, new))
        capacity = int(CAPACITY * len(new))
        settings: Any = {"capacity": capacity}
        names = [f"{error:.0%}" for error in RATES]
        informed = ReviewTeam(
            [Reviewer(name, confusion=c, **settings) for name, c in zip(names, truth, strict=True)]
        )
        final = ReviewTeam(
            [
                Reviewer(name, confusion=c, combine="replace", **settings)
                for name, c in zip(names, truth, strict=True)
            ]
        )
        ignorant = ReviewTeam([Reviewer(name, error_rate=0.1, **settings) for name in names])
        asked = np.argsort(-ignorant.values(known)[:, 0], kind="stable")[: capacity * len(RATES)]
        asked = fit[rng.permutation(asked)[:N_LEARNED]]
        who = np.arange(len(asked)) % len(RATES)
        queue = informed.plan(known).team.queue(len(new))
        values = informed.values(q)
        for how, tables in chances.items():
            answers = drawn(rng, tables)
            learned = ignorant.learn(
                [names[r] for r in who], y[asked], answers[who, asked], n_classes=n_classes
            )
            if how == "class":
                plans = {
                    "no review": (informed, np.full(len(new), -1)),
                    "final answers": (final, final.plan(q).reviewer),
                    "exact": (informed, exact_plan(values, capacity)),
                    "prices": (informed, informed.plan(q).reviewer),
                    "online": (informed, queue.assign(values)),
                }
            plans["learned"] = (learned, learned.plan(q).reviewer)
            for name, (team, plan) in plans.items():
                wrong, most = errors(team, plan, q, y[new], answers[:, new])
                found[how].setdefault(name, []).append(wrong)
                excess = max(excess, most - capacity)
    return {"errors": found, "excess": excess}


def seconds(n_rows: int) -> tuple[float, float]:
    """Return wall and CPU seconds to plan generated rows, the fastest of three."""
    p = np.random.default_rng(0).dirichlet(np.full(10, 0.1), n_rows)
    team = ReviewTeam(
        [Reviewer(f"{e:.0%}", capacity=int(CAPACITY * n_rows), error_rate=e) for e in RATES]
    )
    times = []
    for _ in range(3):
        start = time.perf_counter(), time.process_time()
        team.plan(p)
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return min(one[0] for one in times), min(one[1] for one in times)


def main() -> None:
    """Print the tables."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--quick", action="store_true", help="a small generated set")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if (options.folder is None) != options.quick:
        parser.error("pass a folder, or --quick")
    sets = list(load(options.folder))
    if not sets:
        parser.error(f"{options.folder} has no files reviewers_*.npz")
    n_halves = 2 if options.quick else N_HALVES
    found = {name: over_halves(p, y, votes, n_halves) for name, p, y, votes in sets}
    n_rows = 10_000 if options.quick else 1_000_000
    wall, cpu = seconds(n_rows)
    if options.json:
        times = {"rows": n_rows, "wall": wall, "cpu": cpu}
        print(json.dumps({"sets": found, "seconds": times}, indent=1))
        return
    for name, p, y, _ in sets:
        print(f"{name}: errors of {len(y) // 2:,} rows, {p.shape[1]} classes, {n_halves} halves\n")
        print(f"{'':<16}{'by class':>10}{'sd':>6}{'by image':>10}{'sd':>6}")
        table = found[name]["errors"]
        for plan in table["class"]:
            cells = [table[how][plan] for how in ("class", "image")]
            shown = "".join(f"{np.mean(one):>10.1f}{np.std(one):>6.1f}" for one in cells)
            print(f"{plan:<16}{shown}")
        print()
        for plan, limit in LIMITS.items():
            for how in ("class", "image"):
                ratio = np.mean(table[how][plan]) / np.mean(table[how]["exact"])
                verdict = "holds" if ratio <= limit else "DOES NOT HOLD"
                print(f"{plan} / exact, by {how}: {ratio:.3f}, at most {limit:.2f}: {verdict}")
        excess = found[name]["excess"]
        print(f"rows above a capacity: {max(excess, 0)}\n")
    verdict = "holds" if wall < MAX_SECONDS else "DOES NOT HOLD"
    print(f"{n_rows:,} rows x 5 reviewers: {wall:.2f} s, {cpu:.2f} s of CPU; under 5 s: {verdict}")


if __name__ == "__main__":
    main()
