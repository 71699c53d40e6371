"""What a policy file must contain: every entry, nothing else, and parts that fit together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dubito.arrays import FloatArray, freeze
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.decide.costs import CostMatrix
from dubito.decide.policy.file import AS_WRITTEN, as_regular
from dubito.decide.policy.gate import OODGate, RiskBound
from dubito.decide.policy.report import PolicyReport, as_count, as_text, shortened
from dubito.errors import BadTypeError, BadValueError

KIND, FORMAT = "dubito policy", 1  # goes up when what older versions wrote needs another reader
PARTS = (
    "provenance",
    "report",
    "costs",
    "train_prior",
    "deploy_prior",
    "risk",
    "feature_names",
    "calibrator",
    "ood",
)
PROVENANCE = {
    "dubito": as_text,
    "created": as_text,
    "fingerprint": as_text,
    "n_rows": as_count,
    "calibrator": as_text,
    "random_state": as_count,
}
CALLER = "Policy.load"


def checked_parts(values: Any) -> dict[str, Any]:
    """Return the parts of a policy from what `to_dict` gave, or raise what is wrong with them."""
    _require_kind(values)
    costs = _as_table(values["costs"])
    calibrator = BaseCalibrator.from_dict(values["calibrator"])
    if calibrator.n_classes_ != costs.n_classes:
        raise _wrong("calibrator", f"of {costs.n_classes} classes", f"{calibrator.n_classes_}")
    if None not in (calibrator.classes_, costs.classes) and calibrator.classes_ != costs.classes:
        names = shortened(costs.classes)
        raise _wrong("calibrator", f"of the classes {names}", shortened(calibrator.classes_))
    train = _as_shares(values["train_prior"], costs.n_classes, "train_prior")
    if not (train > 0).all():
        raise _wrong("train_prior", "above 0 for every class", "0")
    deploy = values["deploy_prior"]
    gate = None if values["ood"] is None else OODGate.from_dict(values["ood"])
    bound = None if values["risk"] is None else RiskBound.from_dict(values["risk"])
    if costs.reject is None and (gate is not None or bound is not None):
        raise _wrong("costs", "with an action that hands rows over", "none of that kind")
    return {
        "provenance": _as_provenance(values["provenance"]),
        "report": PolicyReport.from_dict(values["report"]),
        "costs": costs,
        "train_prior": train,
        "deploy_prior": None
        if deploy is None
        else _as_shares(deploy, costs.n_classes, "deploy_prior"),
        "risk": bound,
        "feature_names": _as_names(values["feature_names"], gate),
        "calibrator": calibrator,
        "ood": gate,
    }


def _require_kind(values: Any) -> None:
    """Raise unless it is a policy of a format that is known, with all its parts."""
    kind = values.get("kind") if isinstance(values, Mapping) else None
    if not isinstance(kind, str) or kind != KIND:
        rule = "what `Policy.to_dict` gave"
        raise BadTypeError("values", CALLER, rule, f"a {type(values).__name__}", AS_WRITTEN)
    version = values.get("format")
    if type(version) is not int or version != FORMAT:
        got = f"format {shortened(version)}"
        fix = "the version of dubito that wrote it"
        raise BadValueError("values", CALLER, f"of format {FORMAT}", got, fix)
    odd = sorted({*map(str, values)} ^ {"kind", "format", *PARTS})
    if odd:
        raise _wrong("values", f"of the parts {', '.join(PARTS)}", f"{odd[0]!r} missing or unknown")


def _as_table(values: Any) -> CostMatrix:
    """Return costs, whose numbers are numbers: NumPy would read texts and fill memory with them."""
    plain = dict(values) if isinstance(values, Mapping) else values
    if isinstance(plain, dict):
        for name in ("costs", "rate"):
            if plain.get(name) is not None and as_regular(plain[name]) is None:
                raise _wrong(f"costs.{name}", "lists of numbers", shortened(plain[name]))
        plain = {name: _unwrapped(entry) for name, entry in plain.items()}
    costs = CostMatrix.from_dict(plain)
    if costs.n_actions == 1 and costs.reject is not None:
        raise _wrong("costs", "with an action that decides rows", "one that hands them over alone")
    return costs


def _unwrapped(value: Any) -> Any:
    """Return arrays as lists."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def _wrong(argument: str, rule: str, got: str) -> BadValueError:
    """Return the error of a part that is not as it must be."""
    return BadValueError(argument, CALLER, rule, got, AS_WRITTEN)


def _as_shares(values: Any, n_classes: int, argument: str) -> FloatArray:
    """Return one share a class; together they are 1."""
    found = as_regular(values)
    shares = np.empty(0) if found is None else found.astype(np.float64)
    is_fine = shares.shape == (n_classes,) and bool(((shares >= 0) & (shares <= 1)).all())
    if not (is_fine and abs(shares.sum() - 1) < 1e-9):
        raise _wrong(argument, f"{n_classes} shares that sum to 1", shortened(values))
    return freeze(shares)


def _as_provenance(values: Any) -> dict[str, Any]:
    """Return where the policy is from."""
    if not isinstance(values, Mapping) or set(values) - {"edited"} != set(PROVENANCE):
        raise _wrong("provenance", f"of the entries {', '.join(PROVENANCE)}", shortened(values))
    if not isinstance(values.get("edited", ""), str):
        raise _wrong("provenance.edited", "a text", shortened(values["edited"]))
    for name, read in PROVENANCE.items():
        try:
            read(values[name])
        except (TypeError, ValueError) as error:
            kind = "a text" if read is as_text else "a whole number from 0 up"
            raise _wrong(f"provenance.{name}", kind, shortened(values[name])) from error
    return dict(values)


def _as_names(values: Any, gate: OODGate | None) -> tuple[str, ...] | None:
    """Return the names of features, as many as the gate looks at."""
    if values is None:
        return None
    is_texts = isinstance(values, list) and all(isinstance(name, str) for name in values)
    if not is_texts or (gate is not None and gate.n_features not in (None, len(values))):
        raise _wrong("feature_names", "a text for each feature", shortened(values))
    return tuple(values)
