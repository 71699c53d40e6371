"""How many rows a risk bound keeps, and whether thresholds of any loss keep their guarantee.

    python -m studies.risk_control            # about 3 minutes
    python -m studies.risk_control -o FILE    # also writes the tables to FILE

Rows of three classes are drawn from a model that is calibrated but for a few wrong labels; its most
confident rows are to be accepted so that their error rate, or their mean cost on a scale from 0 to
1, is at most 0.1 with 95 % confidence. 1,000 times, a threshold is chosen on n labeled rows and
judged by the true risk of all rows above it. The fraction that it keeps is compared with

- the procedure before: thresholds on a fixed grid, in eight sequences that share delta;
- the reference: one sequence that tests after each row, from the most confident one on, by exact
  binomial tails, or for costs by the bound of Hoeffding and Bentkus;
- the oracle, which knows the true risk.

Then `RiskControl` is fitted 1,000 times to n rows drawn with replacement from a population, so that
the true risk of every threshold is known: the fraction of a mask that a segmentation misses and the
cost of a row, whose expected loss conformal risk control bounds; and, by learn then test, the same
masks, whether more than a fifth of a mask is missed, and the fraction of false pixels, which does
not change in one direction with the threshold.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy import special

from dubito.arrays import FloatArray, IntArray
from dubito.decide.reject import RankedLosses, threshold_at_risk
from dubito.doubt import RiskControl
from dubito.errors import BadValueError

SIZES = (100, 200, 500, 1000, 5000)
N_DRAWS = 1000
N_POPULATION = 1_000_000
RISK, DELTA = 0.1, 0.05
NOISE = 0.02  # the fraction of labels that are wrong
COSTS = np.array([[0.0, 2.0, 4.0], [3.0, 0.0, 3.0], [5.0, 4.0, 0.0]]) / 5  # actions x classes
GRID = np.append(np.arange(18.0, -7.0, -0.05), -np.inf)  # log odds
STARTS = np.array([*np.searchsorted(-GRID, [-12, -8, -6, -4, -3, -2, -1]), GRID.size - 1])

N_MASKS, N_PIXELS = 20_000, 40
CUTS = np.linspace(0, 1, 101)  # thresholds of pixels and of costs
MISSED, COST, FIFTH, FALSE = 0.1, 1.0, 0.1, 0.3  # targets
MAX_COST, TEST_DELTA = 8.0, 0.1

# Returns a threshold on the confidence from confidences and losses, 1 to accept none.
Chooser = Callable[[FloatArray, FloatArray], float]


def drawn(
    random: np.random.Generator, n: int, is_cost: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the confidence of rows, their losses, and the expected losses."""
    stated = special.softmax(random.normal(0, 2.4, (n, 3)), axis=1)
    true = (1 - NOISE) * stated + NOISE * (1 - stated) / 2
    label = np.minimum((true.cumsum(axis=1) < random.random((n, 1))).sum(axis=1), 2)
    table = COSTS if is_cost else 1 - np.eye(3)
    action, rows = (stated @ table.T).argmin(axis=1), np.arange(n)
    confidence = 1 - (stated @ table.T)[rows, action]
    return confidence, table[action, label], (true @ table.T)[rows, action]


def before(confidence: FloatArray, loss: FloatArray) -> float:
    """Return the threshold of eight sequences on a fixed grid, each with an eighth of delta."""
    order = np.argsort(-confidence)
    n_accepted = np.searchsorted(1 - confidence[order], 1 - special.expit(GRID), side="left")
    p_values = _p_values(np.append(0, np.cumsum(loss[order]))[n_accepted], n_accepted, loss)
    fails = np.append(np.flatnonzero(p_values > DELTA / STARTS.size), GRID.size)
    ends = [int(fails[np.searchsorted(fails, s)]) - 1 for s in STARTS if s not in fails]
    return float(special.expit(GRID[max(ends)])) if ends else 1.0


