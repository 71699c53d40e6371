"""Training networks that quantify their uncertainty: losses and modules for your training loop.

Needs PyTorch, `pip install 'dubito[torch]'`.
"""

from importlib import import_module

from dubito import errors

try:
    import_module("torch")
except ImportError as error:
    raise errors.MissingExtraError("dubito.learn", "torch") from error

from dubito.learn.class_likelihoods import (
    Categorical,
    SquaredError,
    UncertaintyAware,
    smooth_labels,
    uncertain_labels,
)
from dubito.learn.collect import CollectedOutputs, collect_outputs
from dubito.learn.corruptions import CORRUPTIONS, corrupt
from dubito.learn.label_noise import (
    EarlyLearningRegularization,
    GeneralizedCrossEntropy,
    NoisyLabels,
    flip_labels,
)
from dubito.learn.likelihoods import (
    BaseLikelihood,
    Bernoulli,
    Gaussian,
    GeneralizedNormal,
    HeteroscedasticGaussian,
    Laplace,
)
from dubito.learn.passes import (
    DeepEnsemble,
    MonteCarloDropout,
    TestTimeAugmentation,
    flip_views,
    identity_view,
    shift_views,
)
from dubito.learn.segmentation import LogitNoise, UncertaintyMaps, uncertainty_maps

__all__ = [
    "BaseLikelihood",
    "Bernoulli",
    "CORRUPTIONS",
    "Categorical",
    "CollectedOutputs",
    "DeepEnsemble",
    "EarlyLearningRegularization",
    "Gaussian",
    "GeneralizedCrossEntropy",
    "GeneralizedNormal",
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
    "uncertain_labels",
    "uncertainty_maps",
]
