"""False alarm rate and detection delay of an alarm that is checked after every label.

    python -m studies.sequential_alarms            # 1,000 runs of each, about two minutes
    python -m studies.sequential_alarms --quick    # 100 runs of each

Ten classes with labels drawn from the stated probabilities are calibrated by construction; logits
times 1.5 simulate a temperature that is off. Under "some labels", uncertain rows are always labeled
and others with a probability of 5 %; weights are the inverse probabilities.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.arrays import BoolArray, FloatArray
from dubito.monitor.sequential import SequentialAlarm

LEVEL, N_LABELS, CHANGE_AT = 0.05, 10_000, 5_000
N_CLASSES, SPREAD = 10, 2.5
AUDIT_FRACTION, UNCERTAIN = 0.05, 0.6
BLOCK = 500


def labels(rng: np.random.Generator, n: int, sharper: float) -> tuple[FloatArray, BoolArray]:
    """Return confidence, its log odds too sharp by a factor, and whether the top class is right."""
    logits = rng.normal(0, SPREAD, (n, N_CLASSES))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    odds = np.exp(sharper * (logits - logits.max(axis=1, keepdims=True)))
    return 1 / odds.sum(axis=1), odds.argmax(axis=1) == y


def sampled_labels(rng: np.random.Generator, n: int, sharper: float) -> tuple[FloatArray, ...]:
    """Return the labels of sampled rows, few of them confident ones, with their weights."""
    confidence, is_correct = labels(rng, n, sharper)
    chance = np.where(confidence < UNCERTAIN, 1.0, AUDIT_FRACTION)
    seen = rng.random(n) < chance
    return confidence[seen], is_correct[seen].astype(float), 1 / chance[seen]


def alarmed_after(alarm: SequentialAlarm, draw: Callable[[int], tuple[Any, ...]]) -> int | None:
    """Return the number of labels until the alarm, None if there is none."""
    n_before = alarm.n_labels
    while alarm.n_labels < N_LABELS and not alarm.has_alarmed:
        alarm = alarm.update(*draw(BLOCK))
    return None if alarm.alarmed_after is None else alarm.alarmed_after - n_before


def steady(rng: np.random.Generator, sharper: float) -> int | None:
    """Return the number of labels until the alarm for a model of this sharpness."""
    return alarmed_after(SequentialAlarm(LEVEL), lambda n: labels(rng, n, sharper))


def late(rng: np.random.Generator, sharper: float) -> int | None:
    """Return the detection delay after a change; runs that alarm before it are redrawn."""
    before = SequentialAlarm(LEVEL).update(*labels(rng, CHANGE_AT, 1.0))
    if before.has_alarmed:
        return late(rng, sharper)
    return alarmed_after(before, lambda n: labels(rng, n, sharper))


def audited(rng: np.random.Generator, sharper: float) -> int | None:
    """Return the number of labels until the alarm if confident rows are seldom labeled."""
    alarm = SequentialAlarm(LEVEL, max_weight=1 / AUDIT_FRACTION)
    return alarmed_after(alarm, lambda n: sampled_labels(rng, n, sharper))


CASES: dict[str, Callable[[np.random.Generator], int | None]] = {
    "calibrated": lambda rng: steady(rng, 1.0),
    "calibrated, some labels": lambda rng: audited(rng, 1.0),
    "1.5x too sharp": lambda rng: steady(rng, 1.5),
    "1.5x too flat": lambda rng: steady(rng, 1 / 1.5),
    "1.2x too sharp": lambda rng: steady(rng, 1.2),
    f"1.5x too sharp from {CHANGE_AT:,} on": lambda rng: late(rng, 1.5),
    "1.5x too sharp, some labels": lambda rng: audited(rng, 1.5),
}


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """Fraction of runs with an alarm, and the labels until it in 50 % and 90 % of runs."""

    fraction: float
    median: int | None
    most: int | None


def outcome_of(case: str, n_runs: int, seed: int = 0) -> Outcome:
    """Return the outcome of some runs of a case."""
    rng = np.random.default_rng(seed)
    alarms = [CASES[case](rng) for _ in range(n_runs)]
    after = np.array([np.inf if labels is None else labels for labels in alarms])
    middle, most = np.quantile(after, [0.5, 0.9], method="higher")
    return Outcome(
        float(np.isfinite(after).mean()),
        int(middle) if np.isfinite(middle) else None,
        int(most) if np.isfinite(most) else None,
    )


def main() -> None:
    """Print the false alarm rate and the detection delays."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--quick", action="store_true", help="100 runs of each instead of 1,000")
    n_runs = 100 if parser.parse_args().quick else 1000
    found = {case: outcome_of(case, n_runs) for case in CASES}
    quiet, sharp = found["calibrated"], found["1.5x too sharp"]
    print(
        f"{quiet.fraction:.1%} of calibrated models ever raise a false alarm within {N_LABELS:,} "
        f"labels, checked after each;\nthe nominal level is {LEVEL:.0%}. A temperature off by "
        f"1.5x is detected after {sharp.median} labels in half of all\nruns, and after "
        f"{sharp.most} in 90 % of them.\n"
    )
    print(f"{n_runs:,} runs of at most {N_LABELS:,} labels\n")
    print(f"{'':<28} {'alarmed':>10} {'half after':>12} {'90 % after':>12}")
    for case, one in found.items():
        half, most = ("-" if n is None else f"{n:,}" for n in (one.median, one.most))
        print(f"{case:<28} {one.fraction:>10.1%} {half:>12} {most:>12}")


if __name__ == "__main__":
    main()
