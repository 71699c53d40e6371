"""Networks that are trained to doubt: likelihoods, noise and maps for anyone's training loop.

Needs PyTorch, `pip install 'dubito[torch]'`.
"""

from importlib import import_module

from dubito import errors

try:
    import_module("torch")
except ImportError as error:
    raise errors.MissingExtraError("dubito.learn", "torch") from error

from dubito.learn.augment import TestTimeAugmentation, flip_views, identity_view, shift_views
from dubito.learn.bernoulli import Bernoulli
from dubito.learn.categorical import Categorical
from dubito.learn.collect import collect_outputs
from dubito.learn.collected import CollectedOutputs
from dubito.learn.corruptions import CORRUPTIONS, corrupt
from dubito.learn.dropout import MonteCarloDropout
from dubito.learn.ensemble import DeepEnsemble
from dubito.learn.gaussian import Gaussian, HeteroscedasticGaussian
from dubito.learn.label_noise import NoisyLabels, flip_labels
from dubito.learn.laplace import Laplace
from dubito.learn.likelihood import BaseLikelihood
from dubito.learn.modules import CalibrationModule, to_module
from dubito.learn.robust import EarlyLearningRegularization, GeneralizedCrossEntropy
from dubito.learn.segmentation import LogitNoise, UncertaintyMaps, uncertainty_maps
from dubito.learn.soft_labels import smooth_labels, uncertain_labels
from dubito.learn.squared_error import SquaredError
from dubito.learn.uncertainty_aware import UncertaintyAware

__all__ = [
    "BaseLikelihood",
    "Bernoulli",
    "CORRUPTIONS",
    "CalibrationModule",
    "Categorical",
    "CollectedOutputs",
    "DeepEnsemble",
    "EarlyLearningRegularization",
    "Gaussian",
    "GeneralizedCrossEntropy",
    "HeteroscedasticGaussian",
    "Laplace",
    "LogitNoise",
    "MonteCarloDropout",
    "NoisyLabels",
    "SquaredError",
    "TestTimeAugmentation",
    "UncertaintyAware",
    "UncertaintyMaps",
    "collect_outputs",
    "corrupt",
    "flip_labels",
    "flip_views",
    "identity_view",
    "shift_views",
    "smooth_labels",
    "to_module",
    "uncertain_labels",
    "uncertainty_maps",
]