def reference(confidence: FloatArray, loss: FloatArray) -> float:
    """Return the threshold of one sequence, tested after every row that can pass a test."""
    order = np.argsort(-confidence)
    n_accepted = np.arange(int(np.ceil(np.log(DELTA) / np.log1p(-RISK))), loss.size + 1)
    p_values = _p_values(np.append(0, np.cumsum(loss[order]))[n_accepted], n_accepted, loss)
    fails = np.append(np.flatnonzero(p_values > DELTA), n_accepted.size)
    if fails[0] == 0:
        return 1.0
    return float(np.append(confidence[order], 0.0)[n_accepted[fails[0] - 1]])


def chosen(confidence: FloatArray, loss: FloatArray) -> float:
    """Return the threshold of `choose_threshold`, or of a policy with a bound on the cost."""
    is_binary = bool(np.isin(loss, (0, 1)).all())
    rows = RankedLosses.of(1 - confidence, loss, np.ones(loss.size), is_binary)
    return threshold_at_risk(rows, RISK, DELTA).threshold


def _p_values(total: FloatArray, n_rows: IntArray, loss: FloatArray) -> FloatArray:
    """Return the p-values of a mean above the risk: exact for errors, else Hoeffding-Bentkus."""
    if np.isin(loss, (0, 1)).all():
        return np.asarray(special.bdtr(total, n_rows, RISK))
    mean = np.minimum(total / np.maximum(n_rows, 1), RISK)
    distance = special.rel_entr(mean, RISK) + special.rel_entr(1 - mean, 1 - RISK)
    bentkus = np.e * special.bdtr(np.ceil(total), n_rows, RISK)
    return np.asarray(np.minimum(np.exp(-n_rows * distance), bentkus))


CHOOSERS: dict[str, Chooser] = {"before": before, "reference": reference, "now": chosen}


def table(is_cost: bool, sizes: Sequence[int] = SIZES, n_draws: int = N_DRAWS) -> list[str]:
    """Return the fraction of rows kept by each procedure, and how often it broke the bound."""
    confidence, _, expected = drawn(np.random.default_rng(0), N_POPULATION, is_cost)
    order = np.argsort(-confidence)
    ranked, risks = -confidence[order], np.cumsum(expected[order]) / np.arange(1, N_POPULATION + 1)
    oracle = np.count_nonzero(np.maximum.accumulate(risks) <= RISK) / N_POPULATION
    most = DELTA + 3 * np.sqrt(DELTA * (1 - DELTA) / n_draws)
    what = "mean cost (of at most 1)" if is_cost else "error rate"
    lines = [
        f"{what}: at most {RISK:g} with {1 - DELTA:.0%} confidence; {n_draws:,} draws",
        f"{'':>6} {'fraction of rows kept':<39} broken, of {DELTA:.0%} allowed",
        f"{'n':>6} "
        + "".join(f"{name:>10}" for name in (*CHOOSERS, "oracle"))
        + "".join(f"{name:>10}" for name in CHOOSERS),
    ]
    worst = 0.0
    for n in sizes:
        random = np.random.default_rng(n)
        found = np.empty((n_draws, len(CHOOSERS)))
        for draw in range(n_draws):
            scores, loss, _ = drawn(random, n, is_cost)
            found[draw] = [choose(scores, loss) for choose in CHOOSERS.values()]
        n_kept = np.searchsorted(ranked, -found - 1e-9, side="left") * (found < 1)
        kept = n_kept.mean(axis=0) / N_POPULATION
        broken = ((n_kept > 0) & (risks[n_kept - 1] > RISK)).mean(axis=0)
        worst = max(worst, float(broken[-1]))
        cells = [f"{value:>10.3f}" for value in (*kept, oracle)]
        lines.append(f"{n:>6} " + "".join(cells) + "".join(f"{rate:>10.1%}" for rate in broken))
    verdict = "within" if worst <= most else "ABOVE"
    return [
        *lines,
        f"Most often broken now: {worst:.1%}, {verdict} {DELTA:.0%} and three standard"
        f" errors ({most:.1%}).",
    ]


