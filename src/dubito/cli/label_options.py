"""The options of a policy for several labels per row: costs, or the F-beta score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from dubito.errors import BadValueError

if TYPE_CHECKING:
    from dubito.decide import FBeta, LabelCosts

COSTS = ("false_positive", "false_negative", "review", "review_row")


@final
@dataclass(frozen=True, slots=True)
class LabelOptions:
    """The options that only several labels per row have; None for those that were not given."""

    false_positive: float | None = None
    false_negative: float | None = None
    review: float | None = None
    review_row: float | None = None
    f_beta: float | None = None
    average: str | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The options that were given, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def require_none(self) -> None:
        """Raise if one is given for classes."""
        for name, value in self.given.items():
            rule, fix = "requires --multilabel", "Pass --multilabel 'p_*', or leave it out"
            raise BadValueError("", _option(name), rule, f"{value} alone", fix)

    def read(self, file: Path | None) -> dict[str, LabelCosts | FBeta]:
        """Return the costs, or the score, as arguments of a fit; `file` has costs by label."""
        from dubito.decide import FBeta, LabelCosts
        from dubito.decide.multilabel.f_beta import AVERAGES

        costs = {name: value for name, value in self.given.items() if name in COSTS}
        for name, value in costs.items():
            if not 0 < value < float("inf"):
                fix = f"Pass {_option(name)} 0.5"
                raise BadValueError("", _option(name), "must be above 0", f"{value:g}", fix)
        if self.average is not None and self.average not in AVERAGES:
            rule, fix = (
                f"must be {', '.join(AVERAGES[:-1])} or {AVERAGES[-1]}",
                "Pass --average macro",
            )
            raise BadValueError("", "--average", rule, self.average, fix)
        if self.f_beta is None:
            if self.average is not None:
                rule, fix = "requires --f-beta", "Pass --f-beta 1"
                raise BadValueError("", "--average", rule, f"{self.average} alone", fix)
            found = LabelCosts(**costs) if file is None else LabelCosts.from_csv(file, **costs)
            return {"costs": found}
        others = [_option(name) for name in costs] + ([] if file is None else ["--costs"])
        if others:
            rule, fix = "cannot be combined with costs", f"Leave out {' and '.join(others)}"
            raise BadValueError("", "--f-beta", rule, " and ".join(others), fix)
        return {"f_beta": FBeta(self.f_beta, self.average or "macro")}


def require_unused(values: Mapping[str, Any], kind: str = "with --multilabel") -> None:
    """Raise for an option that has no meaning for one kind of outputs."""
    for name, value in values.items():
        if value not in (None, [], ()):
            shown = ", ".join(value) if isinstance(value, list | tuple) else f"{value}"
            rule, fix = f"cannot be used {kind}", "Leave it out"
            raise BadValueError("", name, rule, shown, fix)


def _option(name: str) -> str:
    """Return an option as it is typed.

    >>> _option("f_beta")
    '--f-beta'
    """
    return f"--{name.replace('_', '-')}"
