"""Small tables that people write by hand: costs, and how common classes are."""

from __future__ import annotations

import csv
import inspect
from pathlib import Path
from typing import Any, Literal

from dubito import calibrate
from dubito.calibrate import BaseCalibrator, OneVsRest
from dubito.data.labels import names_of
from dubito.decide.costs import CostMatrix
from dubito.errors import BadFileError, BadValueError
from dubito.outputs import BaseClassOutputs, BaseOutputs, ClassName


def read_costs(path: Path, reject: str | None = None) -> CostMatrix:
    """Return the costs of a file: JSON by its ending, else CSV; `reject` names who takes rows."""
    if path.suffix.lower() != ".json":
        return CostMatrix.from_csv(path, reject=reject)
    found = CostMatrix.from_json(path)
    if reject is None:
        return found
    return CostMatrix(found.array, found.actions, found.classes, rate=found.rate, reject=reject)


def calibrator_named(name: str) -> BaseCalibrator | Literal["auto"]:
    """Return the calibrator of a name, with its usual settings."""
    if name == "auto":
        return "auto"
    kind: Any = getattr(calibrate, name) if name in calibrate.__all__ else None
    is_kind = isinstance(kind, type) and issubclass(kind, BaseCalibrator)
    if not is_kind or inspect.isabstract(kind) or kind is OneVsRest:
        known = "TemperatureScaling, VectorScaling, StructuredMatrixScaling, IsotonicCalibration"
        rule, fix = "auto, or a calibrator by its name", f"one of {known}"
        raise BadValueError("--calibrator", "dubito fit", rule, repr(name), fix)
    found: BaseCalibrator = kind()
    return found


def costs_of(
    path: Path | None,
    outputs: BaseOutputs,
    reject_cost: float | None,
    reject: str | None = None,
) -> CostMatrix:
    """Return the costs of a file, or 1 for each error; with an action that hands rows over."""
    if not isinstance(outputs, BaseClassOutputs):
        rule, fix = "beside outputs of classes", "--logits or --probabilities"
        raise BadValueError("--costs", "dubito", rule, type(outputs).__name__, fix)
    if path is None and reject is not None:
        rule, fix = "beside --costs, whose action it names", "--reject-cost 0.3 for one of its own"
        raise BadValueError("--reject-action", "dubito", rule, f"{reject} alone", fix)
    costs = CostMatrix.zero_one(names_of(outputs)) if path is None else read_costs(path, reject)
    return costs if reject_cost is None else costs.with_reject(reject_cost)


def prior_of(path: Path, outputs: BaseClassOutputs) -> dict[ClassName, float]:
    """Return the share of each class, from lines of `class,share`; a first line may be a header."""
    fix = "a line for each class such as cat,0.25"
    try:
        lines = [line for line in csv.reader(path.read_text("utf-8-sig").splitlines()) if line]
    except OSError as error:
        raise BadFileError(str(path), f"{error.strerror}", "the path of a file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadFileError(str(path), f"it is no CSV in UTF-8 ({error})", fix) from error
    known = {str(name): name for name in names_of(outputs)}
    rows = lines[1:] if lines and lines[0][0].strip() not in known else lines
    try:
        shares = {known[name.strip()]: float(share) for name, share in rows}
    except (KeyError, ValueError) as error:
        problem = f"it must have a line with class and share for each of {', '.join(known)}"
        raise BadFileError(str(path), problem, fix) from error
    if len(shares) != len(rows):
        raise BadFileError(str(path), "a class comes twice", fix)
    return shares
