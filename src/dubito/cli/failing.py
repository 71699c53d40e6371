"""`--fail-on 'ece>0.03'`: figures that must not be, for checks that run by themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches

from dubito.errors import BadValueError

__all__ = ["findings"]

SHORT = {
    "ece": "expected_calibration_error",
    "mce": "maximum_calibration_error",
    "brier": "brier_score",
    "nll": "negative_log_likelihood",
    "aurc": "area_under_risk_coverage",
    "augrc": "area_under_generalized_risk_coverage",
}
RULE = re.compile(r"\s*([\w/]+)\s*(<=|>=|<|>)\s*([-+.\deE]+)\s*")


def findings(rules: list[str], figures: Mapping[str, float]) -> list[str]:
    """Return in words which rules are met by the figures: what should not be.

    >>> findings(["ece>0.03"], {"expected_calibration_error": 0.05})
    ['expected_calibration_error is 0.05, which is > 0.03']
    """
    told = []
    for rule in rules:
        name, sign, limit = parsed(rule)
        if name not in figures:
            [near] = get_close_matches(name, [*figures, *SHORT], 1, 0) or ["ece"]
            rule, fix = "about a figure that --json shows", f"'{near}{sign}{limit:g}'"
            raise BadValueError("--fail-on", "dubito", rule, name, fix)
        value = figures[name]
        is_beyond = value > limit if ">" in sign else value < limit
        if is_beyond or ("=" in sign and value == limit):
            told.append(f"{name} is {value:.6g}, which is {sign} {limit:g}")
    return told


def parsed(rule: str) -> tuple[str, str, float]:
    """Return the figure, the sign and the number of a rule."""
    match = RULE.fullmatch(rule)
    try:
        if match is not None:
            return SHORT.get(match[1], match[1]), match[2], float(match[3])
    except ValueError:
        pass
    form = "a figure, one of < <= > >=, and a number"
    raise BadValueError("--fail-on", "dubito", form, repr(rule), "'ece>0.03'")
