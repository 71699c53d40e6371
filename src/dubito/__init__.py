"""dubito: measure, calibrate, doubt, decide.

    >>> import dubito
    >>> report = dubito.audit([0, 1, 1], dubito.Probabilities([0.2, 0.9, 0.6]))
    >>> report.accuracy
    1.0

Names are imported when first used: `import dubito` loads nothing heavy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dubito.calibrate import AutoCalibrator, ConfidenceCalibrator, MultiLabelCalibrator
    from dubito.decide import (
        Cascade,
        CostMatrix,
        ErrorCosts,
        FBeta,
        LabelCosts,
        MultiLabelPolicy,
        Policy,
        RegressionPolicy,
    )
    from dubito.doubt import (
        ConformalClassifier,
        ConformalRegressor,
        OnlineConformal,
        RiskControl,
    )
    from dubito.measure import audit
    from dubito.outputs import (
        Logits,
        Members,
        MultiLabel,
        MultiLabelMembers,
        Normal,
        NormalMixture,
        Probabilities,
        Quantiles,
        RegressionMembers,
        Samples,
        Scores,
        TopLabel,
    )

__version__ = "0.2.0"

__all__ = [
    "AutoCalibrator",
    "Cascade",
    "ConfidenceCalibrator",
    "ConformalClassifier",
    "ConformalRegressor",
    "CostMatrix",
    "ErrorCosts",
    "FBeta",
    "LabelCosts",
    "Logits",
    "Members",
    "MultiLabel",
    "MultiLabelCalibrator",
    "MultiLabelMembers",
    "MultiLabelPolicy",
    "Normal",
    "NormalMixture",
    "OnlineConformal",
    "Policy",
    "Probabilities",
    "Quantiles",
    "RegressionMembers",
    "RegressionPolicy",
    "RiskControl",
    "Samples",
    "Scores",
    "TopLabel",
    "audit",
]

_PACKAGES = (
    "calibrate", "data", "decide", "doubt", "errors", "export", "learn", "measure", "monitor",
    "report", "serve",
)  # fmt: skip
_PACKAGE_OF: dict[str, str] = {
    "AutoCalibrator": "calibrate",
    "Cascade": "decide",
    "ConfidenceCalibrator": "calibrate",
    "ConformalClassifier": "doubt",
    "ConformalRegressor": "doubt",
    "CostMatrix": "decide",
    "ErrorCosts": "decide",
    "FBeta": "decide",
    "LabelCosts": "decide",
    "Logits": "outputs",
    "Members": "outputs",
    "MultiLabel": "outputs",
    "MultiLabelCalibrator": "calibrate",
    "MultiLabelMembers": "outputs",
    "MultiLabelPolicy": "decide",
    "Normal": "outputs",
    "NormalMixture": "outputs",
    "OnlineConformal": "doubt",
    "Policy": "decide",
    "Probabilities": "outputs",
    "Quantiles": "outputs",
    "RegressionMembers": "outputs",
    "RegressionPolicy": "decide",
    "RiskControl": "doubt",
    "Samples": "outputs",
    "Scores": "outputs",
    "TopLabel": "outputs",
    "audit": "measure",
}


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"dubito.{name}")
    if name in _PACKAGE_OF:
        return getattr(import_module(f"dubito.{_PACKAGE_OF[name]}"), name)
    raise AttributeError(f"module 'dubito' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES, "__version__"])
