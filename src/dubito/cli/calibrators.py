"""Calibrators in commands: by name, fitted to a regression, and applied to files."""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

from dubito import calibrate
from dubito.calibrate import (
    AutoCalibrator,
    BaseCalibrator,
    ConfidenceCalibrator,
    MultiLabelCalibrator,
    OneVsRest,
    QuantileRecalibration,
    VarianceScaling,
    cross_validate_calibrator,
)
from dubito.calibrate.confidence import ANSWER_COLUMNS, answer_columns
from dubito.calibrate.cross_validation import RegressionEvidence
from dubito.calibrate.multilabel import BASES
from dubito.calibrate.quantile_recalibration import (
    DRAW_LEVELS,
    regression_candidates,
    select_regression_calibrator,
)
from dubito.cli.columns import ColumnOptions, as_fitted, require_classes
from dubito.cli.cost_options import require_unused
from dubito.cli.options import join_choices
from dubito.cli.printing import passes, say, say_json, say_note, say_rearranged, show_table
from dubito.cli.reading import Predictions, Reader, count_rearranged, nearest_first, open_input
from dubito.data import Batch, scan
from dubito.data.columns import BoundColumns
from dubito.data.sink import write_atomic
from dubito.errors import BadFileError, BadTypeError, BadValueError
from dubito.formatting import decimal, percent, quantity
from dubito.measure.regression import moment_matched, moment_matched_shards
from dubito.outputs import BaseOutputs, Normal, Quantiles
from dubito.serialization.documents import read_text

REGRESSION = {one.__name__: one for one in (VarianceScaling, QuantileRecalibration)}
RegressionCalibrator = QuantileRecalibration | VarianceScaling
WORSE = 1.01  # a CRPS after calibration by this factor above that before is warned about
INTERVALS = (0.5, 0.8, 0.9, 0.95)  # whose coverage is printed, or the nearest ones
PREFIX = "calibrated_"  # of the columns of calibrated outputs
KINDS = {  # of the outputs of a regression: their columns, and options
    "Normal": ("mean", "--mean and --std"),
    "Quantiles": ("quantiles", "--quantiles 'q_*'"),
    "Samples": ("samples", "--samples 's_*'"),
}


def calibrator_named(name: str) -> BaseCalibrator | Literal["auto"]:
    """Return the calibrator of this name with its default settings."""
    if name == "auto":
        return "auto"
    if name == "simple":
        return AutoCalibrator(max_parts=1)
    if not _is_calibrator(name):
        rule = "must be auto, simple or the name of a calibrator"
        known = list(filter(_is_calibrator, calibrate.__all__))
        best, *others = nearest_first(name, known)
        fix = f"Pass --calibrator {best}, or {join_choices(others)}"
        raise BadValueError("", "--calibrator", rule, repr(name), fix)
    calibrator: BaseCalibrator = getattr(calibrate, name)()
    return calibrator


def _is_calibrator(name: str) -> bool:
    """Whether a name is that of a calibrator of classes that needs no settings."""
    kind = getattr(calibrate, name) if name in calibrate.__all__ else None
    is_one = isinstance(kind, type) and issubclass(kind, BaseCalibrator)
    return is_one and not inspect.isabstract(kind) and kind is not OneVsRest


def answer_calibrator(name: str) -> ConfidenceCalibrator:
    """Return the calibrator of scores of answers, the only one."""
    if name not in ("auto", ConfidenceCalibrator.__name__):
        rule = "must be auto (ConfidenceCalibrator) with --confidence or --scores"
        raise BadValueError("", "--calibrator", rule, name, "Leave it out")
    return ConfidenceCalibrator()


def multilabel_calibrator(name: str) -> MultiLabelCalibrator:
    """Return the calibrator of several labels per row that a name stands for."""
    if name not in BASES:
        rule = f"must be {join_choices(BASES)} for several labels"
        raise BadValueError("", "--calibrator", rule, name, "Pass --calibrator auto")
    return MultiLabelCalibrator(base=name)


