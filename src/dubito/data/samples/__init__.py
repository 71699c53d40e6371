"""Predictions that ship with the package."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, final

import numpy as np
import numpy.typing as npt

__all__ = ["FashionMNISTSample", "PaymentsSample", "load_fashion_mnist", "load_payments"]

Float32Array = npt.NDArray[np.float32]
Float16Array = npt.NDArray[np.float16]
LabelArray = npt.NDArray[np.int8]


@final
@dataclass(frozen=True, slots=True, eq=False)
class FashionMNISTSample:
    """Outputs of an over-confident LeNet5, trained on eight classes of Fashion-MNIST.

    Logits are `features @ weight.T + bias`, up to the rounding of features to float16.

    Attributes
    ----------
    validation_*, test_*
        The halves of the official test split, without Bag and Ankle boot.
    unseen_classes_*
        Bag and Ankle boot, which the network was not trained on (out-of-distribution).
    digits_*
        MNIST digits (out-of-distribution).
    corrupted_*
        The first rows of `test`, 250 each with noise, blur, low contrast and occlusion.
    weight, bias
        The last layer.
    classes
        The names of the eight classes.
    meta
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
    meta
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


def _stored(name: str) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a file of this package."""
    path = resources.files(__name__).joinpath(name)
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return dict(stored)