def populations() -> dict[str, tuple[FloatArray, FloatArray, RiskControl]]:
    """Return losses (rows x thresholds), thresholds from safe to bold, and what controls them."""
    random = np.random.default_rng(1)
    odds = random.normal(0, 2, (N_MASKS, N_PIXELS)) + random.normal(0, 1, (N_MASKS, 1))
    truth = random.random(odds.shape) < special.expit(odds)
    truth[:, 0] = True  # no empty mask
    scores = special.expit(0.7 * odds)
    n_true = truth.sum(axis=1)
    missed, false = (np.empty((N_MASKS, CUTS.size)) for _ in range(2))
    for k, cut in enumerate(CUTS):
        taken = scores >= cut
        missed[:, k] = 1 - (taken & truth).sum(axis=1) / n_true
        false[:, k] = (taken & ~truth).sum(axis=1) / np.maximum(taken.sum(axis=1), 1)
    is_fraud = random.random(N_MASKS) < scores[:, 1]
    amount = random.uniform(1, MAX_COST, N_MASKS)
    is_passed = scores[:, 1, np.newaxis] < CUTS
    cost = is_passed * (is_fraud * amount)[:, np.newaxis]
    return {
        "missed pixels, crc": (missed, CUTS, RiskControl(MISSED)),
        "cost of a row, crc": (cost, CUTS, RiskControl(COST, max_loss=MAX_COST)),
        "missed pixels, ltt": (missed, CUTS, RiskControl(MISSED, "ltt", TEST_DELTA)),
        "a fifth missed, ltt": ((missed > 0.2) * 1.0, CUTS, RiskControl(FIFTH, "ltt", TEST_DELTA)),
        "false pixels, ltt": (false[:, ::-1], CUTS[::-1], RiskControl(FALSE, "ltt", TEST_DELTA)),
    }


def guarantees(sizes: Sequence[int] = (100, 500, 2000), n_draws: int = N_DRAWS) -> list[str]:
    """Return the true risk of the thresholds of `RiskControl`, and a verdict."""
    lines = [
        f"RiskControl: true risk of the chosen threshold; {n_draws:,} draws of n rows",
        f"{'':<20} {'n':>5} {'target':>7} {'mean risk':>10} {'+-':>7} {'above target':>13}"
        f" {'none found':>11}",
    ]
    fine = True
    for name, (losses, thresholds, control) in populations().items():
        risks = dict(zip(thresholds.tolist(), losses.mean(axis=0).tolist(), strict=True))
        for n in sizes:
            random = np.random.default_rng(n)
            found, n_none = [], 0
            for _ in range(n_draws):
                rows = random.integers(0, len(losses), n)
                try:
                    threshold = control.fit(losses[rows], thresholds).threshold_
                except BadValueError:  # too few rows for any threshold
                    n_none += 1
                    continue
                found.append(risks[threshold])
            mean = float(np.mean(found)) if found else 0.0
            error = float(np.std(found) / np.sqrt(max(len(found), 1)))
            above = sum(risk > control.target for risk in found) / n_draws
            most = TEST_DELTA + 3 * np.sqrt(TEST_DELTA * (1 - TEST_DELTA) / n_draws)
            is_crc = control.method == "crc"
            fine &= mean - 3 * error <= control.target if is_crc else above <= most
            lines.append(
                f"{name:<20} {n:>5} {control.target:>7g} {mean:>10.4f} {error:>7.4f}"
                f" {above:>13.1%} {n_none / n_draws:>11.1%}"
            )
    kept = "within" if fine else "ABOVE"
    return [
        *lines,
        f"Mean risk (crc) {kept} the target, risk above the target (ltt) {kept} {TEST_DELTA:.0%},"
        " up to three standard errors.",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables, and write them to a file if requested."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", type=Path, help="also write the tables here")
    output = parser.parse_args(arguments).output
    parts = [*(table(is_cost) for is_cost in (False, True)), guarantees()]
    text = "\n\n".join("\n".join(part) for part in parts)
    print(text)
    if output is not None:
        output.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
