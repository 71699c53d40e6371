"""`--fail-on`: limits of metrics, of groups and of changes, and the sentences on crossed ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import final

from dubito.cli.options import first_few
from dubito.cli.reading import nearest_first
from dubito.errors import BadValueError

OPTION = "--fail-on"
ABBREVIATIONS = {
    "ece": "expected_calibration_error",
    "mce": "maximum_calibration_error",
    "top_label_ece": "top_label_expected_calibration_error",
    "top_label_mce": "top_label_maximum_calibration_error",
    "brier": "brier_score",
    "nll": "negative_log_likelihood",
    "aurc": "area_under_risk_coverage",
    "augrc": "area_under_generalized_risk_coverage",
    "fpr": "false_positive_rate",
    "fnr": "false_negative_rate",
    "cost": "mean_cost",
}
LIMIT = re.compile(
    r"\s*(abs\()?\s*((?:(?:group|label)\..+\.)?[\w.*]+)\s*(?(1)\))\s*(<=|>=|<|>)\s*([-+.\deE]+)\s*"
)
QUOTED = re.compile(r"(['\"])(.*)\1\.(.+)")
SIGNED = {"gap": "predicted - observed", "top_label_gap": "confidence - accuracy"}
CALIBRATION = re.compile(
    r"((?:.*\.)?)(positive_)?((?:gap|calibration_p_value|(?:gap|expected)_if_calibrated|"
    r"(?:expected|maximum|debiased|smooth)_calibration_error)(?:\.low|\.high)?)"
)


@final
@dataclass(frozen=True, slots=True)
class Limit:
    """A metric, or its size, and what it may not be: above or below a number.

    >>> Limit.of("abs(group.*.gap) > 0.02")
    Limit(text='abs(group.*.gap) > 0.02', name='group.*.gap', sign='>', number=0.02, is_size=True)
    """

    text: str
    name: str
    sign: str
    number: float
    is_size: bool

    @classmethod
    def of(cls, text: str) -> Limit:
        """Parse a limit, or raise."""
        match = LIMIT.fullmatch(text)
        with suppress(ValueError):
            if match is not None:
                return cls(text.strip(), match[2], match[3], float(match[4]), match[1] is not None)
        rule = "must be a metric or abs(metric), one of < <= > >=, and a number"
        raise BadValueError("", OPTION, rule, repr(text), "Pass e.g. --fail-on 'ece>0.03'")

    def is_crossed_by(self, value: float) -> bool:
        """Return whether a value, or a size, is beyond the limit."""
        is_beyond = value > self.number if ">" in self.sign else value < self.number
        return is_beyond or ("=" in self.sign and value == self.number)


def crossed_limits(
    limits: Iterable[str],
    metrics: Mapping[str, float],
    groups: Iterable[str] = (),
    too_few_rows: Iterable[str] = (),
    subject: str = "",
) -> list[str]:
    """Return a sentence for each limit that a metric crosses.

    Metrics of a group are called `group.NAME.metric`, and those of one of several labels
    `label.NAME.metric`; `*` stands for all labels, for all groups that have enough rows, or for all
    metrics after a dot. `subject` starts what is said of a metric.

    >>> crossed_limits(["ece>0.03"], {"expected_calibration_error": 0.05})
    ["--fail-on 'ece>0.03': expected_calibration_error is 0.05"]
    """
    crossed = []
    for limit in map(Limit.of, limits):
        for name in _names_of(limit.name, metrics, list(groups), set(too_few_rows)):
            shown, value = name, metrics[name]
            if limit.is_size:
                shown, value = f"abs({name})", abs(value)
            if limit.is_crossed_by(value):
                crossed.append(f"{OPTION} {limit.text!r}: {subject}{shown} is {value:.6g}")
    return crossed


def as_shown(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of two classes by the names that the output gives them first.

    The calibration metrics are those of the positive class, if there is one; those of the more
    probable class start with `top_label_`.

    >>> as_shown({"gap": 0.1, "positive_gap": 0.2, "group.a.positive_gap.low": 0.3})
    {'top_label_gap': 0.1, 'gap': 0.2, 'group.a.gap.low': 0.3}
    """
    if not any(name.startswith(("positive_", "change.positive_")) for name in metrics):
        return dict(metrics)
    shown = {}
    for name, value in metrics.items():
        match = CALIBRATION.fullmatch(name)
        if match is not None:
            name = f"{match[1]}{'' if match[2] else 'top_label_'}{match[3]}"
        shown[name] = value
    return shown