def regression_calibrators(name: str, outputs: BaseOutputs) -> list[RegressionCalibrator]:
    """Return the calibrator of this name, or for `auto` those to select from."""
    if name == "auto":
        return regression_candidates(outputs)
    if name not in REGRESSION:
        rule = f"must be {join_choices(['auto', *REGRESSION])} for a regression"
        raise BadValueError("", "--calibrator", rule, name, "Pass --calibrator auto")
    if name == "VarianceScaling":
        return [VarianceScaling()]
    levels = outputs.levels.tolist() if isinstance(outputs, Quantiles) else DRAW_LEVELS
    return [QuantileRecalibration(levels)]


def fit_regression(
    file: str, output: str, options: ColumnOptions, reader: Reader, name: str
) -> None:
    """Fit a calibrator, save it, and print what it achieves on held-out rows."""
    require_unused({"--positive": options.positive, "--classes": options.classes}, "here")
    [predictions] = options.open(file)
    with passes():
        rows = moment_matched_shards(reader.rows(predictions))
        candidates = regression_calibrators(name, next(rows.batches()).outputs)
        fitted = candidates[0].fit(rows)  # which also warns of missing targets
        by_name = {type(one).__name__: one for one in candidates}
        tried = {each: cross_validate_calibrator(one, rows) for each, one in by_name.items()}
        chosen, reason = select_regression_calibrator(tried)
        if by_name[chosen] is not fitted:
            fitted = by_name[chosen].fit(rows)
        n_rearranged = count_rearranged(rows) if options.rearrange else 0
    document = {**fitted.to_dict(), "columns": options.outputs}
    write_atomic(output, json.dumps(document, allow_nan=False))
    reason = reason if name == "auto" else "named"
    _warn_if_worse(tried[chosen])
    scores = [{"name": each, **_scores(one)} for each, one in tried.items()]
    found: dict[str, Any] = {"chosen": chosen, "reason": reason, "leaderboard": scores}
    found |= {"rearranged": n_rearranged} if options.rearrange else {}
    say_json({**found, "evidence": tried[chosen].to_dict(), "output": output})
    say(f"{chosen}: {fitted.summary()}.")
    if len(candidates) > 1:
        say(f"{reason[0].upper()}{reason[1:]}.")
    say()
    _show_evidence(tried[chosen])
    say_rearranged(n_rearranged)
    say(f"\nWritten to {output}. Next:")
    options.say_next(f"calibrate --apply {output}", file, "calibrated.parquet")


def _scores(evidence: RegressionEvidence) -> dict[str, float]:
    """Return the CRPS before and after calibration."""
    parts = {"crps_before": evidence.before, "crps_after": evidence.after}
    return {name: one.continuous_ranked_probability_score for name, one in parts.items()}


def _warn_if_worse(evidence: RegressionEvidence) -> None:
    """Print a warning if calibration did not help on held-out rows."""
    if evidence.relative_crps > WORSE:
        before, after = map(decimal, _scores(evidence).values())
        say_note(
            f"Calibration did not help on held-out rows: {evidence.before.crps_title} {after} "
            f"after it, {before} before. Calibrate on more than {quantity(evidence.n_rows)}, or "
            "use the uncalibrated outputs."
        )


def _show_evidence(evidence: RegressionEvidence) -> None:
    """Print the metrics before and after calibration."""
    before, after = evidence.before, evidence.after
    rows, levels = [], before.levels.tolist()
    shown = {min(levels, key=lambda one: abs(one - k), default=0) for k in INTERVALS}
    for k, level in enumerate(levels):
        if level in shown:
            name, both = f"{level * 100:.3g} % intervals", (before, after)
            rows.append((f"coverage of {name}", *(percent(one.coverage[k]) for one in both)))
            rows.append((f"mean width of {name}", *(decimal(one.width[k]) for one in both)))
    figures = {
        before.crps_title: "continuous_ranked_probability_score",
        "pinball loss": "pinball_loss",
        "negative log-likelihood": "negative_log_likelihood",
    }
    for title, field in figures.items():
        scores = [getattr(one, field) for one in (before, after)]
        if None not in scores:
            rows.append((title, *map(decimal, scores)))
    show_table(("", "before", "after"), rows)
    folds = f"cross-fitted in {evidence.n_folds} folds"
    say(f"\n{evidence.n_rows:,} rows, {folds}: every figure is of rows held out of the fit.")


