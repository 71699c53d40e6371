"""Rows to compare calibrators on: real outputs in fixed random halves, and generated logits."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import log_softmax

from dubito.arrays import FloatArray, IntArray

__all__ = ["CalibrationSet", "generated", "real_sets", "small_sets"]

FLOOR = 1e-12  # no probability that anyone gets is below
N_HALVES = 5
BLOCK = 1_000  # rows that are made at once
GAMES = ("nba_games", "nfl_games", "mlb_games", "nhl_games", "wnba_games", "governors")

Split = tuple[IntArray, IntArray]


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationSet:
    """Log probabilities and labels, and the rows to fit on and to test on, once or several times.

    A shift is a set whose test rows come from elsewhere than those to fit on. Sets of one family
    are of the same rows.
    """

    name: str
    logits: FloatArray
    y: IntArray
    splits: tuple[Split, ...]
    is_shift: bool = False
    family: str = ""

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return int(self.logits.shape[1])


def real_sets(folder: Path) -> Iterator[CalibrationSet]:
    """Yield every set in a folder of NPZ files, the shift last."""
    for name, logits, labels in real_outputs(folder):
        family = "llama" if name.startswith("llama") else name
        yield replace(in_halves(name, logits, labels), family=family)
    arrays = np.load(folder / "cifar10_densenet40_f16.npz", allow_pickle=False)
    logits = np.concatenate([arrays["logits_val"], arrays["logits_test"]])
    y = np.concatenate([arrays["labels_val"], arrays["labels_test"]]).astype(np.int64)
    before, after = np.split(np.arange(y.size), [arrays["labels_val"].size])
    yield CalibrationSet("densenet val to test", floored(logits), y, ((before, after),), True)


def real_outputs(folder: Path) -> Iterator[tuple[str, FloatArray, Any]]:
    """Yield name, logits and labels of each set."""

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


def small_sets() -> Iterator[CalibrationSet]:
    """Yield two generated sets on which everything takes a moment."""
    for n_classes in (2, 4):
        logits, y = generated(800, n_classes)
        name = f"generated, {n_classes} classes"
        yield replace(in_halves(name, logits, y), family=name)


def in_halves(name: str, logits: FloatArray, labels: Any) -> CalibrationSet:
    """Return a set in five random halves, the same ones at every run."""
    y = np.asarray(labels).astype(np.int64)
    orders = [np.random.default_rng(seed).permutation(y.size) for seed in range(N_HALVES)]
    splits = tuple((order[: y.size // 2], order[y.size // 2 :]) for order in orders)
    return CalibrationSet(name, floored(logits), y, splits)


def logs(probabilities: FloatArray) -> FloatArray:
    """Return the logs of probabilities, of 0 too."""
    return np.asarray(np.log(np.clip(probabilities.astype(float), FLOOR, 1)))


def floored(logits: FloatArray) -> FloatArray:
    """Return log probabilities in float64 that nobody can find infinite."""
    raised = np.maximum(log_softmax(logits.astype(float), axis=1), np.log(FLOOR))
    return np.asarray(log_softmax(raised, axis=1))


def generated(n_rows: int, n_classes: int) -> tuple[FloatArray, IntArray]:
    """Return float32 logits of a model that is too sure, and labels drawn from the truth.

    The model doubles the true scores, mixes each class with its neighbor, and leans to some
    classes: something for every calibrator to undo.
    """
    rng = np.random.default_rng(0)
    lean = rng.standard_normal(n_classes, dtype=np.float32)
    logits = np.empty((n_rows, n_classes), np.float32)
    y = np.empty(n_rows, np.int64)
    for start in range(0, n_rows, BLOCK):
        rows = slice(start, min(start + BLOCK, n_rows))
        scores = 6 * rng.standard_normal(logits[rows].shape, dtype=np.float32)
        y[rows] = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
        logits[rows] = 2 * scores + 0.5 * np.roll(scores, 1, axis=1) + lean
    return logits, y
