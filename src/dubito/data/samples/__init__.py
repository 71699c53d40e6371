"""Predictions that ship with the package."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, final

import numpy as np
import numpy.typing as npt

__all__ = [
    "FashionMNISTSample",
    "FindingsSample",
    "PaymentsSample",
    "load_fashion_mnist",
    "load_payments",
    "make_findings",
    "make_questions",
]

Float32Array = npt.NDArray[np.float32]
Float16Array = npt.NDArray[np.float16]
LabelArray = npt.NDArray[np.int8]
HOSPITALS = ("city", "east", "harbor", "north", "west")
QUANTILES = {"0.05": -1.645, "0.5": 0.0, "0.95": 1.645}
FINDINGS = {  # with log odds of their frequency
    "atelectasis": -1.0,
    "cardiomegaly": -1.5,
    "consolidation": -2.0,
    "edema": -1.2,
    "effusion": -0.6,
    "fracture": -3.2,
    "nodule": -2.6,
    "pneumothorax": -3.5,
}


@final
@dataclass(frozen=True, slots=True, eq=False)
class FashionMNISTSample:
    """Outputs of an over-confident LeNet5, trained on eight classes of Fashion-MNIST.

    Logits are `features @ weight.T + bias`, up to the rounding of features to float16.

    Attributes
    ----------
    validation_logits, validation_labels, validation_features : array
        One half of the official test split, without Bag and Ankle boot: logits, indices of the true
        classes, and activations before the last layer.
    test_logits, test_labels, test_features : array
        The other half.
    unseen_classes_logits, unseen_classes_features : array
        Bag and Ankle boot, which the network was not trained on (out-of-distribution).
    digits_logits, digits_features : array
        MNIST digits (out-of-distribution).
    corrupted_logits, corrupted_labels, corrupted_features : array
        The first rows of `test`, 250 each with noise, blur, low contrast and occlusion.
    weight, bias : array
        The last layer, of shape (n_classes, n_features) and (n_classes,).
    classes : tuple of str
        The names of the eight classes.
    meta : dict
        How the sample was made, and the licenses of the images.
    """

    validation_logits: Float32Array
    validation_labels: LabelArray
    validation_features: Float16Array
    test_logits: Float32Array
    test_labels: LabelArray
    test_features: Float16Array
    unseen_classes_logits: Float32Array
    unseen_classes_features: Float16Array
    digits_logits: Float32Array
    digits_features: Float16Array
    corrupted_logits: Float32Array
    corrupted_labels: LabelArray
    corrupted_features: Float16Array
    weight: Float32Array
    bias: Float32Array
    classes: tuple[str, ...]
    meta: Mapping[str, Any]

    def __repr__(self) -> str:
        names = ("validation", "test", "unseen_classes", "digits", "corrupted")
        rows = (f"{len(getattr(self, f'{name}_logits'))} {name}" for name in names)
        return f"FashionMNISTSample({', '.join(rows)} rows, {len(self.classes)} classes)"


def load_fashion_mnist() -> FashionMNISTSample:
    """Return predictions for Fashion-MNIST and three out-of-distribution sets.

    Returns
    -------
    FashionMNISTSample
        Logits, features and labels.

    Examples
    --------
    >>> from dubito.data import load_fashion_mnist
    >>> sample = load_fashion_mnist()
    >>> sample.validation_logits.shape
    (4000, 8)
    >>> sample.classes[:3]
    ('T-shirt/top', 'Trouser', 'Pullover')
    """
    arrays = _stored("fashion_mnist.npz")
    classes = tuple(arrays.pop("classes").tolist())
    meta = json.loads(arrays.pop("meta").item())
    return FashionMNISTSample(**arrays, classes=classes, meta=meta)


@final
@dataclass(frozen=True, slots=True, eq=False)
class PaymentsSample:
    """Fraud probabilities of over-fitted boosted trees for simulated payments, 3 % of them fraud.

    Attributes
    ----------
    labeled, new : dict of str to array
        The columns of 15,000 payments whose outcome is known, and of 5,000 later ones: `id`,
        `amount`, `region`, the model's probability `p` that it is fraud, and `label`, which is
        "legit" or "fraud".
    meta : dict
        How the sample was made.
    """

    labeled: Mapping[str, npt.NDArray[Any]]
    new: Mapping[str, npt.NDArray[Any]]
    meta: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"PaymentsSample({len(self.labeled['p'])} labeled, {len(self.new['p'])} new rows)"


def load_payments() -> PaymentsSample:
    """Return the probabilities of a fraud model, a binary classifier of rare events.

    Returns
    -------
    PaymentsSample
        Columns of labeled and of new payments.

    Examples
    --------
    >>> from dubito.data import load_payments
    >>> sample = load_payments()
    >>> is_fraud = sample.labeled["label"] == "fraud"
    >>> print(f"frequency {is_fraud.mean():.3f}, mean probability {sample.labeled['p'].mean():.3f}")
    frequency 0.032, mean probability 0.015
    """
    arrays = _stored("payments.npz")
    regions, meta = arrays.pop("regions"), json.loads(arrays.pop("meta").item())
    parts = {}
    first = 1
    for part in ("labeled", "new"):
        n_rows = arrays[f"{part}_p"].size
        parts[part] = {
            "id": np.arange(first, first + n_rows),
            "amount": arrays[f"{part}_amount"].astype(np.float64).round(2),
            "region": regions[arrays[f"{part}_region"]],
            "p": arrays[f"{part}_p"],
            "label": np.where(arrays[f"{part}_label"], "fraud", "legit"),
        }
        first += n_rows
    return PaymentsSample(**parts, meta=meta)


@final
@dataclass(frozen=True, slots=True, eq=False)
class FindingsSample:
    """Probabilities of a simulated multi-label model of chest X-rays, which is over-confident.

    Attributes
    ----------
    labeled, new : dict of str to array
        The columns of labeled images, and of later ones: `id`, the `site`, for each finding the
        model's probability `p_NAME`, and for labeled images `y_NAME`: 0, 1, "u" where the
        radiologist was uncertain, None where the report does not mention it.
    names : tuple of str
        The findings.
    """

    labeled: Mapping[str, npt.NDArray[Any]]
    new: Mapping[str, npt.NDArray[Any]]
    names: tuple[str, ...]

    def __repr__(self) -> str:
        rows = f"{len(self.labeled['id'])} labeled, {len(self.new['id'])} new rows"
        return f"FindingsSample({rows}, {len(self.names)} findings)"


def make_findings(
    n_labeled: int = 4000, n_new: int = 1000, random_state: int = 0
) -> FindingsSample:
    """Generate the outputs of a multi-label model, and labels of which some are uncertain.

    Findings depend on each other. The probabilities are too extreme, more so for rare findings, and
    those of edema are too high at one of two sites.

    Parameters
    ----------
    n_labeled, n_new : int
        The numbers of rows.
    random_state : int, default=0
        The seed.

    Returns
    -------
    FindingsSample
        Columns of labeled and of new rows.

    Examples
    --------
    >>> from dubito.data import make_findings
    >>> sample = make_findings(100, 10)
    >>> sample, sample.names[:2]
    (FindingsSample(100 labeled, 10 new rows, 8 findings), ('atelectasis', 'cardiomegaly'))
    """
    n_rows, n_findings, rng = n_labeled + n_new, len(FINDINGS), np.random.default_rng(random_state)
    severity, own = rng.normal(size=(n_rows, 1)), rng.normal(size=(n_rows, n_findings))
    odds = np.array([*FINDINGS.values()]) + 1.2 * severity + 1.2 * own
    y = rng.random(odds.shape) < 1 / (1 + np.exp(-odds))
    site = np.where(rng.random(n_rows) < 0.4, "south", "north")
    seen = np.linspace(1.3, 2.2, n_findings) * (odds + rng.normal(0, 0.6, odds.shape))
    seen[:, list(FINDINGS).index("edema")] += 1.2 * (site == "south")
    p = (1 / (1 + np.exp(-seen))).round(5).clip(1e-5, 1 - 1e-5)
    marks = np.where(y, "1", "0").astype(object)
    marks[rng.random(p.shape) < 0.4 / (1 + odds**2) ** 2] = "u"
    marks[rng.random(p.shape) < 0.08] = None
    rows: dict[str, npt.NDArray[Any]] = {"id": np.arange(1, n_rows + 1), "site": site}
    rows |= {f"p_{name}": column for name, column in zip(FINDINGS, p.T, strict=True)}
    read = {f"y_{name}": column for name, column in zip(FINDINGS, marks.T, strict=True)}
    labeled = {name: column[:n_labeled] for name, column in (rows | read).items()}
    new = {name: column[n_labeled:] for name, column in rows.items()}
    return FindingsSample(labeled, new, tuple(FINDINGS))


def make_forecasts(n_weeks: int = 80, random_state: int = 0) -> dict[str, npt.NDArray[Any]]:
    """Generate weekly forecasts of admissions to five hospitals, whose intervals are too narrow.

    Parameters
    ----------
    n_weeks : int, default=80
        The number of weeks in which forecasts were made.
    random_state : int, default=0
        The seed.

    Returns
    -------
    dict of str to array
        `date`, `hospital`, the `horizon` in weeks, quantiles `q_0.05`, `q_0.5` and `q_0.95`, and
        `admissions`, None where still unknown.

    Examples
    --------
    >>> from dubito.data import make_forecasts
    >>> make_forecasts(10)["horizon"][:4].tolist()
    [0, 1, 2, 0]
    """
    rng = np.random.default_rng(random_state)
    shape = n_weeks, len(HOSPITALS), 3
    week, place, horizon = np.indices(shape).reshape(3, -1)
    season = 1.4 + np.sin(2 * np.pi * np.arange(n_weeks + 3) / 52)
    surge = np.exp(np.cumsum(rng.normal(0, 0.06, n_weeks + 3)))
    noise = np.exp(rng.normal(0, 0.12, (n_weeks + 3, len(HOSPITALS))))
    truth = rng.poisson(40 * np.arange(1, 6) * (season * surge)[:, np.newaxis] * noise)
    seen = truth[np.maximum(week - 1, 0), place] * season[week + horizon]
    median = (seen + 5) / season[np.maximum(week - 1, 0)]
    spread = 0.1 + 0.02 * horizon
    dates = np.datetime64("2024-10-05") + 7 * week
    rows: dict[str, npt.NDArray[Any]] = {
        "date": dates.astype(str),
        "hospital": np.array(HOSPITALS)[place],
        "horizon": horizon,
    }
    rows |= {f"q_{q}": (median * np.exp(z * spread)).round(1) for q, z in QUANTILES.items()}
    admissions = truth[week + horizon, place].astype(object)
    admissions[week + horizon + 1 >= n_weeks] = None
    return {**rows, "admissions": admissions}


def make_questions(
    n_rows: int = 600, n_new: int = 400, random_state: int = 0
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]:
    """Generate the answers of two over-confident language models to the same questions.

    Parameters
    ----------
    n_rows, n_new : int, default=600 and 400
        The number of questions with known answers, and of new ones.
    random_state : int, default=0
        The seed.

    Returns
    -------
    three dicts of str to array
        Questions with the confidence `conf_`, the correctness `ok_` and the price `cost_` of
        the `small` and the `large` model; new questions, answered by the small one; and what the
        large model's confidence in those would be.

    Examples
    --------
    >>> from dubito.data import make_questions
    >>> labeled, new, large = make_questions(n_new=3)
    >>> list(new), large["id"].tolist()
    (['id', 'conf_small', 'cost_large'], [601, 602, 603])
    """
    rng = np.random.default_rng(random_state)
    n = n_rows + n_new
    ease, price = rng.normal(size=n), np.round(0.12 * rng.lognormal(0, 0.3, n), 4)
    rows: dict[str, npt.NDArray[Any]] = {"id": np.arange(1, n + 1)}
    for name, skill, noise in (("small", 1.0, 0.3), ("large", 3.5, 0.8)):
        odds = 2 * ease + skill + noise * rng.normal(size=n)
        rows[f"conf_{name}"] = np.round(1 / (1 + np.exp(-1.5 * odds - 1)), 4)
        rows[f"ok_{name}"] = (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(np.int64)
    rows["cost_large"] = price
    labeled = {name: column[:n_rows] for name, column in rows.items()}
    later = {name: column[n_rows:] for name, column in rows.items()}
    new = {name: later[name] for name in ("id", "conf_small", "cost_large")}
    return labeled, new, {name: later[name] for name in ("id", "conf_large")}


def _stored(name: str) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a file of this package."""
    path = resources.files(__name__).joinpath(name)
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return dict(stored)
