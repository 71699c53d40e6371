"""Networks that are trained to doubt: likelihoods, noise and maps for anyone's training loop.

Needs PyTorch, `pip install 'dubito[torch]'`.
"""

from importlib import import_module

from dubito import errors

try:
    import_module("torch")
except ImportError as error:
    raise errors.MissingExtraError("dubito.learn", "torch") from error

from dubito.learn.augment import TestTimeAugmentation, flips, shifts, unchanged
from dubito.learn.bernoulli import Bernoulli
from dubito.learn.categorical import Categorical
from dubito.learn.collect import collect
from dubito.learn.collected import Collected
from dubito.learn.corruptions import CORRUPTIONS, corrupt
from dubito.learn.dropout import MonteCarloDropout
from dubito.learn.ensemble import DeepEnsemble
from dubito.learn.gaussian import Gaussian, HeteroscedasticGaussian
from dubito.learn.label_noise import FlippedLabels, flip_labels
from dubito.learn.laplace import Laplace
from dubito.learn.likelihood import AbstractLikelihood
from dubito.learn.modules import CalibrationModule, to_module
from dubito.learn.robust import EarlyLearningRegularization, GeneralizedCrossEntropy
from dubito.learn.segmentation import DoubtMaps, LogitNoise, doubt_maps
from dubito.learn.soft_labels import smooth_labels, uncertain_labels
from dubito.learn.squared_error import SquaredError
from dubito.learn.uncertainty_aware import UncertaintyAware

__all__ = [
    "AbstractLikelihood",
    "Bernoulli",
    "CORRUPTIONS",
    "CalibrationModule",
    "Categorical",
    "Collected",
    "DeepEnsemble",
    "DoubtMaps",
    "EarlyLearningRegularization",
    "FlippedLabels",
    "Gaussian",
    "GeneralizedCrossEntropy",
    "HeteroscedasticGaussian",
    "Laplace",
    "LogitNoise",
    "MonteCarloDropout",
    "SquaredError",
    "TestTimeAugmentation",
    "UncertaintyAware",
    "collect",
    "corrupt",
    "doubt_maps",
    "flip_labels",
    "flips",
    "shifts",
    "smooth_labels",
    "to_module",
    "uncertain_labels",
    "unchanged",
]
