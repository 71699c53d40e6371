"""Model outputs: declared, never guessed.

A plain array is probabilities, everywhere; anything else is wrapped in the type that says what it
is. Each type validates its array once and keeps it read-only, in float32 or float64. Changing the
caller's array afterwards changes nothing: arrays of up to 64 MB are copied. Larger ones and
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
    Probabilities,
    TopLabel,
    as_class_matrix,
    as_names,
    as_outputs,
    require_classes,
)
from dubito.outputs.mixtures import NormalMixture, RegressionMembers
from dubito.outputs.multi_label import (
    MultiLabel,
    MultiLabelMembers,
    as_multilabel,
    column_names,
    in_fitted_order,
)
from dubito.outputs.regression import Normal, Quantiles, Samples

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
