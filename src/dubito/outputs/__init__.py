"""Model outputs: declared, never guessed.

A plain array is probabilities, everywhere; anything else is wrapped in the type that says what it
is. Each type validates its array once and keeps it read-only, in float32 or float64. Changing the
caller's array afterwards changes nothing: arrays of up to 4 MB are copied. Larger ones and
read-only ones, such as memory maps, are shared, so that they take no further memory: leave those
unchanged while you use the outputs.
Functions that are given a plain array only read it while they run.
"""

from dubito.outputs.base import BaseOutputs, unchecked
from dubito.outputs.classification import (
    BaseClassOutputs,
    ClassName,
    Logits,
    Members,
    MultiLabel,
    MultiLabelMembers,
    Probabilities,
    Scores,
    TopLabel,
    as_class_matrix,
    as_multilabel,
    as_names,
    as_outputs,
    column_names,
    in_fitted_order,
    require_classes,
)
from dubito.outputs.regression import Normal, NormalMixture, Quantiles, RegressionMembers, Samples

__all__ = [
    "BaseClassOutputs",
    "BaseOutputs",
    "ClassName",
    "Logits",
    "Members",
    "MultiLabel",
    "MultiLabelMembers",
    "Normal",
    "NormalMixture",
    "Probabilities",
    "Quantiles",
    "RegressionMembers",
    "Samples",
    "Scores",
    "TopLabel",
    "as_class_matrix",
    "as_multilabel",
    "as_names",
    "as_outputs",
    "column_names",
    "in_fitted_order",
    "require_classes",
    "unchecked",
]