class Application(ABC):
    """A saved calibrator that is applied to a file; each kind is a subclass.

    `fitted` are the options of the outputs that it was fitted to. They hold for files that have
    these columns, unless there are others.
    """

    done = "{:,} rows of {} are calibrated in {}."

    def __init__(self, calibrator: Any, path: Path, fitted: dict[str, Any]) -> None:
        self.calibrator, self.path, self.fitted = calibrator, path, fitted
        self.options = ColumnOptions()  # that a file was opened with
        self.names: list[str] = []  # of the calibrated columns

    def open(self, file: str, options: ColumnOptions) -> Predictions:
        """Return a file with the columns to calibrate, or raise if it is of another kind."""
        like_fit = options if options.outputs else replace(options, **self.fitted)
        is_like_fit = like_fit.has_outputs(open_input(file).schema.names)
        self.options = like_fit if is_like_fit else options
        predictions = self._open(file)
        self.names = self._names(scan(predictions.source, predictions.columns).columns)
        return predictions

    def columns_of(self, batch: Batch, source: str | None) -> dict[str, Any]:
        """Return the calibrated columns of a batch, and what is written beside them."""
        calibrated = zip(self.names, self._calibrated(batch), strict=True)
        return {**batch.beside(source), **dict(calibrated)}

    @abstractmethod
    def _open(self, file: str) -> Predictions:
        """Return a file with its columns."""

    @abstractmethod
    def _names(self, bound: BoundColumns) -> list[str]:
        """Return the names of the calibrated columns."""

    @abstractmethod
    def _calibrated(self, batch: Batch) -> Iterable[Any]:
        """Return the calibrated columns of a batch."""


class _OfClasses(Application):
    """Probabilities of classes; for a single column, that of its class."""

    def _open(self, file: str) -> Predictions:
        self._require_kind("classes", "Leave --multilabel out", is_multilabel=False)
        classes = self.calibrator.classes_
        found = self.options.open(file, label="unused", classes=classes)
        require_classes(found, self.calibrator.n_classes_, classes, self.path, self.fitted)
        return found[0]

    def _require_kind(self, kind: str, remedy: str, *, is_multilabel: bool) -> None:
        """Raise if the options are of labels where the calibrator is of classes, or vice versa."""
        if self.options.is_multilabel != is_multilabel:
            rule, got = f"calibrates {kind}", "columns of the other kind"
            raise BadValueError("", str(self.path), rule, got, remedy)

    def _all_names(self) -> Sequence[Any]:
        """Return the names of all classes."""
        return self.calibrator.classes_ or range(self.calibrator.n_classes_)

    def _names(self, bound: BoundColumns) -> list[str]:
        [first, *others] = bound.found[bound.kind]
        is_single = not others and first not in bound.widths
        return [f"{PREFIX}{name}" for name in ([first] if is_single else self._all_names())]

    def _calibrated(self, batch: Batch) -> Iterable[Any]:
        p = self.calibrator._predict_proba(batch.outputs)
        return list(p.T[-len(self.names) :])


class _OfLabels(_OfClasses):
    """Probabilities of several labels per row."""

    def _open(self, file: str) -> Predictions:
        self._require_kind("several labels per row", "Pass --multilabel 'p_*'", is_multilabel=True)
        labels = self.calibrator.label_names_
        return self.options.open(file, label="unused", label_names=labels)[0]

    def _all_names(self) -> Sequence[Any]:
        return self.calibrator.label_names_ or range(self.calibrator.n_labels_)


class _OfAnswers(Application):
    """P(correct) of scored answers, with its interval; such a calibrator knows its columns."""

    done = "P(correct) of {:,} rows of {}, with its interval, is in {}."

    def _open(self, file: str) -> Predictions:
        names, groups = self.calibrator.names_, self.calibrator.groups_
        fitted = self.calibrator.columns_ or ({"scores": ",".join(names)} if names else {})
        [found] = self.options.open(file, label="unused", as_scores=True, fitted=fitted)
        if groups and self.options.group is None and "group" not in fitted:
            say_note(f"{self.path} has coefficients of groups: pass --group NAME to use them.")
        return as_fitted(found, self.calibrator)

    def _names(self, bound: BoundColumns) -> list[str]:
        return [*ANSWER_COLUMNS]

    def _calibrated(self, batch: Batch) -> Iterable[Any]:
        return answer_columns(self.calibrator, batch.outputs).values()


