"""Model outputs: declared, never guessed.

A plain array is probabilities, everywhere; anything else is wrapped in the type that says what it
is. Each type validates its array once and keeps it in float32 or float64 as a read-only view of
the caller's array.
"""

from dubito.outputs.base import BaseOutputs, unchecked
from dubito.outputs.classification import (
    BaseClassOutputs,
    ClassName,
    Logits,
    Members,
    Probabilities,
    TopLabel,
    as_class_matrix,
    as_outputs,
    require_classes,
)
from dubito.outputs.regression import Normal, Quantiles, Samples

__all__ = [
    "BaseClassOutputs",
    "BaseOutputs",
    "ClassName",
    "Logits",
    "Members",
    "Normal",
    "Probabilities",
    "Quantiles",
    "Samples",
    "TopLabel",
    "as_class_matrix",
    "as_outputs",
    "require_classes",
    "unchecked",
]
