"""What calibration saves with a reject option, for a strongly over-confident network.

    python -m studies.reject_cost FOLDER            # holds cifar10_vgg16_keras.npz
    python -m studies.reject_cost FOLDER -o FILE    # also writes the table to FILE

An error costs 1, a human review 0.05. Five times, a policy is fitted on a random half of the rows,
and the other half is decided by the network's own probabilities and by the policy's. Intervals are
from a paired bootstrap over the decided rows.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from dubito import Logits, Probabilities
from dubito.arrays import IntArray
from dubito.calibrate import AutoCalibrator, BaseCalibrator, TemperatureScaling
from dubito.decide import CostMatrix, CostSavings, Policy, cost_savings
from dubito.measure import Interval

FILE = "cifar10_vgg16_keras.npz"
N_HALVES = 5
REJECT_COST = 0.05
LARGEST_RATIO = 0.62  # of the cost after calibration to that before
LARGEST_GAP_RATIO = 0.5  # of the gap between expected and realized cost, after to before
CALIBRATORS: Mapping[str, type[BaseCalibrator]] = {
    "TemperatureScaling": TemperatureScaling,
    "AutoCalibrator": AutoCalibrator,
}


def halves(n_rows: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield five reproducible random halves: rows to fit on, and rows to decide."""
    for seed in range(N_HALVES):
        order = np.random.default_rng(seed).permutation(n_rows)
        yield order[: n_rows // 2], order[n_rows // 2 :]


def decided(
    calibrator: BaseCalibrator, known: Probabilities, y: IntArray, new: Probabilities
) -> Logits | Probabilities:
    """Return the calibrated outputs of a policy fitted on labeled rows."""
    costs = CostMatrix.zero_one(known.n_classes).with_reject(REJECT_COST)
    return Policy.fit(known, y, costs=costs, calibrator=calibrator).calibrated(new)


def saved(
    outputs: Probabilities, y: IntArray, calibrator: type[BaseCalibrator]
) -> list[CostSavings]:
    """Return what a calibrator saves on each of the other halves."""
    costs = CostMatrix.zero_one(outputs.n_classes).with_reject(REJECT_COST)
    return [
        cost_savings(
            y[rest],
            outputs.take(rest),
            decided(calibrator(), outputs.take(fit), y[fit], outputs.take(rest)),
            costs,
        )
        for fit, rest in halves(y.size)
    ]


def table(found: Sequence[CostSavings]) -> list[str]:
    """Return a line for each half."""
    heads = ("cost after / before", "gap before", "gap after", "gap after / before")
    lines = [f"{'half':>4} {'before':>7} {'after':>7}" + "".join(f" {head:>28}" for head in heads)]
    for number, one in enumerate(found):
        cells = (one.ratio, signed(one.gap_before), signed(one.gap_after), one.gap_ratio)
        shown = "".join(f" {cell!s:>28}" for cell in cells)
        lines.append(f"{number:>4} {one.before:>7.4f} {one.after:>7.4f}{shown}")
    return lines


def signed(gap: Interval) -> str:
    """Format an interval of signed values."""
    return f"{gap.value:+.4f} ({gap.low:+.4f} to {gap.high:+.4f})"


def verdict(name: str, found: Sequence[CostSavings]) -> list[str]:
    """Summarize cost and gap."""
    before, after = (np.mean([getattr(one, key) for one in found]) for key in ("before", "after"))
    ratios = [one.ratio.value for one in found if one.ratio is not None]
    highs = [one.ratio.high for one in found if one.ratio is not None]
    gaps = [one.gap_ratio.value for one in found if one.gap_ratio is not None]
    gap_highs = [one.gap_ratio.high for one in found if one.gap_ratio is not None]
    n_sure = sum(one.saved.low > 0 for one in found)
    return [
        f"{name}: {before:.4f} per row before, {after:.4f} after (means over halves), "
        f"ratio {after / before:.3f}.",
        f"  Cost: significantly lower on {n_sure} of {len(found)} halves. The largest ratio is "
        f"{max(ratios):.3f},\n  its interval to {max(highs):.3f}: "
        f"{held(max(ratios), LARGEST_RATIO)}.",
        f"  Gap of expected and realized cost: at most {max(gaps):.3f} of the "
        f"gap before,\n  its interval to {max(gap_highs):.3f}: "
        f"{held(max(gaps), LARGEST_GAP_RATIO)}.",
    ]


def held(value: float, bound: float) -> str:
    """Describe whether a value is within its bound."""
    return f"{'within' if value <= bound else 'ABOVE'} the {bound:g} that was required"


def report(outputs: Probabilities, y: IntArray) -> str:
    """Return the tables, and sentences that summarize them."""
    found = {name: saved(outputs, y, one) for name, one in CALIBRATORS.items()}
    words = [line for name, entries in found.items() for line in verdict(name, entries)]
    title = (
        f"{y.size:,} rows, reject at {REJECT_COST:g} where an error costs 1; {N_HALVES} halves;\n"
    )
    title += "gap: expected cost minus realized cost; 95 % intervals in brackets"
    parts = [[title], words]
    parts += [[name, *table(entries)] for name, entries in found.items()]
    return "\n\n".join("\n".join(lines) for lines in parts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables, and write them to a file if requested."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("folder", type=Path, help=f"holds {FILE}")
    parser.add_argument("-o", type=Path, help="write the tables to this file")
    requested = parser.parse_args(arguments)
    with np.load(requested.folder / FILE) as data:
        outputs, y = Probabilities(data["probs"]), data["labels"].astype(np.int64)
    text = report(outputs, y)
    print(text)
    if requested.o is not None:
        requested.o.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