def limit_warnings(
    limits: Iterable[str],
    too_few_rows: Iterable[str] = (),
    metrics: Mapping[str, float] = MappingProxyType({}),
) -> list[str]:
    """Return warnings: a signed metric limited in one direction; groups and labels left out.

    >>> limit_warnings(["gap>0.01", "gap<-0.01"]), len(limit_warnings(["gap>0.01"]))
    ([], 1)
    """
    from dubito.formatting import quantity

    sides: dict[str, dict[str, str]] = {}
    parsed, few = list(map(Limit.of, limits)), sorted(too_few_rows)
    for limit in parsed:
        if limit.name.split(".")[-1] in SIGNED and not limit.is_size:
            sides.setdefault(limit.name, {})[limit.sign[0]] = limit.text
    warnings = [
        f"{OPTION} {text!r}: {name} is signed ({SIGNED[name.split('.')[-1]]}), so that the other "
        f"direction passes. Use abs({name}) for both."
        for name, known in sides.items()
        if len(known) == 1
        for text in known.values()
    ]
    if few and any(limit.name.startswith("group.*.") for limit in parsed):
        left_out = f"{quantity(len(few), 'group')} of too few rows"
        warnings.append(f"{OPTION} 'group.*' leaves out {left_out}: {first_few(few, 5)}.")
    for limit in parsed:
        if limit.name.startswith("label.*."):
            metric = limit.name.removeprefix("label.*.")
            labels = _labels(metrics)
            without = [one for one in labels if not _find(metric, f"label.{one}.", metrics)]
            if without:
                left_out = f"{quantity(len(without), 'label')} without {metric}"
                shown = first_few(without, 5)
                warnings.append(f"{OPTION} {limit.text!r} leaves out {left_out}: {shown}.")
    return warnings


def _names_of(
    text: str, metrics: Mapping[str, float], groups: list[str], too_few_rows: set[str]
) -> list[str]:
    """Return the names of the metrics that a limit is about, or raise an error that lists them."""
    if not text.startswith("group."):
        return _known(text, "", metrics)
    rest = text.removeprefix("group.")
    quoted = QUOTED.fullmatch(rest)
    if quoted is not None:
        name, metric = quoted[2], quoted[3]
    elif rest.startswith("*.") and groups:
        prefixes = [f"group.{one}." for one in groups if one not in too_few_rows]
        # A group without positives has no false negative rate; unknown is what no group has.
        found = [name for one in prefixes for name in _find(rest[2:], one, metrics)]
        return found or [name for one in prefixes for name in _known(rest[2:], one, metrics)]
    else:
        fitting = [one for one in groups if rest.startswith(f"{one}.")]
        name = max(fitting, key=len, default=rest.rpartition(".")[0])
        metric = rest[len(name) + 1 :]
    if name not in groups:
        rule = "must name a group, or all by group.*"
        fix = f"Use one of {', '.join(groups)}" if groups else "Pass --group COLUMN as well"
        raise BadValueError("", OPTION, rule, repr(name), fix)
    return _known(metric, f"group.{name}.", metrics)


def _known(metric: str, prefix: str, metrics: Mapping[str, float]) -> list[str]:
    """Return the full names of a metric, or raise an error that lists those that exist."""
    found = _find(metric, prefix, metrics)
    if found:
        return found
    own = {name.removeprefix(prefix) for name in metrics if name.startswith(prefix)}
    labels = _labels(own)
    if metric.startswith("label.") and not metric.startswith("label.*."):
        rule, known = "must name a label and a metric", first_few(sorted(labels), 5)
        fix = f"Use e.g. label.*.ece, or one of the labels {known}"
        for label in labels:
            last = metric.removeprefix(f"label.{label}.")
            if last != metric and _find(f"label.*.{last}", prefix, metrics):
                rule = f"must be defined for the label: {label} has no {last}"
                fix = f"Leave it out, or use label.*.{last} for all that have it"
        raise BadValueError("", OPTION, rule, repr(prefix + metric), fix)
    if _find(f"macro.{metric}", prefix, metrics):
        rule = "must say of which labels"
        fix = f"Use {prefix}macro.{metric} or {prefix}label.*.{metric}"
        raise BadValueError("", OPTION, rule, repr(prefix + metric), fix)
    if not prefix:
        own = {name for name in own if not name.startswith(("group.", "label.", "disparity.label"))}
    own = {name for name in own if not name.endswith((".low", ".high")) and name[:2] != "n_"}
    short = {full: one for one, full in ABBREVIATIONS.items()}
    names = (".".join(short.get(part, part) for part in name.split(".")) for name in own)
    choices = nearest_first(metric, sorted(names))
    rule, fix = "must name a metric", f"Use one of {', '.join(choices)}"
    raise BadValueError("", OPTION, rule, repr(prefix + metric), fix)


def _labels(names: Iterable[str]) -> list[str]:
    """Return the labels of metrics such as `label.NAME.base_rate`."""
    return [name[6:-10] for name in names if name[:6] == "label." and name[-10:] == ".base_rate"]


def _find(metric: str, prefix: str, metrics: Mapping[str, float]) -> list[str]:
    """Return the full name of a metric, or those of all metrics after a dot."""
    if metric.endswith(".*"):
        return [name for name in metrics if name.startswith(prefix + metric[:-1])]
    parts = metric.split(".")
    n_last = 2 if parts[-1] in ("low", "high") else 1
    short = [ABBREVIATIONS.get(part, part) for part in parts]
    last = ".".join(short[-n_last:])
    if parts[-n_last - 2 : -n_last] == ["label", "*"]:
        start = f"{prefix}{'.'.join(parts[: -n_last - 1])}."
        return [name for name in metrics if name.startswith(start) and name.endswith(f".{last}")]
    by_end = ".".join([*parts[:-n_last], last])  # a label may be named as an abbreviation
    names = (prefix + re.sub(r"['\"]", "", one) for one in (metric, ".".join(short), by_end))
    return [name for name in names if name in metrics][:1]
