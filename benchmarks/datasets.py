"""Datasets to compare calibrators on: real outputs in fixed random halves, and generated logits."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import log_softmax

from dubito.arrays import FloatArray, IntArray

__all__ = ["Dataset", "any_datasets", "generate_logits", "real_datasets", "small_datasets"]

FLOOR = 1e-12  # of the probabilities that all methods get
N_HALVES = 5
N_RANDOM_SPLITS = 3  # of files of any kind
BLOCK = 1_000  # rows generated at once
OUTPUTS = ("logit", "logprob", "prob", "confidence")  # how names of outputs start
FIT_PARTS = ("_cal", "_val", "_fit", "_train")  # how names end if others end in _test
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


def any_datasets(folder: Path) -> tuple[list[Dataset], dict[str, str]]:
    """Return the datasets in the NPZ files of a folder, and why other files were left out.

    Outputs are arrays `logits*`, `logprobs*` or `probs*` (rows x classes, members x rows x classes,
    or rows of the positive class) with labels `labels*` or `y*`; pairs `*_p` and `*_y` for two
    classes; and `confidence*` with `correct*`, or with `pred` and `labels`, where the two classes
    are wrong and correct. Parts `*_cal`, `*_val`, `*_fit` and `*_train` are fitted on, `*_test` is
    tested on; other rows are split into random halves, three times. Members, and columns of
    confidences, are splits of one dataset.
    """
    found: list[Dataset] = []
    left_out = {}
    for path in sorted(folder.glob("*.npz")):
        try:
            arrays = dict(np.load(path, allow_pickle=False))
            keys = [key for key in arrays if key.startswith(OUTPUTS) or key.endswith("_p")]
            here = [
                read_dataset(path.stem, key, arrays) for key in keys if not key.endswith("_test")
            ]
            if not here:
                raise ValueError("no class probabilities or logits")
            found += here
        except (IndexError, OSError, ValueError) as error:
            left_out[path.name] = str(error)
    return found, left_out


def read_dataset(stem: str, key: str, arrays: Mapping[str, Any]) -> Dataset:
    """Return the dataset of an array of outputs in a file."""
    part = next((end for end in FIT_PARTS if key.endswith(end)), "")
    tables, base = labeled_outputs(key, part, arrays), key.removesuffix(part)
    if part:
        others = labeled_outputs(f"{base}_test", "_test", arrays)
        tables = [table for pair in zip(tables, others, strict=True) for table in pair]
    y = np.concatenate([labels for _, labels in tables])
    rows = np.split(np.arange(y.size), np.cumsum([labels.size for _, labels in tables])[:-1])
    repeated = rows if len(rows) > 1 else rows * N_RANDOM_SPLITS
    random = [halves(each, seed) for seed, each in enumerate(repeated)]
    splits = tuple(zip(rows[::2], rows[1::2], strict=True)) if part else tuple(random)
    name = " ".join([stem, *base.removesuffix("_p").split("_")[not key.endswith("_p") :]])
    return Dataset(name, floored(np.concatenate([logits for logits, _ in tables])), y, splits)


def labeled_outputs(
    key: str, part: str, arrays: Mapping[str, Any]
) -> list[tuple[FloatArray, IntArray]]:
    """Return logits and labels of an array of outputs, one table per member or column."""

    def first(*names: str) -> Any:
        present = [name for name in names if name in arrays]
        if not present:
            raise ValueError(f"{key} has no {' or '.join(names)}")
        return arrays[present[0]]

    values = first(key)
    if key.startswith("confidence"):
        correct = arrays.get(f"correct{part}")
        y = first("pred") == first("labels") if correct is None else correct
        values, labels = np.atleast_2d(values.T), list(np.atleast_2d(y.T))
    else:
        y = first(f"{key[:-2]}_y") if key.endswith("_p") else first(f"labels{part}", f"y{part}")
        if y.ndim > 1:
            raise ValueError(f"{key} has several labels per row")
        values = values if values.ndim == 3 else values[np.newaxis]
        labels = [y] * len(values)
    result: list[tuple[FloatArray, IntArray]] = []
    for table, label in zip(values, labels, strict=True):
        pair = np.column_stack([1 - table.astype(float), table]) if table.ndim == 1 else table
        is_label = np.isin(label, np.arange(pair.shape[1]))  # a tie is neither class
        logits = pair if key.startswith("log") else logs(pair)
        if not is_label.any():
            raise ValueError(f"{key} has labels that are not 0 to {pair.shape[1] - 1}")
        result.append((logits[is_label], np.asarray(label)[is_label].astype(np.int64)))
    return result


def small_datasets() -> Iterator[Dataset]:
    """Yield two small generated datasets."""
    for n_classes in (2, 4):
        logits, y = generate_logits(800, n_classes)
        name = f"generated, {n_classes} classes"
        yield replace(split_in_halves(name, logits, y), family=name)


def split_in_halves(name: str, logits: FloatArray, labels: Any) -> Dataset:
    """Return a dataset in five random halves, the same ones in every run."""
    y = np.asarray(labels).astype(np.int64)
    splits = tuple(halves(np.arange(y.size), seed) for seed in range(N_HALVES))
    return Dataset(name, floored(logits), y, splits)


def halves(rows: IntArray, seed: int) -> Split:
    """Return two random halves of rows."""
    order = np.random.default_rng(seed).permutation(rows)
    return order[: rows.size // 2], order[rows.size // 2 :]


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