class _OfRegression(Application):
    """Means and standard deviations, or quantiles."""

    def _open(self, file: str) -> Predictions:
        if not self.options.outputs:  # files whose columns have other names need them
            raise self._other_kind("none of the columns of the fit")
        return self.options.open(file, label="unused")[0]

    def _other_kind(self, got: str) -> BadValueError:
        """Return the error for outputs of another kind than those of the fit."""
        kind = self.calibrator.kind_
        rule, fix = f"calibrates {kind}", f"Pass {KINDS[kind][1]}"
        return BadValueError("", str(self.path), rule, got, fix)

    def _names(self, bound: BoundColumns) -> list[str]:
        if KINDS[self.calibrator.kind_][0] != bound.kind:
            raise self._other_kind(f"columns of {bound.kind}")
        columns = [*bound.found[bound.kind], *bound.found.get("std", ())]
        is_list = columns[0] in bound.widths
        names = columns
        if bound.kind == "mean":
            names = columns if len(columns) == 2 and not is_list else ["mean", "std"]
        elif is_list:
            names = [f"{columns[0]}_{k}" for k in range(bound.widths[columns[0]])]
        if isinstance(self.calibrator, QuantileRecalibration):
            levels = tuple(float(one) for one in self.calibrator.levels)
            if bound.kind == "quantiles" and levels != bound.levels:
                shown, given = (
                    ", ".join(f"{one:g}" for one in each) for each in (levels, bound.levels)
                )
                rule, fix = f"calibrates the levels {shown}", "Pass the columns of the fit to"
                raise BadValueError("", str(self.path), rule, given, f"{fix} --quantiles")
            if is_list or levels != bound.levels:
                names = [f"q_{level:g}" for level in levels]
        return [f"{PREFIX}{name}" for name in names]

    def _calibrated(self, batch: Batch) -> Iterable[Any]:
        outputs = self.calibrator.transform(moment_matched(batch).outputs)
        if isinstance(outputs, Normal):
            return outputs.mean, outputs.std
        return list(outputs.array.T)


# The class of a calibrator by name, and what applies it; others are calibrators of classes.
_APPLICATIONS: dict[str, tuple[Any, type[Application]]] = {
    "MultiLabelCalibrator": (MultiLabelCalibrator, _OfLabels),
    "ConfidenceCalibrator": (BaseCalibrator, _OfAnswers),
    **{name: (kind, _OfRegression) for name, kind in REGRESSION.items()},
}


def load_application(path: Path) -> Application:
    """Return what applies a saved calibrator."""
    fix = "Pass a file written by dubito calibrate"
    try:
        values = json.loads(read_text(path))
        columns, name = {}, ""
        if isinstance(values, dict):
            columns, name = values.pop("columns", {}), str(values.get("class"))
        if name.endswith("Policy") or name == "Cascade":
            use = f"Use `dubito {'cascade ' * (name == 'Cascade')}decide {path}`"
            raise BadFileError(str(path), f"it is a policy ({name}), not a calibrator", use)
        kind, application = _APPLICATIONS.get(name, (BaseCalibrator, _OfClasses))
        calibrator = kind.from_dict(values)
    except json.JSONDecodeError as error:
        problem = f"it is not valid JSON (line {error.lineno}, column {error.colno})"
        raise BadFileError(str(path), problem, fix) from error
    except (BadValueError, BadTypeError) as error:
        problem = f"it is not a calibrator ({error.rule}, got {error.got})"
        raise BadFileError(str(path), problem, fix) from error
    names = {one.name for one in fields(ColumnOptions)}
    is_known = isinstance(columns, dict) and names.issuperset(columns)
    fitted = columns if is_known and application is not _OfAnswers else {}
    return application(calibrator, path, fitted)
