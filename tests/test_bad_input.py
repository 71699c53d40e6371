"""Every bad input, and the very words its user gets."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy import inf, nan
from scipy import sparse

from dubito import Logits, Members, Normal, Probabilities, Quantiles, Samples, TopLabel, audit
from dubito.calibrate import TemperatureScaling, VarianceScaling
from dubito.data import Batch
from dubito.errors import (
    BadTypeError,
    BadValueError,
    DubitoError,
    EmptyStateError,
    StateMismatchError,
)
from dubito.measure import (
    ReliabilityState,
    accuracy,
    brier_score,
    expected_calibration_error,
    log_loss,
    reliability_curve,
)

HALVES = [[0.5, 0.5], [0.5, 0.5]]
PETS = Probabilities(HALVES, classes=["cat", "dog"])
SURE = TopLabel([0.9, 0.8], [True, False])


def with_threads(wish: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUBITO_THREADS", wish)
        Logits(HALVES)


def add_states_of(*edges: list[float]) -> None:
    states = [ReliabilityState.of(Batch.of(None, SURE), np.array(one)) for one in edges]
    states[0] + states[1]


CASES: dict[str, tuple[Callable[[], Any], type[DubitoError], str]] = {
    "a NaN among logits": (
        lambda: Logits([[0.0, 1.0], [nan, 1.0]]),
        BadValueError,
        "`array` of Logits must be finite. "
        "Got nan in row 1, column 0. "
        "Try leaving such rows out, or -10000 for a class that is masked out.",
    ),
    "an infinite logit": (
        lambda: Logits([[0.0, inf]]),
        BadValueError,
        "`array` of Logits must be finite. "
        "Got inf in row 0, column 1. "
        "Try leaving such rows out, or -10000 for a class that is masked out.",
    ),
    "a class masked by -inf": (
        lambda: Logits([[0.0, -inf]]),
        BadValueError,
        "`array` of Logits must be finite. "
        "Got -inf in row 0, column 1. "
        "Try leaving such rows out, or -10000 for a class that is masked out.",
    ),
    "None for logits": (
        lambda: Logits(None),
        BadTypeError,
        "`array` of Logits must be an array with one entry a row. "
        "Got None. "
        "Try a list, a NumPy array, or `.toarray()` for a sparse matrix.",
    ),
    "a single number for logits": (
        lambda: Logits(3.5),
        BadTypeError,
        "`array` of Logits must be an array with one entry a row. "
        "Got a single float. "
        "Try a list, a NumPy array, or `.toarray()` for a sparse matrix.",
    ),
    "text for logits": (
        lambda: Logits([["a", "b"]]),
        BadTypeError,
        "`array` of Logits must be an array of real numbers. "
        "Got text (dtype <U1). "
        "Try `.astype(float)` once every entry is a real number.",
    ),
    "a file name for logits": (
        lambda: Logits("logits.npy"),
        BadTypeError,
        "`array` of Logits must be an array with one entry a row. "
        "Got a single str. "
        "Try a list, a NumPy array, or `.toarray()` for a sparse matrix.",
    ),
    "logits of three dimensions": (
        lambda: Logits(np.zeros((2, 3, 4))),
        BadValueError,
        "`array` of Logits must be rows x classes. "
        "Got shape (2, 3, 4). "
        "Try Members.of([pass_1, pass_2, ...]) for passes, or `.reshape(-1, n_classes)` "
        "for pixels.",
    ),
    "complex logits": (
        lambda: Logits([[1j, 2.0]]),
        BadTypeError,
        "`array` of Logits must be an array of real numbers. "
        "Got complex numbers (dtype complex128). "
        "Try `.astype(float)` once every entry is a real number.",
    ),
    "a ragged list": (
        lambda: Logits([[1.0, 2.0], [3.0]]),
        BadTypeError,
        "`array` of Logits must be something NumPy can read as an array. "
        "Got list (setting an array element with a sequence. The requested array has an "
        "inhomogeneous shape after 1 dimensions. The detected shape was (2,) + "
        "inhomogeneous part). "
        "Try rows of equal length, or `.detach().cpu().numpy()` for a tensor.",
    ),
    "a sparse matrix": (
        lambda: Logits(sparse.csr_matrix(np.eye(2))),
        BadTypeError,
        "`array` of Logits must be an array with one entry a row. "
        "Got a single csr_matrix. "
        "Try a list, a NumPy array, or `.toarray()` for a sparse matrix.",
    ),
    "a matrix of booleans": (
        lambda: Logits([[True, False]]),
        BadTypeError,
        "`array` of Logits must be an array of real numbers. "
        "Got booleans (dtype bool). "
        "Try `.astype(float)` once every entry is a real number.",
    ),
    "a matrix of objects": (
        lambda: Logits(np.array([[None, 1.0]], object)),
        BadTypeError,
        "`array` of Logits must be an array of real numbers. "
        "Got objects (dtype object). "
        "Try `.astype(float)` once every entry is a real number.",
    ),
    "dates for logits": (
        lambda: Logits(np.array(["2020-01-01"], "datetime64[D]")),
        BadTypeError,
        "`array` of Logits must be an array of real numbers. "
        "Got something else (dtype datetime64[D]). "
        "Try `.astype(float)` once every entry is a real number.",
    ),
    "no columns": (
        lambda: Logits(np.empty((3, 0))),
        BadValueError,
        "`array` of Logits must be rows x classes. Got shape (3, 0). Try at least one column.",
    ),
    "a masked array": (
        lambda: Logits(np.ma.masked_equal([[1.0, 2.0], [9.0, 1.0]], 9.0)),
        BadValueError,
        "`array` of Logits must be without masked entries. "
        "Got one in row 1. "
        "Try leaving masked rows out.",
    ),
    "a NaN among probabilities": (
        lambda: Probabilities([[0.5, nan]]),
        BadValueError,
        "`array` of Probabilities must be finite. "
        "Got nan in row 0, column 1. "
        "Try leaving such rows out, or mending what made them.",
    ),
    "an infinite probability": (
        lambda: Probabilities([[0.5, inf]]),
        BadValueError,
        "`array` of Probabilities must be finite. "
        "Got inf in row 0, column 1. "
        "Try leaving such rows out, or mending what made them.",
    ),
    "a negative probability": (
        lambda: Probabilities([[0.5, 0.5], [1.5, -0.5]]),
        BadValueError,
        "`array` of Probabilities must be probabilities, 0 or above. "
        "Got -0.5 in row 1, column 1. "
        "Try `Logits` if these are logits, or `.clip(0)` if rounding made it negative.",
    ),
    "a row that does not sum to 1": (
        lambda: Probabilities([[0.5, 0.5], [0.5, 0.6]]),
        BadValueError,
        "`array` of Probabilities must be rows that sum to 1. "
        "Got a sum of 1.1 in row 1. "
        "Try `Logits` if these are logits, or dividing each row by its sum.",
    ),
    "percentages in two columns": (
        lambda: Probabilities([[20.0, 80.0]]),
        BadValueError,
        "`array` of Probabilities must be rows that sum to 1. "
        "Got a sum of 100 in row 0. "
        "Try `Logits` if these are logits, or dividing each row by its sum.",
    ),
    "log odds for probabilities": (
        lambda: Probabilities([2.5, -0.5]),
        BadValueError,
        "`array` of Probabilities must be between 0 and 1. "
        "Got 2.5 in row 0. "
        "Try `Logits` if these are logits, or dividing percentages by 100.",
    ),
    "a NaN among one column of probabilities": (
        lambda: Probabilities([0.5, nan]),
        BadValueError,
        "`array` of Probabilities must be finite. "
        "Got nan in row 1. "
        "Try leaving such rows out, or mending what made them.",
    ),
    "probabilities of three dimensions": (
        lambda: Probabilities(np.full((2, 2, 2), 0.5)),
        BadValueError,
        "`array` of Probabilities must be rows x classes. "
        "Got shape (2, 2, 2). "
        "Try Members.of([pass_1, pass_2, ...]) for passes, or `.reshape(-1, n_classes)` "
        "for pixels.",
    ),
    "too many names of classes": (
        lambda: Probabilities(HALVES, classes=["cat", "dog", "fox"]),
        BadValueError,
        "`classes` of Probabilities must be 2 names, one a class. "
        "Got 3. "
        "Try one different name a class, such as ['cat', 'dog'].",
    ),
    "one name for the positive class": (
        lambda: Probabilities([0.5], classes=["yes"]),
        BadValueError,
        "`classes` of Probabilities must be 2 names, one a class. "
        "Got 1. "
        "Try one different name a class, such as ['cat', 'dog'].",
    ),
    "the same name twice": (
        lambda: Probabilities(HALVES, classes=["cat", "cat"]),
        BadValueError,
        "`classes` of Probabilities must be all different. "
        "Got 'cat' twice. "
        "Try one different name a class, such as ['cat', 'dog'].",
    ),
    "one text for the names": (
        lambda: Probabilities(HALVES, classes="cat"),
        BadTypeError,
        "`classes` of Probabilities must be a list of names in the order of the columns. "
        "Got 'cat'. "
        "Try one different name a class, such as ['cat', 'dog'].",
    ),
    "a number for the names": (
        lambda: Probabilities(HALVES, classes=2),  # type: ignore[arg-type]
        BadTypeError,
        "`classes` of Probabilities must be a list of names in the order of the columns. "
        "Got int. "
        "Try one different name a class, such as ['cat', 'dog'].",
    ),
    "names without an order": (
        lambda: Probabilities(HALVES, classes={"cat"}),
        BadTypeError,
        "`classes` of Probabilities must be a list of names in the order of the columns. "
        "Got {'cat'}. "
        "Try one different name a class, such as ['cat', 'dog'].",
    ),
    "a name that is None": (
        lambda: Probabilities(HALVES, classes=["cat", None]),  # type: ignore[list-item]
        BadTypeError,
        "`classes` of Probabilities must be text or numbers. "
        "Got NoneType. "
        "Try one different name a class, such as ['cat', 'dog'].",
    ),
    "one matrix for several passes": (
        lambda: Members(HALVES),
        BadValueError,
        "`array` of Members must be 3-D, passes x rows x classes. "
        "Got shape (2, 2). "
        "Try Members.of([pass_1, pass_2, ...]).",
    ),
    "no passes": (
        lambda: Members(np.empty((0, 2, 2))),
        BadValueError,
        "`array` of Members must be 1 pass or more. Got none. Try at least one pass.",
    ),
    "a pass that does not sum to 1": (
        lambda: Members([HALVES, [[0.5, 0.5], [0.5, 0.7]]]),
        BadValueError,
        "`array[1]` of Members must be rows that sum to 1. "
        "Got a sum of 1.2 in row 1. "
        "Try Members.of([Logits(one), ...]) if these are logits, or dividing each row by "
        "its sum.",
    ),
    "a positive class above 1 in a pass": (
        lambda: Members([[[0.5]], [[1.5]]]),
        BadValueError,
        "`array[1]` of Members must be between 0 and 1. "
        "Got 1.5 in row 0. "
        "Try Members.of([Logits(one), ...]) if these are logits, or dividing percentages "
        "by 100.",
    ),
    "passes without columns": (
        lambda: Members(np.empty((2, 3, 0))),
        BadValueError,
        "`array[0]` of Members must be rows x classes. Got shape (3, 0). Try at least one column.",
    ),
    "certainty of another shape": (
        lambda: Members([HALVES], certainty=[[1.0]]),
        BadValueError,
        "`certainty` of Members must be passes x rows, (1, 2). "
        "Got shape (1, 1). "
        "Try one number a pass and row.",
    ),
    "a NaN among certainties": (
        lambda: Members([HALVES], certainty=[[1.0, nan]]),
        BadValueError,
        "`certainty` of Members must be finite. "
        "Got nan in row 0, column 1. "
        "Try leaving such rows out, or mending what made them.",
    ),
    "a list of no passes": (
        lambda: Members.of([]),
        BadValueError,
        "`passes` of Members.of must be 1 pass or more. Got none. Try at least one pass.",
    ),
    "None for passes": (
        lambda: Members.of(None),  # type: ignore[arg-type]
        BadTypeError,
        "`passes` of Members.of must be a list of outputs, one a pass. "
        "Got NoneType. "
        "Try Members.of([pass_1, pass_2, ...]).",
    ),
    "one wrapper for several passes": (
        lambda: Members.of(Logits(HALVES)),  # type: ignore[arg-type]
        BadTypeError,
        "`passes` of Members.of must be a list of outputs, one a pass. "
        "Got Logits. "
        "Try Members.of([pass_1, pass_2, ...]).",
    ),
    "passes over different rows": (
        lambda: Members.of([HALVES, HALVES[:1]]),
        BadValueError,
        "`passes[1]` of Members.of must be like the first pass, shape (2, 2), classes None. "
        "Got shape (1, 2), classes None. "
        "Try passes over the same rows, columns in the same order.",
    ),
    "passes with and without names": (
        lambda: Members.of([PETS, HALVES]),
        BadValueError,
        "`passes[1]` of Members.of must be like the first pass, shape (2, 2), classes "
        "('cat', 'dog'). "
        "Got shape (2, 2), classes None. "
        "Try passes over the same rows, columns in the same order.",
    ),
    "top labels for a pass": (
        lambda: Members.of([SURE]),
        BadTypeError,
        "`passes[0]` of Members.of must be Logits, Probabilities or an array. "
        "Got TopLabel. "
        "Try one matrix a pass.",
    ),
    "a plain pass that does not sum to 1": (
        lambda: Members.of([HALVES, [[0.5, 0.9]]]),
        BadValueError,
        "`passes[1]` of Members.of must be rows that sum to 1. "
        "Got a sum of 1.4 in row 0. "
        "Try `Logits` if these are logits, or dividing each row by its sum.",
    ),
    "a top label that is right twice": (
        lambda: TopLabel([0.9], [2]),
        BadValueError,
        "`correct` of TopLabel must be between 0 and 1. "
        "Got 2.0 in row 0. "
        "Try 1 for right and 0 for wrong.",
    ),
    "a confidence in percent": (
        lambda: TopLabel([90.0], [1]),
        BadValueError,
        "`confidence` of TopLabel must be between 0 and 1. "
        "Got 90.0 in row 0. "
        "Try dividing percentages by 100.",
    ),
    "fewer verdicts than confidences": (
        lambda: TopLabel([0.9, 0.8], [1]),
        BadValueError,
        "`correct` of TopLabel must be of length 2, like the confidence. "
        "Got length 1. "
        "Try aligning both by the same row order.",
    ),
    "a column for confidence": (
        lambda: TopLabel([[0.9]], [1]),
        BadValueError,
        "`confidence` of TopLabel must be one number a row. "
        "Got shape (1, 1). "
        "Try `.ravel()` for a single column.",
    ),
    "text for what was right": (
        lambda: TopLabel([0.9], ["yes"]),
        BadTypeError,
        "`correct` of TopLabel must be an array of real numbers. "
        "Got text (dtype <U3). "
        "Try `.astype(float)` once every entry is a real number.",
    ),
    "a standard deviation of 0": (
        lambda: Normal([1.0], [0.0]),
        BadValueError,
        "`std` of Normal must be above 0. Got 0.0 in row 0. Try a floor, say 1e-6.",
    ),
    "a negative standard deviation of a second target": (
        lambda: Normal([[1.0, 2.0]], [[1.0, -1.0]]),
        BadValueError,
        "`std` of Normal must be above 0. Got -1.0 in row 0, column 1. Try a floor, say 1e-6.",
    ),
    "fewer standard deviations than means": (
        lambda: Normal([1.0, 2.0], [1.0]),
        BadValueError,
        "`std` of Normal must be of the mean's shape (2,). "
        "Got shape (1,). "
        "Try np.broadcast_to(std, mean.shape).",
    ),
    "one standard deviation for all": (
        lambda: Normal([1.0, 2.0], 1.0),
        BadTypeError,
        "`std` of Normal must be an array with one entry a row. "
        "Got a single float. "
        "Try a list, a NumPy array, or `.toarray()` for a sparse matrix.",
    ),
    "means of three dimensions": (
        lambda: Normal(np.zeros((1, 1, 1)), np.ones((1, 1, 1))),
        BadValueError,
        "`mean` of Normal must be rows, or rows x targets. "
        "Got shape (1, 1, 1). "
        "Try `.ravel()` for a single column.",
    ),
    "one draw a row without a second dimension": (
        lambda: Samples([1.0, 2.0]),
        BadValueError,
        "`array` of Samples must be rows x draws (x targets). "
        "Got shape (2,). "
        "Try `.reshape(-1, 1)` for a single column.",
    ),
    "a NaN among draws": (
        lambda: Samples([[1.0, nan]]),
        BadValueError,
        "`array` of Samples must be finite. "
        "Got nan in row 0, column 1. "
        "Try leaving such rows out, or mending what made them.",
    ),
    "quantiles that cross": (
        lambda: Quantiles([[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]], [0.1, 0.5, 0.9]),
        BadValueError,
        "`array` of Quantiles must be non-decreasing along its levels. "
        "Got 2.0 in row 1, column 2. "
        "Try np.sort(array, axis=1).",
    ),
    "levels that fall": (
        lambda: Quantiles([[1.0, 2.0]], [0.9, 0.1]),
        BadValueError,
        "`levels` of Quantiles must be rising between 0 and 1. "
        "Got [0.9, 0.1]. "
        "Try levels such as [0.1, 0.5, 0.9].",
    ),
    "a level of 0": (
        lambda: Quantiles([[1.0, 2.0]], [0.0, 0.5]),
        BadValueError,
        "`levels` of Quantiles must be rising between 0 and 1. "
        "Got [0.0, 0.5]. "
        "Try levels such as [0.1, 0.5, 0.9].",
    ),
    "levels in percent": (
        lambda: Quantiles([[1.0, 2.0]], [5, 95]),
        BadValueError,
        "`levels` of Quantiles must be rising between 0 and 1. "
        "Got [5.0, 95.0]. "
        "Try levels such as [0.1, 0.5, 0.9].",
    ),
    "fewer levels than quantiles": (
        lambda: Quantiles([[1.0, 2.0, 3.0]], [0.1, 0.9]),
        BadValueError,
        "`levels` of Quantiles must be as many as the columns (3). Got 2. Try one level a column.",
    ),
    "plain logits for a metric": (
        lambda: log_loss([0, 1], [[2.0, -1.0], [0.0, 3.0]]),
        BadValueError,
        "`outputs` of log_loss must be probabilities, 0 or above. "
        "Got -1.0 in row 0, column 1. "
        "Try `Logits` if these are logits, or `.clip(0)` if rounding made it negative.",
    ),
    "plain rows that do not sum to 1": (
        lambda: accuracy([0, 1], [[0.5, 0.5], [0.5, 0.6]]),
        BadValueError,
        "`outputs` of accuracy must be rows that sum to 1. "
        "Got a sum of 1.1 in row 1. "
        "Try `Logits` if these are logits, or dividing each row by its sum.",
    ),
    "a plain array of three dimensions": (
        lambda: log_loss([0, 1], np.full((2, 2, 2), 0.5)),
        BadValueError,
        "`outputs` of log_loss must be rows x classes. "
        "Got shape (2, 2, 2). "
        "Try Members.of([pass_1, pass_2, ...]) for passes, or `.reshape(-1, n_classes)` "
        "for pixels.",
    ),
    "plain text for a metric": (
        lambda: brier_score([0], ["a"]),
        BadTypeError,
        "`outputs` of brier_score must be an array of real numbers. "
        "Got text (dtype <U1). "
        "Try `.astype(float)` once every entry is a real number.",
    ),
    "a label of -1": (
        lambda: log_loss([0, -1], HALVES),
        BadValueError,
        "`y_true` of log_loss must be column numbers from 0 to 1. "
        "Got -1 in row 1. "
        "Try NaN or None for a missing label.",
    ),
    "a label beyond the last class": (
        lambda: log_loss([0, 2], HALVES),
        BadValueError,
        "`y_true` of log_loss must be column numbers from 0 to 1. "
        "Got 2 in row 1. "
        "Try a column for every class (there are 2), or labels that start at 0.",
    ),
    "a label between two classes": (
        lambda: log_loss([0, 1.5], HALVES),
        BadValueError,
        "`y_true` of log_loss must be column numbers from 0 to 1. "
        "Got 1.5 in row 1. "
        "Try rows x 2 for label probabilities.",
    ),
    "labels as text without names": (
        lambda: log_loss(["cat", "dog"], HALVES),
        BadValueError,
        "`y_true` of log_loss must be column numbers from 0 to 1. "
        "Got 'cat' in row 0. "
        "Try naming the classes: `classes=[...]`, in files the columns that `*` stands for.",
    ),
    "labels as text and None without names": (
        lambda: log_loss(np.array(["cat", None], object), HALVES),
        BadValueError,
        "`y_true` of log_loss must be column numbers from 0 to 1. "
        "Got 'cat' in row 0. "
        "Try naming the classes: `classes=[...]`, in files the columns that `*` stands for.",
    ),
    "a label that is no name of a class": (
        lambda: log_loss(["cat", "fox"], PETS),
        BadValueError,
        "`y_true` of log_loss must be one of the classes ('cat', 'dog'). "
        "Got 'fox' in row 1. "
        "Try labels spelt as the classes are, or None for a missing one.",
    ),
    "a column number though classes have names": (
        lambda: log_loss([0, 1], PETS),
        BadValueError,
        "`y_true` of log_loss must be one of the classes ('cat', 'dog'). "
        "Got 0 in row 0. "
        "Try labels spelt as the classes are, or None for a missing one.",
    ),
    "more labels than rows": (
        lambda: log_loss([0, 1, 1], HALVES),
        BadValueError,
        "`y_true` of log_loss must be of length 2, like the outputs. "
        "Got length 3. "
        "Try aligning both by the same row order.",
    ),
    "labels as a column": (
        lambda: log_loss([[0], [1]], HALVES),
        BadValueError,
        "`y_true` of log_loss must be one label a row, or rows x 2 label probabilities. "
        "Got shape (2, 1). "
        "Try `.ravel()` for a single column.",
    ),
    "no labels": (
        lambda: log_loss(None, HALVES),
        BadTypeError,
        "`y_true` of log_loss must be the labels. "
        "Got None. "
        "Try the true labels, or TopLabel(confidence, correct).",
    ),
    "no labels for an audit": (
        lambda: audit(None, HALVES),
        BadTypeError,
        "`y_true` of audit must be the labels. "
        "Got None. "
        "Try the true labels, or TopLabel(confidence, correct).",
    ),
    "no labels for a calibrator": (
        lambda: TemperatureScaling().fit(HALVES),
        BadTypeError,
        "`y` of TemperatureScaling must be the labels. "
        "Got None. "
        "Try the true labels; of shards, a column of them.",
    ),
    "a label beyond the last class for a calibrator": (
        lambda: TemperatureScaling().fit(HALVES, [0, 2]),
        BadValueError,
        "`y` of TemperatureScaling must be column numbers from 0 to 1. "
        "Got 2 in row 1. "
        "Try a column for every class (there are 2), or labels that start at 0.",
    ),
    "top labels for a calibrator": (
        lambda: TemperatureScaling().fit(SURE, [0, 1]),
        BadTypeError,
        "`outputs` of TemperatureScaling must be Logits, Probabilities, Members or an array of "
        "probabilities. "
        "Got TopLabel. "
        "Try the whole distribution over classes, or VarianceScaling for a regression.",
    ),
    "no targets for a calibrator": (
        lambda: VarianceScaling().fit(Normal([0.0], [1.0])),
        BadTypeError,
        "`y` of VarianceScaling must be the targets. Got None. Try one number a row.",
    ),
    "a single label": (
        lambda: accuracy(1, HALVES),
        BadTypeError,
        "`y_true` of accuracy must be an array with one entry a row. "
        "Got a single int. "
        "Try a list, a NumPy array, or `.toarray()` for a sparse matrix.",
    ),
    "label probabilities that do not sum to 1": (
        lambda: log_loss([[0.5, 0.5], [0.5, 0.9]], HALVES),
        BadValueError,
        "`y_true` of log_loss must be rows that sum to 1. "
        "Got a sum of 1.4 in row 1. "
        "Try dividing each row by its sum.",
    ),
    "a negative label probability": (
        lambda: log_loss([[0.5, 0.5], [1.5, -0.5]], HALVES),
        BadValueError,
        "`y_true` of log_loss must be probabilities, 0 or above. "
        "Got -0.5 in row 1, column 1. "
        "Try `.clip(0)` if rounding made it negative.",
    ),
    "a label probability that is half missing": (
        lambda: log_loss([[0.5, 0.5], [nan, 1.0]], HALVES),
        BadValueError,
        "`y_true` of log_loss must be finite. "
        "Got nan in row 1, column 0. "
        "Try leaving such rows out, or mending what made them.",
    ),
    "labels that are all missing": (
        lambda: log_loss([None, None], HALVES),
        EmptyStateError,
        "log_loss needs at least 1 labeled row of positive weight. "
        "Got 0. "
        "Try rows whose labels are not all missing and whose weights are not all 0.",
    ),
    "labels that are all missing for a calibration error": (
        lambda: expected_calibration_error([nan, nan], HALVES),
        EmptyStateError,
        "Calibration error needs at least 1 labeled row of positive weight. "
        "Got 0. "
        "Try rows whose labels are not all missing and whose weights are not all 0.",
    ),
    "no rows": (
        lambda: accuracy([], np.empty((0, 2))),
        EmptyStateError,
        "accuracy needs at least 1 labeled row of positive weight. "
        "Got 0. "
        "Try rows whose labels are not all missing and whose weights are not all 0.",
    ),
    "labels beside top labels": (
        lambda: accuracy([0, 1], SURE),
        BadValueError,
        "`y_true` of accuracy must be None beside TopLabel. "
        "Got list. "
        "Try `y_true=None`: TopLabel knows what was right.",
    ),
    "log loss of top labels": (
        lambda: log_loss(None, SURE),
        BadTypeError,
        "`outputs` of log_loss must be a whole distribution. "
        "Got TopLabel. "
        "Try Logits or Probabilities: a top label says nothing of the other classes.",
    ),
    "Brier score of top labels": (
        lambda: brier_score(None, SURE),
        BadTypeError,
        "`outputs` of brier_score must be a whole distribution. "
        "Got TopLabel. "
        "Try Logits or Probabilities: a top label says nothing of the other classes.",
    ),
    "a negative weight": (
        lambda: log_loss([0, 1], HALVES, sample_weight=[1.0, -1.0]),
        BadValueError,
        "`sample_weight` of log_loss must be 0 or above. "
        "Got -1.0 in row 1. "
        "Try leaving the row out with a weight of 0.",
    ),
    "a NaN for a weight": (
        lambda: log_loss([0, 1], HALVES, sample_weight=[nan, 1.0]),
        BadValueError,
        "`sample_weight` of log_loss must be finite. "
        "Got nan in row 0. "
        "Try leaving such rows out, or mending what made them.",
    ),
    "an infinite weight": (
        lambda: log_loss([0, 1], HALVES, sample_weight=[inf, 1.0]),
        BadValueError,
        "`sample_weight` of log_loss must be finite. "
        "Got inf in row 0. "
        "Try leaving such rows out, or mending what made them.",
    ),
    "weights that are all 0": (
        lambda: log_loss([0, 1], HALVES, sample_weight=[0, 0]),
        EmptyStateError,
        "log_loss needs at least 1 labeled row of positive weight. "
        "Got 0. "
        "Try rows whose labels are not all missing and whose weights are not all 0.",
    ),
    "weights that are all 0 for a calibration error": (
        lambda: expected_calibration_error([0, 1], HALVES, sample_weight=[0, 0]),
        EmptyStateError,
        "Calibration error needs at least 1 labeled row of positive weight. "
        "Got 0. "
        "Try rows whose labels are not all missing and whose weights are not all 0.",
    ),
    "fewer weights than rows": (
        lambda: log_loss([0, 1], HALVES, sample_weight=[1.0]),
        BadValueError,
        "`sample_weight` of log_loss must be of length 2, like the outputs. "
        "Got length 1. "
        "Try aligning both by the same row order.",
    ),
    "weights as a column": (
        lambda: log_loss([0, 1], HALVES, sample_weight=[[1.0], [1.0]]),
        BadValueError,
        "`sample_weight` of log_loss must be one number a row. "
        "Got shape (2, 1). "
        "Try `.ravel()` for a single column.",
    ),
    "a regression for log loss": (
        lambda: log_loss([0.0], Normal([1.0], [1.0])),
        BadTypeError,
        "`outputs` of a classification metric must be Logits, Probabilities, Members, "
        "TopLabel or an array of probabilities. "
        "Got Normal. "
        "Try one of those, or a regression metric.",
    ),
    "no bins": (
        lambda: expected_calibration_error([0, 1], HALVES, n_bins=0),
        BadValueError,
        "`n_bins` of expected_calibration_error must be a whole number from 1 to 100,000. "
        "Got 0. "
        "Try n_bins=15.",
    ),
    "a bin and a half": (
        lambda: audit([0, 1], HALVES, n_bins=1.5),  # type: ignore[call-overload]
        BadValueError,
        "`n_bins` of audit must be a whole number from 1 to 100,000. Got 1.5. Try n_bins=15.",
    ),
    "True for the number of bins": (
        lambda: reliability_curve([0, 1], HALVES, n_bins=True),
        BadValueError,
        "`n_bins` of reliability_curve must be a whole number from 1 to 100,000. "
        "Got True. "
        "Try n_bins=15.",
    ),
    "an unknown strategy": (
        lambda: expected_calibration_error([0, 1], HALVES, strategy="equal"),  # type: ignore[arg-type]
        BadValueError,
        "`strategy` of expected_calibration_error must be 'uniform' or 'quantile'. "
        "Got 'equal'. "
        "Try strategy='uniform'.",
    ),
    "an unknown norm": (
        lambda: expected_calibration_error([0, 1], HALVES, norm="l3"),  # type: ignore[arg-type]
        BadValueError,
        "`norm` of expected_calibration_error must be 'l1', 'l2' or 'max'. "
        "Got 'l3'. "
        "Try norm='l1'.",
    ),
    "features of other rows": (
        lambda: Batch.of([0, 1], HALVES, features=np.zeros((3, 2))),
        BadValueError,
        "`features` of Batch must be of length 2, like the outputs. "
        "Got length 3. "
        "Try aligning both by the same row order.",
    ),
    "features without a second dimension": (
        lambda: Batch.of([0, 1], HALVES, features=[1.0, 2.0]),
        BadValueError,
        "`features` of Batch must be rows x dimensions. "
        "Got shape (2,). "
        "Try `.reshape(-1, 1)` for a single column.",
    ),
    "a NaN among features": (
        lambda: Batch.of([0, 1], HALVES, features=[[1.0], [nan]]),
        BadValueError,
        "`features` of Batch must be finite. "
        "Got nan in row 1, column 0. "
        "Try leaving such rows out, or mending what made them.",
    ),
    "fewer ids than rows": (
        lambda: Batch.of([0, 1], HALVES, ids=["a"]),
        BadValueError,
        "`ids` of Batch must be of length 2, like the outputs. "
        "Got length 1. "
        "Try aligning both by the same row order.",
    ),
    "groups as a matrix": (
        lambda: Batch.of([0, 1], HALVES, groups=HALVES),
        BadValueError,
        "`groups` of Batch must be one value a row. "
        "Got shape (2, 2). "
        "Try `.ravel()` for a single column.",
    ),
    "an infinite target": (
        lambda: Batch.of([inf], Normal([1.0], [1.0])),
        BadValueError,
        "`y_true` of Batch must be finite. "
        "Got inf in row 0. "
        "Try leaving such rows out, or mending what made them.",
    ),
    "text for targets": (
        lambda: Batch.of(["a"], Normal([1.0], [1.0])),
        BadTypeError,
        "`y_true` of Batch must be an array of real numbers. "
        "Got text (dtype <U1). "
        "Try `.astype(float)` once every entry is a real number.",
    ),
    "no threads": (
        lambda: with_threads("0"),
        BadValueError,
        "`DUBITO_THREADS` of the environment must be a whole number from 1 up. "
        "Got '0'. "
        "Try DUBITO_THREADS=2.",
    ),
    "threads in words": (
        lambda: with_threads("two"),
        BadValueError,
        "`DUBITO_THREADS` of the environment must be a whole number from 1 up. "
        "Got 'two'. "
        "Try DUBITO_THREADS=2.",
    ),
    "states of different bins": (
        lambda: add_states_of([0.0, 1.0], [0.0, 0.5, 1.0]),
        StateMismatchError,
        "States can be added only when their edges are the same. "
        "Got [0.0, 1.0] and [0.0, 0.5, 1.0]. "
        "Try making both with the same settings.",
    ),
}


@pytest.mark.filterwarnings("ignore::dubito.errors.MissingLabelsWarning")
@pytest.mark.parametrize(("call", "error", "message"), CASES.values(), ids=list(CASES))
def test_bad_input(call: Callable[[], Any], error: type[DubitoError], message: str) -> None:
    with pytest.raises(DubitoError) as caught:
        call()
    assert type(caught.value) is error
    assert isinstance(caught.value, ValueError | TypeError | ImportError)
    assert str(caught.value) == message
