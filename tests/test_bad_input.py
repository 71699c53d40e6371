"""Every bad input, and the very words its user gets."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy import inf, nan
from scipy import sparse

from dubito import (
    Logits,
    Members,
    MultiLabel,
    Normal,
    Probabilities,
    Quantiles,
    Samples,
    Scores,
    TopLabel,
    audit,
)
from dubito.calibrate import TemperatureScaling, VarianceScaling, cross_validate_calibrator
from dubito.data import Batch, LabelMatrix
from dubito.decide import CostMatrix
from dubito.doubt import JackknifePlusRegressor
from dubito.errors import (
    BadTypeError,
    BadValueError,
    DubitoError,
    EmptyStateError,
    StateMismatchError,
)
from dubito.measure import (
    Audit,
    ReliabilityState,
    accuracy,
    brier_score,
    expected_calibration_error,
    false_positive_rate_at_recall,
    log_loss,
    reliability_curve,
    roc_auc,
)

HALVES = [[0.5, 0.5], [0.5, 0.5]]
PETS = Probabilities(HALVES, classes=["cat", "dog"])
SURE = TopLabel([0.9, 0.8], [True, False])


def with_threads(setting: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUBITO_THREADS", setting)
        Logits(HALVES)


def add_states_of(*edges: list[float]) -> None:
    states = [ReliabilityState.of(Batch.of(None, SURE), np.array(one)) for one in edges]
    states[0] + states[1]


CASES: dict[str, tuple[Callable[[], Any], type[DubitoError], str]] = {
    "labels and outputs swapped": (
        lambda: audit([[0.2, 0.3, 0.5], [0.1, 0.8, 0.1]], [2, 1]),
        BadValueError,
        "audit got its arguments swapped: `y_true` holds probabilities (2 x 3) and `outputs` "
        "holds labels. The order is audit(y_true, outputs).",
    ),
    "one label per row for several": (
        lambda: audit([0, 1], MultiLabel(HALVES)),
        BadValueError,
        "audit: `y_true` must be rows x 2 labels, got shape (2,). Pass one column per label; for "
        "one class per row, use Probabilities(...).",
    ),
    "an audit without labels": (
        lambda: audit([None, None], HALVES),
        EmptyStateError,
        "audit needs at least 1 labeled row of positive weight, got 0. Pass at least one labeled "
        "row with a positive weight.",
    ),
    "a positive class of three": (
        lambda: audit([0], [[0.2, 0.3, 0.5]], pos_label=1),
        BadValueError,
        "audit: `pos_label` needs outputs of 2 classes, got 3 classes. Leave it out.",
    ),
    "answers as text": (
        lambda: TopLabel([0.5, 0.6], ["no", "Yes"]),
        BadTypeError,
        "TopLabel: `correct` must be booleans or numbers, got text such as 'Yes'. Pass "
        "np.asarray(correct) == 'Yes'.",
    ),
    "standard deviations per target": (
        lambda: Normal([[0.0, 1.0]] * 3, [1.0, 2.0]),
        BadValueError,
        "Normal: `std` must have the shape of `mean`, (3, 2), got shape (2,). Pass "
        "np.broadcast_to(std, (3, 2)).",
    ),
    "a ranking of one class": (
        lambda: roc_auc([0, 0], [0.1, 0.2]),
        BadValueError,
        "roc_auc: `y_true` must hold both 0 and 1, got only 0. Add rows of 1, with positive "
        "weight.",
    ),
    "a ranking of three classes": (
        lambda: false_positive_rate_at_recall([0, 2], [0.1, 0.2]),
        BadValueError,
        "false_positive_rate_at_recall: `y_true` must be between 0 and 1, got 2.0 in row 1. Pass 0 "
        "and 1, e.g. y_true == 1.",
    ),
    "costs of errors for other names": (
        lambda: CostMatrix.from_errors(false_positive=1, false_negative=5, classes=["ok", "fraud"]),
        BadValueError,
        "CostMatrix: `pos_label` must be one of the classes ('ok', 'fraud'), got 1. Pass "
        "pos_label='ok' or pos_label='fraud' to from_errors.",
    ),
    "a NaN among logits": (
        lambda: Logits([[0.0, 1.0], [nan, 1.0]]),
        BadValueError,
        "Logits: `array` must be finite, got nan in row 1, column 0. Drop invalid rows, or use "
        "-10000 for a masked class.",
    ),
    "an infinite logit": (
        lambda: Logits([[0.0, inf]]),
        BadValueError,
        "Logits: `array` must be finite, got inf in row 0, column 1. Drop invalid rows, or use "
        "-10000 for a masked class.",
    ),
    "a class masked by -inf": (
        lambda: Logits([[0.0, -inf]]),
        BadValueError,
        "Logits: `array` must be finite, got -inf in row 0, column 1. Drop invalid rows, or use "
        "-10000 for a masked class.",
    ),
    "None for logits": (
        lambda: Logits(None),
        BadTypeError,
        "Logits: `array` must be an array with one entry per row, got None. Pass a list or a "
        "NumPy array, or `.toarray()` of a sparse matrix.",
    ),
    "a single number for logits": (
        lambda: Logits(3.5),
        BadTypeError,
        "Logits: `array` must be an array with one entry per row, got a single float. Pass a "
        "list or a NumPy array, or `.toarray()` of a sparse matrix.",
    ),
    "text for logits": (
        lambda: Logits([["a", "b"]]),
        BadTypeError,
        "Logits: `array` must be an array of real numbers, got text (dtype <U1). Convert it with "
        "`.astype(float)`.",
    ),
    "a file name for logits": (
        lambda: Logits("logits.npy"),
        BadTypeError,
        "Logits: `array` must be an array with one entry per row, got a single str. Pass a list "
        "or a NumPy array, or `.toarray()` of a sparse matrix.",
    ),
    "logits of three dimensions": (
        lambda: Logits(np.zeros((2, 3, 4))),
        BadValueError,
        "Logits: `array` must be rows x classes, got shape (2, 3, 4). Use Members.of([pass_1, "
        "...]) for passes, or `.reshape(-1, n_classes)` for pixels.",
    ),
    "complex logits": (
        lambda: Logits([[1j, 2.0]]),
        BadTypeError,
        "Logits: `array` must be an array of real numbers, got complex numbers (dtype "
        "complex128). Convert it with `.astype(float)`.",
    ),
    "a ragged list": (
        lambda: Logits([[1.0, 2.0], [3.0]]),
        BadValueError,
        "Logits: `array` has rows of different lengths: row 0 has 2, row 1 has 1. Pass rows of "
        "equal length.",
    ),
    "a sparse matrix": (
        lambda: Logits(sparse.csr_matrix(np.eye(2))),
        BadTypeError,
        "Logits: `array` must be an array with one entry per row, got a single csr_matrix. Pass "
        "a list or a NumPy array, or `.toarray()` of a sparse matrix.",
    ),
    "a matrix of booleans": (
        lambda: Logits([[True, False]]),
        BadTypeError,
        "Logits: `array` must be an array of real numbers, got booleans (dtype bool). Convert it "
        "with `.astype(float)`.",
    ),
    "a matrix of objects": (
        lambda: Logits(np.array([[None, 1.0]], object)),
        BadTypeError,
        "Logits: `array` must be an array of real numbers, got objects (dtype object). Convert "
        "it with `.astype(float)`.",
    ),
    "dates for logits": (
        lambda: Logits(np.array(["2020-01-01"], "datetime64[D]")),
        BadTypeError,
        "Logits: `array` must be an array of real numbers, got another type (dtype "
        "datetime64[D]). Convert it with `.astype(float)`.",
    ),
    "no columns": (
        lambda: Logits(np.empty((3, 0))),
        BadValueError,
        "Logits: `array` must be rows x classes, got shape (3, 0). Provide at least one column.",
    ),
    "a masked array": (
        lambda: Logits(np.ma.masked_equal([[1.0, 2.0], [9.0, 1.0]], 9.0)),
        BadValueError,
        "Logits: `array` must not have masked entries, got one in row 1. Drop the masked rows.",
    ),
    "a NaN among probabilities": (
        lambda: Probabilities([[0.5, nan]]),
        BadValueError,
        "Probabilities: `array` must be finite, got nan in row 0, column 1. Drop invalid rows, or "
        "fix what produced them.",
    ),
    "an infinite probability": (
        lambda: Probabilities([[0.5, inf]]),
        BadValueError,
        "Probabilities: `array` must be finite, got inf in row 0, column 1. Drop invalid rows, or "
        "fix what produced them.",
    ),
    "a negative probability": (
        lambda: Probabilities([[0.5, 0.5], [1.5, -0.5]]),
        BadValueError,
        "Probabilities: `array` must be non-negative, got -0.5 in row 1, column "
        "1. Use Logits(...) for logits, or apply `.clip(0)` if rounding made it negative.",
    ),
    "a row that does not sum to 1": (
        lambda: Probabilities([[0.5, 0.5], [0.5, 0.6]]),
        BadValueError,
        "Probabilities: `array` must have rows that sum to 1, got a sum of 1.1 in row 1. Use "
        "Probabilities(array, normalize=True) if rounding changed the sums.",
    ),
    "percentages in two columns": (
        lambda: Probabilities([[20.0, 80.0]]),
        BadValueError,
        "Probabilities: `array` must have rows that sum to 1, got a sum of 100 in row 0. Use "
        "Probabilities(array / 100) for percentages.",
    ),
    "log odds for probabilities": (
        lambda: Probabilities([2.5, -0.5]),
        BadValueError,
        "Probabilities: `array` must be between 0 and 1, got 2.5 in row 0. Use Logits(...) for "
        "logits.",
    ),
    "a NaN among one column of probabilities": (
        lambda: Probabilities([0.5, nan]),
        BadValueError,
        "Probabilities: `array` must be finite, got nan in row 1. Drop invalid rows, or fix what "
        "produced them.",
    ),
    "probabilities of three dimensions": (
        lambda: Probabilities(np.full((2, 2, 2), 0.5)),
        BadValueError,
        "Probabilities: `array` must be rows x classes, got shape (2, 2, 2). Use "
        "Members.of([pass_1, ...]) for passes, or `.reshape(-1, n_classes)` for pixels.",
    ),
    "too many names of classes": (
        lambda: Probabilities(HALVES, classes=["cat", "dog", "fox"]),
        BadValueError,
        "Probabilities: `classes` must have 2 names, one per class, got 3. Give each class a "
        "name of its own, such as ['cat', 'dog'].",
    ),
    "two names of one action": (
        lambda: CostMatrix([[0, 1]], ["approve", "deny"]),
        BadValueError,
        "CostMatrix: `actions` must have 1 name, one per action, got 2. Name each action, such as "
        "['approve', 'deny'].",
    ),
    "one name for the positive class": (
        lambda: Probabilities([0.5], classes=["yes"]),
        BadValueError,
        "Probabilities: `classes` must have 2 names, one per class, got 1. Give each class a "
        "name of its own, such as ['cat', 'dog'].",
    ),
    "the same name twice": (
        lambda: Probabilities(HALVES, classes=["cat", "cat"]),
        BadValueError,
        "Probabilities: `classes` must be distinct, also as text, got 'cat' twice. Give each "
        "class a name of its own, such as ['cat', 'dog'].",
    ),
    "a number and the same as text": (
        lambda: Logits(HALVES, classes=[1, "1"]),
        BadValueError,
        "Logits: `classes` must be distinct, also as text, got 1 and '1'. Give each class a name "
        "of its own, such as ['cat', 'dog'].",
    ),
    "a class of costs that is a number and a text": (
        lambda: CostMatrix.zero_one(["0", 0]),
        BadValueError,
        "CostMatrix: `classes` must be distinct, also as text, got '0' and 0. Name each class "
        "once.",
    ),
    "one row of logits without its axis": (
        lambda: audit([1], Logits([2.0, 0.0, -1.0])),
        BadValueError,
        "audit: `y_true` must have length 3, like the outputs, got length 1. Align both in the "
        "same row order; one dimension is a single column, so pass one row as array[np.newaxis].",
    ),
    "one text for the names": (
        lambda: Probabilities(HALVES, classes="cat"),
        BadTypeError,
        "Probabilities: `classes` must be a list of strings or numbers, one per class, got "
        "'cat'. Give each class a name of its own, such as ['cat', 'dog'].",
    ),
    "a number for the names": (
        lambda: Probabilities(HALVES, classes=2),  # type: ignore[arg-type]
        BadTypeError,
        "Probabilities: `classes` must be a list of strings or numbers, one per class, got int. "
        "Give each class a name of its own, such as ['cat', 'dog'].",
    ),
    "names without an order": (
        lambda: Probabilities(HALVES, classes={"cat"}),
        BadTypeError,
        "Probabilities: `classes` must be a list of strings or numbers, one per class, got "
        "{'cat'}. Give each class a name of its own, such as ['cat', 'dog'].",
    ),
    "a name that is None": (
        lambda: Probabilities(HALVES, classes=["cat", None]),  # type: ignore[list-item]
        BadTypeError,
        "Probabilities: `classes` must be a list of strings or numbers, one per class, got a "
        "NoneType. Give each class a name of its own, such as ['cat', 'dog'].",
    ),
    "one matrix for several passes": (
        lambda: Members(HALVES),
        BadValueError,
        "Members: `array` must be passes x rows x classes, got shape (2, 2). Use "
        "Members.of([pass_1, pass_2, ...]).",
    ),
    "no passes": (
        lambda: Members(np.empty((0, 2, 2))),
        BadValueError,
        "Members: `array` must have at least 1 pass, got 0. Add a pass.",
    ),
    "a pass that does not sum to 1": (
        lambda: Members([HALVES, [[0.5, 0.5], [0.5, 0.7]]]),
        BadValueError,
        "Members: `array[1]` must have rows that sum to 1, got a sum of 1.2 in row 1. Use "
        "Probabilities(array, normalize=True) to divide each row by its sum, or use "
        "MultiLabel(array) if several labels may apply to a row (multilabel).",
    ),
    "a positive class above 1 in a pass": (
        lambda: Members([[[0.5]], [[1.5]]]),
        BadValueError,
        "Members: `array[1]` must be between 0 and 1, got 1.5 in row 0. Use "
        "Members.of([Logits(one), ...]) for logits, or use Probabilities(array / 100) for "
        "percentages.",
    ),
    "passes without columns": (
        lambda: Members(np.empty((2, 3, 0))),
        BadValueError,
        "Members: `array[0]` must be rows x classes, got shape (3, 0). Provide at least one "
        "column.",
    ),
    "certainty of another shape": (
        lambda: Members([HALVES], certainty=[[1.0]]),
        BadValueError,
        "Members: `certainty` must be passes x rows, (1, 2), got shape (1, 1). Pass one number "
        "for each pass and row.",
    ),
    "a NaN among certainties": (
        lambda: Members([HALVES], certainty=[[1.0, nan]]),
        BadValueError,
        "Members: `certainty` must be finite, got nan in row 0, column 1. Drop invalid rows, or "
        "fix what produced them.",
    ),
    "a list of no passes": (
        lambda: Members.of([]),
        BadValueError,
        "Members.of: `passes` must have at least 1 pass, got 0. Add a pass.",
    ),
    "None for passes": (
        lambda: Members.of(None),  # type: ignore[arg-type]
        BadTypeError,
        "Members.of: `passes` must be a list with the outputs of each pass, got NoneType. Use "
        "Members.of([pass_1, pass_2, ...]).",
    ),
    "one wrapper for several passes": (
        lambda: Members.of(Logits(HALVES)),  # type: ignore[arg-type]
        BadTypeError,
        "Members.of: `passes` must be a list with the outputs of each pass, got Logits. Use "
        "Members.of([pass_1, pass_2, ...]).",
    ),
    "passes over different rows": (
        lambda: Members.of([HALVES, HALVES[:1]]),
        BadValueError,
        "Members.of: `passes[1]` must match passes[0] (shape (2, 2), classes None), got shape "
        "(1, 2), classes None. Stack passes over the same rows, with columns in the same order.",
    ),
    "passes with and without names": (
        lambda: Members.of([PETS, HALVES]),
        BadValueError,
        "Members.of: `passes[1]` must match passes[0] (shape (2, 2), classes ('cat', 'dog')), "
        "got shape (2, 2), classes None. Stack passes over the same rows, with columns in the "
        "same order.",
    ),
    "top labels for a pass": (
        lambda: Members.of([SURE]),
        BadTypeError,
        "Members.of: `passes[0]` must be Logits, Probabilities or an array, got TopLabel. Pass "
        "one matrix per pass.",
    ),
    "a plain pass that does not sum to 1": (
        lambda: Members.of([HALVES, [[0.5, 0.9]]]),
        BadValueError,
        "Members.of: `passes[1]` must have rows that sum to 1, got a sum of 1.4 in row 0. Use "
        "Probabilities(array, normalize=True) to divide each row by its sum, or use "
        "MultiLabel(array) if several labels may apply to a row (multilabel).",
    ),
    "labels and probabilities of several labels, exchanged": (
        lambda: audit([[0.25, 0.75]] * 2, MultiLabel([[0, 1], [1, 1]])),
        BadValueError,
        "audit: `y_true` must hold the labels: the outputs are all 0 or 1, like labels, got "
        "probabilities such as 0.25. Exchange labels and outputs.",
    ),
    "labels that are the outputs": (
        lambda: audit([[0.25, 0.75]] * 25, MultiLabel([[0.25, 0.75]] * 25)),
        BadValueError,
        "audit: `y_true` must differ from the outputs, got the same numbers in every row. Pass "
        "the probabilities of the model as outputs, and the true labels.",
    ),
    "logits as probabilities of several labels": (
        lambda: MultiLabel([[0.5, -2.0]]),
        BadValueError,
        "MultiLabel: `array` must be between 0 and 1, got -2.0 in row 0, column 1. Use "
        "MultiLabel.from_logits(array) for logits.",
    ),
    "uncertain labels without a policy": (
        lambda: audit([[1, -1]], MultiLabel([[0.5, 0.5]])),
        BadValueError,
        "audit: `y_true` must be between 0 and 1, got -1 in row 0, column 1. Use NaN or None "
        "for an unknown label, or pass LabelMatrix.of(y, outputs, uncertain='ignore') if -1 or u "
        "marks uncertain ones.",
    ),
    "a log probability as a confidence": (
        lambda: TopLabel([-1.2, 0.5], [1, 0]),
        BadValueError,
        "TopLabel: `confidence` must be between 0 and 1, got -1.2 in row 0. Use Scores(...) for "
        "scores of another range.",
    ),
    "a top label that is right twice": (
        lambda: TopLabel([0.9], [2]),
        BadValueError,
        "TopLabel: `correct` must be between 0 and 1, got 2.0 in row 0. Use 1 for correct and 0 "
        "for wrong.",
    ),
    "a confidence in percent": (
        lambda: TopLabel([90.0], [1]),
        BadValueError,
        "TopLabel: `confidence` must be between 0 and 1, got 90.0 in row 0. Divide percentages "
        "by 100.",
    ),
    "fewer verdicts than confidences": (
        lambda: TopLabel([0.9, 0.8], [1]),
        BadValueError,
        "TopLabel: `correct` must have length 2, like the confidence, got length 1. Align both "
        "in the same row order.",
    ),
    "a column for confidence": (
        lambda: TopLabel([[0.9]], [1]),
        BadValueError,
        "TopLabel: `confidence` must be one number per row, got shape (1, 1). Use `.ravel()` for "
        "a single column.",
    ),
    "text for what was right": (
        lambda: TopLabel([0.9], ["yes"]),
        BadTypeError,
        "TopLabel: `correct` must be booleans or numbers, got text such as 'yes'. Pass "
        "np.asarray(correct) == 'yes'.",
    ),
    "a standard deviation of 0": (
        lambda: Normal([1.0], [0.0]),
        BadValueError,
        "Normal: `std` must be positive, got 0.0 in row 0. Set a floor, such as 1e-6.",
    ),
    "a negative standard deviation of a second target": (
        lambda: Normal([[1.0, 2.0]], [[1.0, -1.0]]),
        BadValueError,
        "Normal: `std` must be positive, got -1.0 in row 0, column 1. Set a floor, such as 1e-6.",
    ),
    "fewer standard deviations than means": (
        lambda: Normal([1.0, 2.0], [1.0]),
        BadValueError,
        "Normal: `std` must have the shape of `mean`, (2,), got shape (1,). Pass "
        "np.broadcast_to(std, (2,)).",
    ),
    "one standard deviation for all": (
        lambda: Normal([1.0, 2.0], 1.0),
        BadTypeError,
        "Normal: `std` must be an array with one entry per row, got a single float. Pass a list "
        "or a NumPy array, or `.toarray()` of a sparse matrix.",
    ),
    "means of three dimensions": (
        lambda: Normal(np.zeros((1, 1, 1)), np.ones((1, 1, 1))),
        BadValueError,
        "Normal: `mean` must be rows, or rows x targets, got shape (1, 1, 1). Use `.ravel()` for "
        "a single column.",
    ),
    "one draw a row without a second dimension": (
        lambda: Samples([1.0, 2.0]),
        BadValueError,
        "Samples: `array` must be rows x draws (x targets), got shape (2,). Use `.reshape(-1, "
        "1)` for a single column.",
    ),
    "a NaN among draws": (
        lambda: Samples([[1.0, nan]]),
        BadValueError,
        "Samples: `array` must be finite, got nan in row 0, column 1. Drop invalid rows, or fix "
        "what produced them.",
    ),
    "quantiles that cross": (
        lambda: Quantiles([[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]], [0.1, 0.5, 0.9]),
        BadValueError,
        "Quantiles: `array` has crossing quantiles in 1 of 2 rows, first in row 1, column 2: 2 at "
        "level 0.9 is below 3 at level 0.5. Pass rearrange=True to sort these rows.",
    ),
    "levels that fall": (
        lambda: Quantiles([[1.0, 2.0]], [0.9, 0.1]),
        BadValueError,
        "Quantiles: `levels` must increase strictly between 0 and 1, got [0.9, 0.1]. Use levels "
        "such as [0.1, 0.5, 0.9].",
    ),
    "a level of 0": (
        lambda: Quantiles([[1.0, 2.0]], [0.0, 0.5]),
        BadValueError,
        "Quantiles: `levels` must increase strictly between 0 and 1, got [0.0, 0.5]. Use levels "
        "such as [0.1, 0.5, 0.9].",
    ),
    "levels in percent": (
        lambda: Quantiles([[1.0, 2.0]], [5, 95]),
        BadValueError,
        "Quantiles: `levels` must increase strictly between 0 and 1, got [5.0, 95.0]. Use levels "
        "such as [0.1, 0.5, 0.9].",
    ),
    "fewer levels than quantiles": (
        lambda: Quantiles([[1.0, 2.0, 3.0]], [0.1, 0.9]),
        BadValueError,
        "Quantiles: `levels` must have one level for each of the 3 columns, got 2. State the "
        "level of every column.",
    ),
    "plain logits for a metric": (
        lambda: log_loss([0, 1], [[2.0, -1.0], [0.0, 3.0]]),
        BadValueError,
        "log_loss: `outputs` must be non-negative, got -1.0 in row 0, column 1. "
        "Use Logits(...) for logits, or apply `.clip(0)` if rounding made it negative.",
    ),
    "plain rows that do not sum to 1": (
        lambda: accuracy([0, 1], [[0.5, 0.5], [0.5, 0.6]]),
        BadValueError,
        "accuracy: `outputs` must have rows that sum to 1, got a sum of 1.1 in row 1. Use "
        "Probabilities(array, normalize=True) if rounding changed the sums.",
    ),
    "a plain array of three dimensions": (
        lambda: log_loss([0, 1], np.full((2, 2, 2), 0.5)),
        BadValueError,
        "log_loss: `outputs` must be rows x classes, got shape (2, 2, 2). Use "
        "Members.of([pass_1, ...]) for passes, or `.reshape(-1, n_classes)` for pixels.",
    ),
    "plain text for a metric": (
        lambda: brier_score([0], ["a"]),
        BadTypeError,
        "brier_score: `outputs` must be an array of real numbers, got text (dtype <U1). Convert "
        "it with `.astype(float)`.",
    ),
    "a label of -1": (
        lambda: log_loss([0, -1], HALVES),
        BadValueError,
        "log_loss: `y_true` must be class indices from 0 to 1, got -1 in row 1. Use NaN or None "
        "for a missing label, or map -1 and 1 to 0 and 1.",
    ),
    "a label beyond the last class": (
        lambda: log_loss([0, 2], HALVES),
        BadValueError,
        "log_loss: `y_true` must be class indices from 0 to 1, got 2 in row 1. Labels start at "
        "0, and outputs need one column per class (there are 2).",
    ),
    "a label between two classes": (
        lambda: log_loss([0, 1.5], HALVES),
        BadValueError,
        "log_loss: `y_true` must be class indices from 0 to 1, got 1.5 in row 1. Pass "
        "integers, or label probabilities as an array of rows x 2 classes.",
    ),
    "labels as text without names": (
        lambda: log_loss(["cat", "dog"], HALVES),
        BadValueError,
        "log_loss: `y_true` must be class indices from 0 to 1, got 'cat' in row 0. Pass "
        "Probabilities(array, classes=[negative, positive]) with the names 'cat' and 'dog': the "
        "second is the one whose probability a single column holds.",
    ),
    "labels as text and None without names": (
        lambda: log_loss(np.array(["cat", None], object), HALVES),
        BadValueError,
        "log_loss: `y_true` must be class indices from 0 to 1, got 'cat' in row 0. Pass "
        "Probabilities(array, classes=[negative, positive]) with the names 'cat', ...: the second "
        "is the one whose probability a single column holds.",
    ),
    "labels as text of a stated positive class": (
        lambda: audit(["ok", "fraud", "ok"], [0.1, 0.9, 0.2], pos_label="fraud"),
        BadValueError,
        "audit: `y_true` must be class indices from 0 to 1, got 'ok' in row 0. Pass "
        "Probabilities(p, classes=['ok', 'fraud']): a single column is the probability of the "
        "second class.",
    ),
    "scores of unequal length": (
        lambda: Scores({"a": [1, 2], "b": [1]}),
        BadValueError,
        "Scores: `b` must have 2 rows, like `a`, got 1. Pass one value per row for each score.",
    ),
    "an array instead of shards": (
        lambda: Audit.of(np.array([0, 1])),  # type: ignore[arg-type]
        BadTypeError,
        "Audit.of needs a Batch or shards, got ndarray. Use audit(y_true, outputs).",
    ),
    "labels of several labels for logits": (
        lambda: LabelMatrix.of([[0, 1]], Logits([[0.0, 1.0]])),  # type: ignore[arg-type]
        BadTypeError,
        "LabelMatrix.of needs MultiLabel outputs, got Logits. Pass MultiLabel(array), rows x "
        "labels.",
    ),
    "a threshold for three classes": (
        lambda: audit([0], [[0.2, 0.3, 0.5]], threshold=0.3),
        BadValueError,
        "audit: `threshold` is for the positive class of two, got 3 classes. Leave it out.",
    ),
    "bins of no positive class": (
        lambda: audit(["cat"], Probabilities([0.5], ["cat", "dog"]), bin_strategy="foo"),
        BadValueError,
        "audit: `bin_strategy` is for the positive class of two, got 2 classes and none of them "
        "positive. Pass pos_label='cat' or pos_label='dog'.",
    ),
    "costs for several labels": (
        lambda: audit([[0, 1]], MultiLabel([[0.2, 0.7]]), pos_label=1),  # type: ignore[call-overload]
        BadValueError,
        "audit: `pos_label` is for one class per row, got MultiLabel. Leave it out.",
    ),
    "a threshold of a regression": (
        lambda: audit([1.0], Normal([0.0], [1.0]), threshold=0.3),  # type: ignore[call-overload]
        BadValueError,
        "audit: `threshold` is for a classifier, got Normal. Leave it out.",
    ),
    "a calibrator that was not made": (
        lambda: cross_validate_calibrator(TemperatureScaling, HALVES, [0, 1]),  # type: ignore[arg-type]
        BadTypeError,
        "cross_validate_calibrator: `calibrator` must be a calibrator of dubito, got the class "
        "TemperatureScaling. Pass an instance: TemperatureScaling().",
    ),
    "no estimator": (
        lambda: JackknifePlusRegressor(None).fit([[0.0], [1.0]], [0.0, 1.0]),
        BadTypeError,
        "JackknifePlusRegressor: `estimator` must be a scikit-learn regressor, got None. Pass "
        "LinearRegression().",
    ),
    "a label that is no name of a class": (
        lambda: log_loss(["cat", "fox"], PETS),
        BadValueError,
        "log_loss: `y_true` must be one of the classes ('cat', 'dog'), got 'fox' in row 1. Spell "
        "labels like the classes, or use None for a missing label.",
    ),
    "a column number though classes have names": (
        lambda: log_loss([0, 1], PETS),
        BadValueError,
        "log_loss: `y_true` must be one of the classes ('cat', 'dog'), got 0 in row 0. Pass "
        "Probabilities(array, classes=[0, 1, ...]), or map the labels to these names.",
    ),
    "more labels than rows": (
        lambda: log_loss([0, 1, 1], HALVES),
        BadValueError,
        "log_loss: `y_true` must have length 2, like the outputs, got length 3. Align both in "
        "the same row order.",
    ),
    "labels as a column": (
        lambda: log_loss([[0], [1]], HALVES),
        BadValueError,
        "log_loss: `y_true` must be one label per row, or rows x 2 label probabilities, got "
        "shape (2, 1). Use `.ravel()` for a single column.",
    ),
    "no labels": (
        lambda: log_loss(None, HALVES),
        BadTypeError,
        "log_loss: `y_true` must be the labels, got None. Pass the labels, or "
        "TopLabel(confidence, correct) as outputs.",
    ),
    "no labels for an audit": (
        lambda: audit(None, HALVES),
        BadTypeError,
        "audit: `y_true` must be the labels, got None. Pass the labels, or TopLabel(confidence, "
        "correct) as outputs.",
    ),
    "outputs in the place of labels": (
        lambda: audit(Logits(HALVES)),
        BadTypeError,
        "audit needs labels and outputs, got Logits alone. Pass y_true first, then the outputs.",
    ),
    "a text as the cost of rejecting": (
        lambda: CostMatrix.zero_one(2).with_reject("10 %"),
        BadValueError,
        "CostMatrix.with_reject: `cost` must be a number or an expression, got '10 %' with an "
        "unexpected '%' after '10'. Use numbers, column names (in backticks if needed), "
        "+ - * / ( ), min and max.",
    ),
    "no labels for a calibrator": (
        lambda: TemperatureScaling().fit(HALVES),
        BadTypeError,
        "TemperatureScaling: `y` must hold the labels, got None. "
        "Pass the labels, or shards with a label column.",
    ),
    "a label beyond the last class for a calibrator": (
        lambda: TemperatureScaling().fit(HALVES, [0, 2]),
        BadValueError,
        "TemperatureScaling: `y` must be class indices from 0 to 1, got 2 in row 1. Labels "
        "start at 0, and outputs need one column per class (there are 2).",
    ),
    "top labels for a calibrator": (
        lambda: TemperatureScaling().fit(SURE, [0, 1]),
        BadTypeError,
        "TemperatureScaling: `outputs` must be Logits, Probabilities, Members or an array of "
        "probabilities, got TopLabel. "
        "Pass the whole distribution over classes, or use VarianceScaling for regression.",
    ),
    "no targets for a calibrator": (
        lambda: VarianceScaling().fit(Normal([0.0], [1.0])),
        BadTypeError,
        "VarianceScaling: `y` must be given, got None. Pass one number per row.",
    ),
    "a single label": (
        lambda: accuracy(1, HALVES),
        BadTypeError,
        "accuracy: `y_true` must be an array with one entry per row, got a single int. Pass a "
        "list or a NumPy array, or `.toarray()` of a sparse matrix.",
    ),
    "label probabilities that do not sum to 1": (
        lambda: log_loss([[0.5, 0.5], [0.5, 0.9]], HALVES),
        BadValueError,
        "log_loss: `y_true` must have rows that sum to 1, got a sum of 1.4 in row 1. Divide each "
        "row by its sum.",
    ),
    "a negative label probability": (
        lambda: log_loss([[0.5, 0.5], [1.5, -0.5]], HALVES),
        BadValueError,
        "log_loss: `y_true` must be non-negative, got -0.5 in row 1, column 1. "
        "Apply `.clip(0)` if rounding made it negative.",
    ),
    "a label probability that is half missing": (
        lambda: log_loss([[0.5, 0.5], [nan, 1.0]], HALVES),
        BadValueError,
        "log_loss: `y_true` must be finite, got nan in row 1, column 0. Drop invalid rows, or fix "
        "what produced them.",
    ),
    "labels that are all missing": (
        lambda: log_loss([None, None], HALVES),
        EmptyStateError,
        "log_loss needs at least 1 labeled row of positive weight, got 0. Pass at least one "
        "labeled row with a positive weight.",
    ),
    "labels that are all missing for a calibration error": (
        lambda: expected_calibration_error([nan, nan], HALVES),
        EmptyStateError,
        "Calibration error needs at least 1 labeled row of positive weight, got 0. Pass at least "
        "one labeled row with a positive weight.",
    ),
    "no rows": (
        lambda: accuracy([], np.empty((0, 2))),
        EmptyStateError,
        "accuracy needs at least 1 labeled row of positive weight, got 0. Pass at least one "
        "labeled row with a positive weight.",
    ),
    "labels beside top labels": (
        lambda: accuracy([0, 1], SURE),
        BadTypeError,
        "accuracy: `y_true` must be None when `outputs` is a TopLabel, which already holds "
        "`correct`, got list. Leave `y_true` out.",
    ),
    "log loss of top labels": (
        lambda: log_loss(None, SURE),
        BadTypeError,
        "log_loss: `outputs` must be class probabilities, got TopLabel. "
        "Use Logits or Probabilities.",
    ),
    "Brier score of top labels": (
        lambda: brier_score(None, SURE),
        BadTypeError,
        "brier_score: `outputs` must be class probabilities, got TopLabel. "
        "Use Logits or Probabilities.",
    ),
    "a negative weight": (
        lambda: log_loss([0, 1], HALVES, sample_weight=[1.0, -1.0]),
        BadValueError,
        "log_loss: `sample_weight` must not be negative, got -1.0 in row 1. "
        "Use a weight of 0 to ignore a row.",
    ),
    "a NaN for a weight": (
        lambda: log_loss([0, 1], HALVES, sample_weight=[nan, 1.0]),
        BadValueError,
        "log_loss: `sample_weight` must be finite, got nan in row 0. Drop invalid rows, or fix "
        "what produced them.",
    ),
    "an infinite weight": (
        lambda: log_loss([0, 1], HALVES, sample_weight=[inf, 1.0]),
        BadValueError,
        "log_loss: `sample_weight` must be finite, got inf in row 0. Drop invalid rows, or fix "
        "what produced them.",
    ),
    "weights that are all 0": (
        lambda: log_loss([0, 1], HALVES, sample_weight=[0, 0]),
        EmptyStateError,
        "log_loss needs at least 1 labeled row of positive weight, got 0. Pass at least one "
        "labeled row with a positive weight.",
    ),
    "weights that are all 0 for a calibration error": (
        lambda: expected_calibration_error([0, 1], HALVES, sample_weight=[0, 0]),
        EmptyStateError,
        "Calibration error needs at least 1 labeled row of positive weight, got 0. Pass at least "
        "one labeled row with a positive weight.",
    ),
    "fewer weights than rows": (
        lambda: log_loss([0, 1], HALVES, sample_weight=[1.0]),
        BadValueError,
        "log_loss: `sample_weight` must have length 2, like the outputs, got length 1. Align "
        "both in the same row order.",
    ),
    "weights as a column": (
        lambda: log_loss([0, 1], HALVES, sample_weight=[[1.0], [1.0]]),
        BadValueError,
        "log_loss: `sample_weight` must be one number per row, got shape (2, 1). Use `.ravel()` "
        "for a single column.",
    ),
    "a regression for log loss": (
        lambda: log_loss([0.0], Normal([1.0], [1.0])),
        BadTypeError,
        "A classification metric needs Logits, Probabilities, Members, TopLabel or an array of "
        "probabilities, got Normal. Pass one of these, or use a regression metric.",
    ),
    "no bins": (
        lambda: expected_calibration_error([0, 1], HALVES, n_bins=0),
        BadValueError,
        "expected_calibration_error: `n_bins` must be an integer from 1 to 100,000, got 0. "
        "Use n_bins=15.",
    ),
    "a bin and a half": (
        lambda: audit([0, 1], HALVES, n_bins=1.5),  # type: ignore[call-overload]
        BadValueError,
        "audit: `n_bins` must be an integer from 1 to 100,000, got 1.5. Use n_bins=15.",
    ),
    "True for the number of bins": (
        lambda: reliability_curve([0, 1], HALVES, n_bins=True),
        BadValueError,
        "reliability_curve: `n_bins` must be an integer from 1 to 100,000, got True. "
        "Use n_bins=15.",
    ),
    "an unknown strategy": (
        lambda: expected_calibration_error([0, 1], HALVES, strategy="equal"),  # type: ignore[arg-type]
        BadValueError,
        "expected_calibration_error: `strategy` must be 'uniform' or 'quantile', got 'equal'. "
        "Use strategy='uniform'.",
    ),
    "an unknown norm": (
        lambda: expected_calibration_error([0, 1], HALVES, norm="l3"),  # type: ignore[arg-type]
        BadValueError,
        "expected_calibration_error: `norm` must be 'l1', 'l2' or 'max', got 'l3'. Use norm='l1'.",
    ),
    "features of other rows": (
        lambda: Batch.of([0, 1], HALVES, features=np.zeros((3, 2))),
        BadValueError,
        "Batch: `features` must have length 2, like the outputs, got length 3. Align both in the "
        "same row order.",
    ),
    "features without a second dimension": (
        lambda: Batch.of([0, 1], HALVES, features=[1.0, 2.0]),
        BadValueError,
        "Batch: `features` must be rows x features, got shape (2,). Use `.reshape(-1, 1)` for a "
        "single column.",
    ),
    "a NaN among features": (
        lambda: Batch.of([0, 1], HALVES, features=[[1.0], [nan]]),
        BadValueError,
        "Batch: `features` must be finite, got nan in row 1, column 0. Drop invalid rows, or fix "
        "what produced them.",
    ),
    "fewer ids than rows": (
        lambda: Batch.of([0, 1], HALVES, ids=["a"]),
        BadValueError,
        "Batch: `ids` must have length 2, like the outputs, got length 1. Align both in the same "
        "row order.",
    ),
    "groups as a matrix": (
        lambda: Batch.of([0, 1], HALVES, groups=HALVES),
        BadValueError,
        "Batch: `groups` must be one value per row, got shape (2, 2). Use `.ravel()` for a "
        "single column.",
    ),
    "an infinite target": (
        lambda: Batch.of([inf], Normal([1.0], [1.0])),
        BadValueError,
        "Batch: `y_true` must be finite, got inf in row 0. Drop invalid rows, or fix what produced "
        "them.",
    ),
    "text for targets": (
        lambda: Batch.of(["a"], Normal([1.0], [1.0])),
        BadTypeError,
        "Batch: `y_true` must be an array of real numbers, got text (dtype <U1). Convert it with "
        "`.astype(float)`.",
    ),
    "no threads": (
        lambda: with_threads("0"),
        BadValueError,
        "The environment: `DUBITO_THREADS` must be a positive integer, got '0'. "
        "Set DUBITO_THREADS=2.",
    ),
    "threads in words": (
        lambda: with_threads("two"),
        BadValueError,
        "The environment: `DUBITO_THREADS` must be a positive integer, got 'two'. "
        "Set DUBITO_THREADS=2.",
    ),
    "states of different bins": (
        lambda: add_states_of([0.0, 1.0], [0.0, 0.5, 1.0]),
        StateMismatchError,
        "States can be added only if their edges are equal, got [0.0, 1.0] and [0.0, 0.5, 1.0]. "
        "Make both with the same settings.",
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
