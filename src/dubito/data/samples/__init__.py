"""The small real predictions that ship with the package."""

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
    """What an over-confident LeNet5, trained on eight classes of Fashion-MNIST, puts out.

    `validation` and `test` halve the official test split; Bag and Ankle boot, never trained on, are
    `unseen_classes`. `corrupted` are the first rows of `test`, 250 each with noise, blur, low
    contrast, occlusion. Logits are `features @ weight.T + bias`, but for features kept as float16.
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


def load_fashion_mnist() -> FashionMNISTSample:
    """Predictions for Fashion-MNIST and three sets of strangers, with features and labels.

    `meta` says how they were made, and under which licences the images are.

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
