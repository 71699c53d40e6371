"""Real predictions that ship with the package."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, final

import numpy as np
import numpy.typing as npt

__all__ = ["FashionMNISTSample", "load_fashion_mnist"]

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
    path = resources.files(__name__).joinpath("fashion_mnist.npz")
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        arrays = dict(stored)
    classes = tuple(arrays.pop("classes").tolist())
    meta = json.loads(arrays.pop("meta").item())
    return FashionMNISTSample(**arrays, classes=classes, meta=meta)
