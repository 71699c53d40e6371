"""False alarm rate and detection delay of an alarm that is checked after every label.

    python -m studies.sequential_alarms            # 1,000 runs of each, about two minutes
    python -m studies.sequential_alarms --quick    # 100 runs of each

Ten classes with labels drawn from the stated probabilities are calibrated by construction; logits
times 1.5 are a temperature that has moved. Under "some labels", rows are asked about with a chance
of 1 if the model doubts and of 5 % if not, and weigh one over that chance.
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
AUDIT_SHARE, DOUBTFUL = 0.05, 0.6
BLOCK = 500


def labels(rng: np.random.Generator, n: int, sharper: float) -> tuple[FloatArray, BoolArray]:
    """Return confidence, its log odds too sharp by a factor, and whether the top class is right."""
    logits = rng.normal(0, SPREAD, (n, N_CLASSES))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    shares = np.exp(sharper * (logits - logits.max(axis=1, keepdims=True)))
    return 1 / shares.sum(axis=1), shares.argmax(axis=1) == y


def asked_labels(rng: np.random.Generator, n: int, sharper: float) -> tuple[FloatArray, ...]:
    """Return labels of the rows asked about, few of them sure ones, with their weights."""
    confidence, is_correct = labels(rng, n, sharper)
    chance = np.where(confidence < DOUBTFUL, 1.0, AUDIT_SHARE)
    seen = rng.random(n) < chance
    return confidence[seen], is_correct[seen].astype(float), 1 / chance[seen]


def alarmed_after(alarm: SequentialAlarm, draw: Callable[[int], tuple[Any, ...]]) -> int | None:
    """Return how many more labels it takes until the alarm, None if it stays quiet."""
    n_before = alarm.n_labels
    while alarm.n_labels < N_LABELS and not alarm.has_alarmed:
        alarm = alarm.update(*draw(BLOCK))
    return None if alarm.alarmed_after is None else alarm.alarmed_after - n_before


def steady(rng: np.random.Generator, sharper: float) -> int | None:
    """Return after how many labels a model as sharp as that alarms."""
    return alarmed_after(SequentialAlarm(LEVEL), lambda n: labels(rng, n, sharper))


def late(rng: np.random.Generator, sharper: float) -> int | None:
    """Return how many labels after a change the alarm comes; a run that alarms before it is out."""
    before = SequentialAlarm(LEVEL).update(*labels(rng, CHANGE_AT, 1.0))
    if before.has_alarmed:
        return late(rng, sharper)
    return alarmed_after(before, lambda n: labels(rng, n, sharper))


def audited(rng: np.random.Generator, sharper: float) -> int | None:
    """Return after how many labels the alarm comes where sure rows are seldom asked about."""
    alarm = SequentialAlarm(LEVEL, largest_weight=1 / AUDIT_SHARE)
    return alarmed_after(alarm, lambda n: asked_labels(rng, n, sharper))


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
class RunResult:
    """How many runs alarmed, and the labels it took half and 90 % of all runs; None if never."""

    share: float
    median: int | None
    most: int | None


def found_in(case: str, n_runs: int, seed: int = 0) -> RunResult:
    """Return what became of some runs of a case."""
    rng = np.random.default_rng(seed)
    alarms = [CASES[case](rng) for _ in range(n_runs)]
    after = np.array([np.inf if labels is None else labels for labels in alarms])
    middle, most = np.quantile(after, [0.5, 0.9], method="higher")
    return RunResult(
        float(np.isfinite(after).mean()),
        int(middle) if np.isfinite(middle) else None,
        int(most) if np.isfinite(most) else None,
    )


def main() -> None:
    """Print false alarms, and how many labels drift takes to be found."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--quick", action="store_true", help="100 runs of each instead of 1,000")
    n_runs = 100 if parser.parse_args().quick else 1000
    found = {case: found_in(case, n_runs) for case in CASES}
    quiet, sharp = found["calibrated"], found["1.5x too sharp"]
    print(
        f"{quiet.share:.1%} of calibrated models ever raise a false alarm within {N_LABELS:,} "
        f"labels, looked at after each;\nat most {LEVEL:.0%} were allowed. A temperature that "
        f"moved 1.5x is found after {sharp.median} labels in half of all\nruns, and after "
        f"{sharp.most} in 90 % of them.\n"
    )
    print(f"{n_runs:,} runs of at most {N_LABELS:,} labels\n")
    print(f"{'':<28} {'alarmed':>10} {'half after':>12} {'90 % after':>12}")
    for case, one in found.items():
        half, most = ("-" if n is None else f"{n:,}" for n in (one.median, one.most))
        print(f"{case:<28} {one.share:>10.1%} {half:>12} {most:>12}")


if __name__ == "__main__":
    main()
