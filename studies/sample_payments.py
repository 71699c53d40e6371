"""Train a model of card fraud on simulated payments and keep its predictions as sample data.

About 3 % of the payments are fraud. Boosted trees, fitted far past their best log loss, see twenty
numbers of scikit-learn's `make_classification` and the amount, but not the region, where fraud is
more frequent in one. Run `python -m studies.sample_payments` from the root of the repository; it
gives the same bytes with the same versions of NumPy and scikit-learn.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sklearn
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss, roc_auc_score

REGIONS = ("north", "south", "west")
FRAUD_REGIONS = (0.2, 0.3, 0.5)  # legitimate payments come from all regions alike
N_TRAIN, N_LABELED, N_NEW = 15_000, 15_000, 5_000
SEED = 0
OUTPUT = Path("src/dubito/data/samples/payments.npz")

Arrays = dict[str, npt.NDArray[Any]]


def draw_payments(n_rows: int) -> tuple[npt.NDArray[Any], Arrays]:
    """The features of a model, and the label, amount and region of each payment."""
    features, label = make_classification(
        n_samples=n_rows,
        n_features=20,
        n_informative=8,
        n_redundant=4,
        n_clusters_per_class=3,
        weights=[0.972],
        class_sep=0.8,
        flip_y=0.01,
        random_state=SEED,
    )
    rng = np.random.default_rng(SEED)
    amount = np.exp(rng.normal(3.6 + 0.9 * label, 1.0)).clip(1, 5_000).round(2)
    chances = np.where(label[:, np.newaxis] == 1, FRAUD_REGIONS, 1 / len(REGIONS))
    region = (rng.random((n_rows, 1)) > chances.cumsum(axis=1)[:, :-1]).sum(axis=1)
    columns = {
        "label": label.astype(np.int8),
        "amount": amount.astype(np.float32),
        "region": region.astype(np.int8),
    }
    return np.column_stack([features, np.log(amount)]), columns


def make() -> Arrays:
    """Every array of the sample file, by name."""
    features, columns = draw_payments(N_TRAIN + N_LABELED + N_NEW)
    model = HistGradientBoostingClassifier(
        max_iter=150, learning_rate=0.15, max_leaf_nodes=31, early_stopping=False, random_state=SEED
    )
    model.fit(features[:N_TRAIN], columns["label"][:N_TRAIN])
    p = model.predict_proba(features)[:, 1].astype(np.float32)
    arrays: Arrays = {"regions": np.array(REGIONS)}
    parts = {
        "labeled": slice(N_TRAIN, N_TRAIN + N_LABELED),
        "new": slice(N_TRAIN + N_LABELED, None),
    }
    for name, rows in parts.items():
        y = columns["label"][rows]
        print(
            f"{name:8s} {y.size:,} rows  fraud {y.mean():.4f}  mean p {p[rows].mean():.4f}  "
            f"ROC-AUC {roc_auc_score(y, p[rows]):.4f}  log loss {log_loss(y, p[rows]):.4f}"
        )
        arrays |= {f"{name}_p": p[rows]}
        arrays |= {f"{name}_{key}": values[rows] for key, values in columns.items()}
    facts = {
        "made_by": "studies/sample_payments.py",
        "model": "HistGradientBoostingClassifier, 150 trees of 31 leaves",
        "train_rows": N_TRAIN,
        "seed": SEED,
        "scikit-learn": sklearn.__version__,
    }
    return arrays | {"meta": np.array(json.dumps(facts))}


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, train, and write the file."""
    parser = argparse.ArgumentParser(description="Make the sample payments of dubito.")
    parser.add_argument("--output", type=Path, default=OUTPUT, help=f"file to write ({OUTPUT})")
    output: Path = parser.parse_args(arguments).output
    np.savez_compressed(output, allow_pickle=False, **make())
    print(f"{output}: {output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
