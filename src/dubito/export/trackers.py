"""Audits in experiment trackers: flat metrics, and the report and the policy as files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from math import isfinite
from os import PathLike, fspath
from typing import Any, Literal

from dubito.decide.policy.document import BasePolicy
from dubito.errors import BadTypeError, BadValueError, MissingExtraError
from dubito.serialization.documents import read_text

Tracker = Callable[[dict[str, float], dict[str, str]], Any]
MAX_NAME = 250  # characters of a metric's name in MLflow


def log_audit(
    audit: Any,
    to: Literal["mlflow"] | Tracker = "mlflow",
    *,
    report: Any = None,
    policy: Any = None,
    prefix: str = "",
) -> Any:
    """Log an audit to an experiment tracker: its figures as metrics, the rest as files.

    The names of metrics are letters, digits and underscores, which every tracker accepts:
    "expected_calibration_error", "expected_calibration_error_low", "group_north_accuracy". Files
    are "audit.json", "audit.txt", and if given "report.html" and "policy.json".

    Parameters
    ----------
    audit : Audit, MultiLabelAudit or RegressionAudit
        What `audit` returned.
    to : "mlflow" or callable, default="mlflow"
        MLflow's active run, or a new one if none is active. Or a function of two dicts: metrics by
        name, and the text of files by name.
    report : Report, str or path, optional
        What `make_report` returned, or the HTML file that `dubito audit -o` wrote.
    policy : Policy, MultiLabelPolicy, RegressionPolicy, Cascade, str or path, optional
        A policy, or its file.
    prefix : str, optional
        What the names of all metrics start with, such as "validation"; files are then in a folder
        of that name. What is neither a letter nor a digit becomes an underscore.

    Returns
    -------
    str or Any
        The ID of the MLflow run, or what the function returned.

    Examples
    --------
    >>> from dubito.export import log_audit
    >>> from dubito import audit
    >>> def show(metrics, files):
    ...     print(metrics["validation_accuracy"], [*files])
    >>> log_audit(audit([0, 1, 1], [[0.8, 0.2], [0.1, 0.9], [0.4, 0.6]]), show, prefix="validation")
    1.0 ['validation/audit.json', 'validation/audit.txt']
    """
    if not isinstance(getattr(audit, "figures", None), dict):
        rule, fix = "must be an audit", "Pass audit(y_true, outputs)"
        raise BadTypeError("audit", "log_audit", rule, type(audit).__name__, fix)
    metrics = _metric_names(audit.figures, prefix)
    files = {
        "audit.json": json.dumps(audit.to_dict(), indent=1, ensure_ascii=False),
        "audit.txt": f"{audit}\n",
    }
    if report is not None:
        html = getattr(report, "html", None)
        files["report.html"] = html if isinstance(html, str) else _text_of(report, "report")
    if policy is not None:
        is_policy = isinstance(policy, BasePolicy)
        files["policy.json"] = policy.to_json() if is_policy else _text_of(policy, "policy")
    if folder := _plain_name(prefix):
        files = {f"{folder}/{name}": text for name, text in files.items()}
    if callable(to):
        return to(metrics, files)
    if to != "mlflow":
        rule, fix = "must be 'mlflow' or a function of metrics and files", "Pass to='mlflow'"
        raise BadValueError("to", "log_audit", rule, repr(to), fix)
    return _log_to_mlflow(metrics, files)


def _metric_names(figures: Mapping[str, float], prefix: str = "") -> dict[str, float]:
    """Return finite figures under names of letters, digits and underscores, each of them once.

    >>> _metric_names({"ece.low": 0.1, "group.a b.ece": 0.2, "group.a-b.ece": 0.3}, "test")
    {'test_ece_low': 0.1, 'test_group_a_b_ece': 0.2, 'test_group_a_b_ece_2': 0.3}
    """
    found: dict[str, float] = {}
    for name, value in figures.items():
        if not isfinite(value):
            continue
        plain = _plain_name(f"{prefix}.{name}" if prefix else name)
        plain = f"_{plain}" if plain[:1].isdigit() else plain
        unique, number = plain[:MAX_NAME], 1
        while unique in found:
            number += 1
            unique = f"{plain[: MAX_NAME - 10]}_{number}"
        found[unique] = float(value)
    return found


def _plain_name(name: str) -> str:
    """Return a name of letters, digits and underscores.

    >>> _plain_name("../x y")
    'x_y'
    """
    return re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")


def _text_of(path: str | PathLike[str], argument: str) -> str:
    """Return the text of a file."""
    if not isinstance(path, str | PathLike):
        rule, fix = f"must be a {argument}, or the path of its file", f"Pass {argument}=None"
        raise BadTypeError(argument, "log_audit", rule, type(path).__name__, fix)
    return read_text(fspath(path))


def _log_to_mlflow(metrics: dict[str, float], files: dict[str, str]) -> str:
    """Log to the active run, or to a new one that is ended."""
    try:
        import mlflow
    except ImportError as error:
        raise MissingExtraError("log_audit(to='mlflow')", "mlflow") from error
    active = mlflow.active_run()
    run = active or mlflow.start_run()
    try:
        mlflow.log_metrics(metrics)
        for name, text in files.items():
            mlflow.log_text(text, name)
    finally:
        if active is None:
            mlflow.end_run()
    return str(run.info.run_id)
