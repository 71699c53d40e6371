"""How to combine two networks on different bands of the same satellite images.

    python -m studies.combine FOLDER       # holds eurosat_resnet18_f16.npz

Five times, one half of the rows teaches the pools and the prior, the other half is measured: log
loss and accuracy of each network alone (RGB, and multi-spectral), of the linear and the log-linear
pool, and of the product rule, which takes the networks for independent within each class.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from dubito import Logits
from dubito.arrays import FloatArray, IntArray
from dubito.decide.combine import (
    LinearPool,
    LogLinearPool,
    combine_posteriors,
    conditional_independence_test,
)
from dubito.measure import accuracy, log_loss

FILE = "eurosat_resnet18_f16.npz"
N_HALVES = 5


def predictions(
    models: Sequence[Logits], y: IntArray, fit: IntArray, rest: IntArray
) -> Mapping[str, object]:
    """Return the predictions of each method for the rest, fitted on the rows of the fit."""
    known, new = ([model.take(rows) for model in models] for rows in (fit, rest))
    labels = y[fit]
    prior = np.bincount(labels, minlength=models[0].n_classes) / labels.size
    return {
        "RGB": new[0],
        "multi-spectral": new[1],
        "linear pool": LinearPool().fit(known, labels).predict_proba(new),
        "log-linear pool": LogLinearPool().fit(known, labels).predict_proba(new),
        "log-linear pool, bias": LogLinearPool(True).fit(known, labels).predict_proba(new),
        "product rule": combine_posteriors(new, prior),
    }


def figures(models: Sequence[Logits], y: IntArray) -> Mapping[str, FloatArray]:
    """Return log loss and accuracy of each method, halves x 2."""
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in range(N_HALVES):
        order = np.random.default_rng(seed).permutation(y.size)
        fit, rest = np.sort(order[: y.size // 2]), np.sort(order[y.size // 2 :])
        for name, outputs in predictions(models, y, fit, rest).items():
            pair = log_loss(y[rest], outputs), accuracy(y[rest], outputs)
            found.setdefault(name, []).append(pair)
    return {name: np.array(pairs) for name, pairs in found.items()}


def table(found: Mapping[str, FloatArray]) -> str:
    """Return means over the halves as Markdown, with the range of the log loss."""
    lines = ["| | log loss | from | to | accuracy |", "|---|---|---|---|---|"]
    for name, pairs in found.items():
        loss, right = pairs.T
        lines.append(
            f"| {name} | {loss.mean():.4f} | {loss.min():.4f} | {loss.max():.4f} "
            f"| {right.mean():.4f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and whether the data contradict independence."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help=f"holds {FILE}")
    with np.load(parser.parse_args(arguments).folder / FILE) as data:
        y = data["labels"].astype(np.int64)
        models = [Logits(data["logits_rgb"]), Logits(data["logits_ms"])]
    print(f"{y.size:,} rows, {N_HALVES} random halves, fitted on one and evaluated on the other\n")
    print(table(figures(models, y)))
    print(f"\n{conditional_independence_test(models, y).summary()}")


if __name__ == "__main__":
    main()
