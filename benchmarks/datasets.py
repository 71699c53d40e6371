"""Datasets to compare calibrators on: real outputs in fixed random halves, and generated logits."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import log_softmax

from dubito.arrays import FloatArray, IntArray

__all__ = ["Dataset", "generate_logits", "real_datasets", "small_datasets"]

FLOOR = 1e-12  # of the probabilities that all methods get
N_HALVES = 5
BLOCK = 1_000  # rows generated at once
GAMES = ("nba_games", "nfl_games", "mlb_games", "nhl_games", "wnba_games", "governors")

Split = tuple[IntArray, IntArray]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Log probabilities, labels, and one or several splits into rows to fit on and to test on.

    The test rows of a shift come from another source. Datasets of one family share their rows.
    """

    name: str
    logits: FloatArray
    y: IntArray
    splits: tuple[Split, ...]
    is_shift: bool = False
    family: str = ""

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.logits.shape[1])


def real_datasets(folder: Path) -> Iterator[Dataset]:
    """Yield every dataset in a folder of NPZ files, the shift last."""
    for name, logits, labels in real_outputs(folder):
        family = "llama" if name.startswith("llama") else name
        yield replace(split_in_halves(name, logits, labels), family=family)
    arrays = np.load(folder / "cifar10_densenet40_f16.npz", allow_pickle=False)
    logits = np.concatenate([arrays["logits_val"], arrays["logits_test"]])
    y = np.concatenate([arrays["labels_val"], arrays["labels_test"]]).astype(np.int64)
    before, after = np.split(np.arange(y.size), [arrays["labels_val"].size])
    yield Dataset("densenet val to test", floored(logits), y, ((before, after),), True)


def real_outputs(folder: Path) -> Iterator[tuple[str, FloatArray, Any]]:
    """Yield the name, logits and labels of each dataset."""

    def load(name: str) -> Any:
        return np.load(folder / f"{name}.npz", allow_pickle=False)

    densenet = load("cifar10_densenet40_f16")
    yield "densenet val", densenet["logits_val"], densenet["labels_val"]
    yield "densenet test", densenet["logits_test"], densenet["labels_test"]
    vgg = load("cifar10_vgg16_keras")
    yield "vgg16", logs(vgg["probs"]), vgg["labels"]
    wide = load("cifar100_wrn16_first4000_logprob_f16")
    yield "cifar100", wide["logprobs"], wide["labels"]
    eurosat = load("eurosat_resnet18_f16")
    yield "eurosat rgb", eurosat["logits_rgb"], eurosat["labels"]
    yield "eurosat ms", eurosat["logits_ms"], eurosat["labels"]
    for name, file in {"20news": "20news_cleanlab_cv", "imdb": "imdb_cleanlab_cv"}.items():
        arrays = load(file)
        yield name, logs(arrays["probs"]), arrays["labels"]
    hpc = load("hpc_cv_yardstick")
    yield "hpc", logs(hpc["probs"]), hpc["labels"]
    llama = load("llama13b_mmlu16_10prompts")
    for prompt, probabilities in enumerate(llama["probs"]):
        yield f"llama prompt {prompt}", logs(probabilities), llama["labels"]
    forecasts = load("fivethirtyeight")
    for games in GAMES:
        y, p = forecasts[f"{games}_y"], forecasts[f"{games}_p"].astype(float)
        is_decided = (y == 0) | (y == 1)  # a tie is neither
        pair = np.column_stack([1 - p, p])[is_decided]
        yield games.removesuffix("_games"), logs(pair), y[is_decided]


def small_datasets() -> Iterator[Dataset]:
    """Yield two small generated datasets."""
    for n_classes in (2, 4):
        logits, y = generate_logits(800, n_classes)
        name = f"generated, {n_classes} classes"
        yield replace(split_in_halves(name, logits, y), family=name)


def split_in_halves(name: str, logits: FloatArray, labels: Any) -> Dataset:
    """Return a dataset in five random halves, the same ones in every run."""
    y = np.asarray(labels).astype(np.int64)
    orders = [np.random.default_rng(seed).permutation(y.size) for seed in range(N_HALVES)]
    splits = tuple((order[: y.size // 2], order[y.size // 2 :]) for order in orders)
    return Dataset(name, floored(logits), y, splits)


def logs(probabilities: FloatArray) -> FloatArray:
    """Return the logarithms of probabilities, floored."""
    return np.asarray(np.log(np.clip(probabilities.astype(float), FLOOR, 1)))


def floored(logits: FloatArray) -> FloatArray:
    """Return finite log probabilities in float64."""
    raised = np.maximum(log_softmax(logits.astype(float), axis=1), np.log(FLOOR))
    return np.asarray(log_softmax(raised, axis=1))


def generate_logits(n_rows: int, n_classes: int) -> tuple[FloatArray, IntArray]:
    """Return float32 logits of an over-confident model, and labels drawn from the true scores.

    The model doubles the true scores, mixes each class with its neighbor, and favors some classes:
    something for every calibrator to correct.
    """
    rng = np.random.default_rng(0)
    bias = rng.standard_normal(n_classes, dtype=np.float32)
    logits = np.empty((n_rows, n_classes), np.float32)
    y = np.empty(n_rows, np.int64)
    for start in range(0, n_rows, BLOCK):
        rows = slice(start, min(start + BLOCK, n_rows))
        scores = 6 * rng.standard_normal(logits[rows].shape, dtype=np.float32)
        y[rows] = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
        logits[rows] = 2 * scores + 0.5 * np.roll(scores, 1, axis=1) + bias
    return logits, y
