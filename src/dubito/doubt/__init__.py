"""What the model does not know, and why: scores where larger always means more doubt."""

from dubito.doubt.activation import (
    SoftmaxParts,
    familiarity,
    feature_norm,
    mental_model,
    softmax_by_parts,
    unfamiliarity,
    weak_activation,
)
from dubito.doubt.conformal_intervals import ConformalIntervals, Intervals
from dubito.doubt.conformal_sets import ConformalSets, PredictionSets
from dubito.doubt.densities import ClassDensities
from dubito.doubt.diagnosis import Diagnosis, diagnose
from dubito.doubt.joint_density import JointDensity
from dubito.doubt.mahalanobis import MahalanobisDistance
from dubito.doubt.members import SplitDoubt, split_doubt
from dubito.doubt.neighbours import NeighbourDistance
from dubito.doubt.region import OutlierRegion
from dubito.doubt.softmax import (
    OutputDoubts,
    energy,
    entropy,
    least_confidence,
    narrow_margin,
    output_doubts,
)
from dubito.doubt.virtual_logit import VirtualLogit
from dubito.doubt.voting import Vote, vote

__all__ = [
    "ClassDensities",
    "ConformalIntervals",
    "ConformalSets",
    "Diagnosis",
    "Intervals",
    "JointDensity",
    "MahalanobisDistance",
    "NeighbourDistance",
    "OutlierRegion",
    "OutputDoubts",
    "PredictionSets",
    "SoftmaxParts",
    "SplitDoubt",
    "VirtualLogit",
    "Vote",
    "diagnose",
    "energy",
    "entropy",
    "familiarity",
    "feature_norm",
    "least_confidence",
    "mental_model",
    "narrow_margin",
    "output_doubts",
    "softmax_by_parts",
    "split_doubt",
    "unfamiliarity",
    "vote",
    "weak_activation",
]
