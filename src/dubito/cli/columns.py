"""Column options shared by the commands, and columns recognized by their names."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain, compress
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

from dubito.cli.options import OptionGroup, first_few, flag, join_choices, numbers_in
from dubito.cli.printing import put, say, say_note
from dubito.cli.reading import Predictions, is_number_text, open_input, positive_choices
from dubito.errors import BadValueError

if TYPE_CHECKING:
    from dubito.calibrate import ConfidenceCalibrator
    from dubito.data import Columns
    from dubito.data.sources import BaseSource
    from dubito.decide import Policy
    from dubito.decide.policy.loading import AnyPolicy
    from dubito.outputs import ClassName


LABELS = ("label", "y", "target")
SINGLE = ("p", "prob", "probability")  # of the positive class
PREFIXES = {"logit_": "logits", "p_": "probabilities", "prob_": "probabilities"}
FEATURES = "feature_"
NUMERIC_LABELS = {"0", "1", "0.0", "1.0", "True", "False", "true", "false"}
SWITCHES = ("normalize", "percent", "rearrange")
MULTILABEL = ("multilabel", "multilabel_logits", "uncertain")
REGRESSION = ("mean", "quantiles", "samples")
OUTPUTS = (
    "logits", "probabilities", "probability", *MULTILABEL[:2], "confidence", "scores", *REGRESSION
)  # fmt: skip
ROLES = ("label", *OUTPUTS, "std", "correct", "features", "weight", "group", "id")  # of columns
ANSWERS = ("confidence", "scores")
PERCENT = "percent"  # the unit that a policy or calibrator stores
MAX_LABELS = 20  # distinct numbers, beyond which a column of two classes is no label


@final
@dataclass(frozen=True, slots=True)
class ColumnOptions(OptionGroup):
    """The column options of a command; None for those that were not given.

    Options
    -------
    label
        Column of true labels, or 'y_*' for several. Default: label, y or target.
    logits
        Columns of logits, e.g. 'z_*', or one list column. Default: logit_*.
    probabilities
        Columns of class probabilities, or one list column. Default: p_*, prob_*.
    probability
        Single column: P(positive class). Default: p, prob or probability.
    positive
        Positive class, for two classes, e.g. fraud. Not needed for labels 0 and 1.
    classes
        Comma-separated class names, for a list column.
    features
        Feature columns, or one list column. Default: feature_*.
    weight
        Column of sample weights.
    group
        Column of groups to audit one by one, and to compare.
    id
        Column of row identifiers.
    normalize
        Divide each row of probabilities by its sum, if they were rounded.
    percent
        Probabilities or confidences are percentages, from 0 to 100.

    Several labels per row
    ----------------------
    multilabel
        Columns of label probabilities, several labels per row: 'p_*' or p_a,p_b,...
    multilabel_logits
        Columns of log odds of several labels per row.
    uncertain
        How to treat labels marked uncertain (u, -1): ignore, zeros, ones, or a probability.

    Scored answers (e.g. of a language model)
    -----------------------------------------
    confidence
        Column of confidences, of top labels or answers; requires --correct.
    scores
        Columns of scores of answers, of any range: 'score_*' or a,b; repeatable.
    correct
        Column of 0 and 1: whether the top label or answer is correct.

    Regression
    ----------
    mean
        Column of means, or 'mean_*' of an ensemble; requires --std.
    std
        Column of standard deviations, or 'std_*' of an ensemble.
    quantiles
        Columns of quantiles, e.g. 'q_*', with levels from their names (q_0.05).
    levels
        Levels of the quantiles, in the order of the columns, e.g. 0.05,0.5,0.95.
    samples
        Columns of draws, e.g. 's_*', or one list column.
    rearrange
        Sort the quantiles of rows in which they cross, and count these rows.
    """

    repeated: ClassVar[Mapping[str, tuple[str, ...]]] = {"scores": ("--scores", "--score")}
    label: str | None = None
    logits: str | None = None
    probabilities: str | None = None
    probability: str | None = None
    multilabel: str | None = None
    multilabel_logits: str | None = None
    uncertain: str | None = None
    confidence: str | None = None
    scores: str | None = None
    correct: str | None = None
    mean: str | None = None
    std: str | None = None
    quantiles: str | None = None
    levels: str | None = None
    samples: str | None = None
    positive: str | None = None
    classes: str | None = None
    features: str | None = None
    weight: str | None = None
    group: str | None = None
    id: str | None = None
    normalize: bool = False
    percent: bool = False
    rearrange: bool = False

    @property
    def kinds(self) -> list[str]:
        """The options of outputs that were given."""
        return [kind for kind in OUTPUTS if kind in self.given]

    @property
    def is_regression(self) -> bool:
        """Whether the outputs are those of a regression."""
        return not {*REGRESSION}.isdisjoint(self.kinds)

    @property
    def is_multilabel(self) -> bool:
        """Whether the outputs are of several labels per row."""
        return not {*MULTILABEL}.isdisjoint(self.kinds)

    @property
    def is_answers(self) -> bool:
        """Whether the outputs are scores of answers, or the confidence in them."""
        return not {*ANSWERS}.isdisjoint(self.kinds)

    def require_single_label(self, command: str) -> None:
        """Raise for several labels per row, which a command does not support."""
        for name in {*MULTILABEL[:2]} & self.given.keys():
            rule, got = "supports one label per row", f"{flag(name)} {self.given[name]}"
            fix = "Use one label at a time, e.g. --probability p_NAME --label y_NAME"
            raise BadValueError("", f"dubito {command}", rule, got, fix)

    @property
    def switches(self) -> dict[str, bool]:
        """The switches that are on, by name."""
        return {name: True for name in SWITCHES if getattr(self, name)}

    def __str__(self) -> str:
        words = [word for name, value in self.given.items() for word in (flag(name), value)]
        return shlex.join(words + [f"--{name}" for name in self.switches])

    def say_next(self, command: str, file: str, output: str) -> None:
        """Print a command for new rows, which have the same columns but no labels."""
        shown = replace(self, label=None, weight=None, group=None, uncertain=None, correct=None)
        words = f"dubito {command} NEW{PurePath(file).suffix} {shown}".rstrip()
        say(f"  {words} -o {output}")

    def open(
        self,
        *files: str,
        label: Literal["required", "optional", "unused"] = "required",
        has_features: bool = False,
        classes: Sequence[ClassName] | None = None,
        row_costs: Sequence[str] = (),
        fitted: Mapping[str, str] = MappingProxyType({}),
        label_names: Sequence[ClassName] | None = None,
        as_scores: bool = False,
    ) -> list[Predictions]:
        """Open files and find their columns; columns found by name are printed.

        An optional label may be missing, and one that was named may be missing from all files but
        the first. Features are looked for if `has_features`; `classes` names the classes of a
        single column where they are already known, and `row_costs` are the expressions of columns
        in costs. Files that have the columns of outputs that a policy was `fitted` to are read so;
        `label_names` are the labels that it needs, of several per row. With `as_scores`, a
        confidence alone is read as a score of answers, whose new rows have no `correct`.
        """
        self._require_one_kind(is_new=label == "unused")
        opened: list[tuple[str, BaseSource, dict[str, Any]]] = []
        found_by_name: list[str] = []
        for file in files:
            source = open_input(file)
            names, given = source.schema.names, self.given
            if label == "optional" and opened and given.get("label", names[0]) not in names:
                missing = given.pop("label")
                put(f"{file} has no column {missing}: no labels there.", is_error=True)
            for role in (role for role in ROLES if role in given):
                if (role, label) != ("label", "unused"):
                    _require_columns(given[role], names, flag(role), file)
            found = self._find(names, file, label, has_features, fitted)
            found_by_name += [f"{role} = {column}" for role, column in found.items()]
            values: dict[str, Any] = {**given, **found, **self.switches}
            if values.pop("unit", None) == PERCENT:
                values["percent"] = True
            _select_labels(values, names, file, label_names)
            if row_costs:
                values["row_costs"] = tuple(row_costs)
                _require_known_later(row_costs, values.get("label"))
            if as_scores and "confidence" in values:
                values.setdefault("scores", values["confidence"])
            opened.append((file, source, values))
        if label == "optional" and classes is None:
            classes = _classes_in_labels(opened)
        result: list[Predictions] = []
        notations: list[str] = []
        for file, source, values in opened:
            columns = _as_columns(values, source, label, classes)
            if columns.percent:
                _note_fractions(source, columns, file)
            result.append(Predictions(file, source, columns))
            notations += _levels_in_names(source.schema.names, file, columns)
            notations += _notation(source, columns)
        detected = [", ".join(dict.fromkeys(one)) for one in (found_by_name, notations) if one]
        if detected:
            put(f"Detected columns: {'; '.join(detected)}.", is_error=True)
        return result

    def open_for(self, policy: AnyPolicy, path: Path, *files: str) -> list[Predictions]:
        """Open files of new predictions for the policy of a file, or raise for the other kind."""
        from dubito.calibrate import ConfidenceCalibrator
        from dubito.decide import Policy, RegressionPolicy

        fitted, calibrator = policy.provenance.get("columns", {}), policy.calibrator
        is_answers = isinstance(calibrator, ConfidenceCalibrator)
        settings: dict[str, Any] = {}
        kinds: tuple[str, ...]
        if isinstance(policy, Policy):
            settings["has_features"] = policy.ood is not None and policy.ood.needs_features
            settings["classes"] = policy.costs.classes
            settings["row_costs"] = [str(one) for one in policy.costs.expressions]
            expected, kinds, fix = "classes", OUTPUTS[:3], "--logits or --probabilities"
            if is_answers:
                settings["as_scores"] = True
                expected, kinds, fix = "scores of answers", ANSWERS, "--confidence or --scores"
        elif isinstance(policy, RegressionPolicy):
            settings["has_features"] = policy.ood is not None
            role = {"Normal": "mean", "Quantiles": "quantiles", "Samples": "samples"}[policy.kind]
            expected, kinds, fix = role, (role,), f"--{role}"
            if role == "mean":
                expected, fix = "means and standard deviations", "--mean and --std"
        else:
            settings["label_names"] = policy.calibrator.label_names_
            expected, kinds, fix = "several labels per row", MULTILABEL, "--multilabel 'p_*'"
        if self.group is not None and not is_answers:
            rule, remedy = "requires a policy that was fitted on scores of answers", "Leave it out"
            raise BadValueError("", "--group", rule, self.group, remedy)
        found = self.open(*files, label="unused", fitted=fitted, **settings)
        if isinstance(calibrator, ConfidenceCalibrator):
            found = [as_fitted(one, calibrator) for one in found]
        scale = policy.provenance.get("outputs")
        for one in found:
            if (got := _kind_of(one.columns)) not in kinds:
                rule, remedy = f"decides on {expected}", f"Pass {fix}, as for the fit"
                raise BadValueError("", str(path), rule, f"columns of {got}", remedy)
        if isinstance(policy, Policy) and not is_answers:
            require_classes(found, len(policy.classes), policy.classes, path, fitted, scale)
            _require_fitted_positive(self.positive, policy, path)
        if not (is_answers or isinstance(policy, RegressionPolicy)):
            for one in found:
                _note_other_scale(scale, path, one)
        if isinstance(policy, RegressionPolicy) and policy.rearrange:
            return [one._replace(columns=replace(one.columns, rearrange=True)) for one in found]
        return found

    @property
    def outputs(self) -> dict[str, Any]:
        """The options of outputs that were given, as a calibrator remembers them."""
        roles = (*OUTPUTS, "std", "levels")
        found = {name: value for name, value in self.given.items() if name in roles}
        return {**found, **self.switches} if found else {}

    def has_outputs(self, names: Sequence[str]) -> bool:
        """Whether a file has one of the columns of outputs that were given."""
        given = [self.given[kind] for kind in self.kinds]
        return _occurs_in(names, [part for value in given for part in (value, *value.split(","))])

    def find_label(self, names: Sequence[str], file: str) -> str:
        """Return the column of labels of a file, or raise if there is none."""
        return self.label or _find_label(names, file, is_required=True)["label"]

    def _require_one_kind(self, *, is_new: bool) -> None:
        """Raise for two kinds of outputs, or for one of two options that belong together."""
        kinds = [flag(kind) for kind in self.kinds]
        if len(kinds) > 1 and kinds != [f"--{kind}" for kind in ANSWERS]:
            rule, got = "needs one kind of outputs", " and ".join(kinds)
            raise BadValueError("", "dubito", rule, got, f"Pass either {' or '.join(kinds)}")
        if self.is_answers and self.label is not None:
            rule = "cannot be combined with --confidence or --scores"
            fix = f"Pass --correct {self.correct or self.label} instead"
            raise BadValueError("", "--label", rule, self.label, fix)
        partners = {"mean": ["std"], "std": ["mean"], "correct": [*ANSWERS]}
        if not is_new:
            partners |= {"scores": ["correct"], "confidence": ["correct"]}
        for one, others in partners.items():
            if one in self.given and self.given.keys().isdisjoint(others):
                rule, got = f"requires {join_choices(list(map(flag, others)))}", self.given[one]
                fix = f"Pass --{others[0]} NAME as well"
                raise BadValueError("", f"--{one}", rule, f"{got} alone", fix)

    def _find(
        self,
        names: Sequence[str],
        file: str,
        label: str,
        has_features: bool,
        fitted: Mapping[str, str],
    ) -> dict[str, str]:
        """Return the options that were not given, from column names."""
        found: dict[str, str] = {}
        if label != "unused" and self.label is None and self.is_multilabel:
            found |= _find_several_labels(names, file)
        elif label != "unused" and self.label is None and not self.is_answers:
            found |= _find_label(names, file, is_required=label == "required")
        if not self.kinds:
            for role in (role for role in ANSWERS if role in fitted):
                _require_scores(fitted[role], names, file)
            wanted = [fitted[role].split(",") for role in OUTPUTS if role in fitted]
            is_like_fit = _occurs_in(names, chain(*wanted))
            found |= fitted if is_like_fit else _find_outputs(names, file)
        elif self.is_answers and self.group is None and "group" in fitted:
            found["group"] = fitted["group"]
        if "unit" in fitted and all(fitted.get(role) == self.given[role] for role in self.kinds):
            found["unit"] = fitted["unit"]
        if self.group is None and found.get("group", names[0]) not in names:
            missing = found.pop("group")
            say_note(f"{file} has no column {missing}: every row is treated as an average group.")
        if has_features and self.features is None:
            found |= _find_features(names)
        return found


def _occurs_in(names: Sequence[str], patterns: Iterable[str]) -> bool:
    """Whether one of several columns or patterns is among those of a file."""
    return any(fnmatchcase(name, one.strip()) for one in patterns for name in names)


def _kind_of(columns: Columns) -> str:
    """Return the option of the outputs of columns; a single probability is one of classes."""
    return next(kind for kind in OUTPUTS if getattr(columns, kind, None) is not None)


def _joined(columns: str | Sequence[str]) -> str:
    """Return columns as an option: a pattern, or names with commas."""
    return columns if isinstance(columns, str) else ",".join(columns)


def _require_columns(wanted: str, names: Sequence[str], option: str, file: str) -> None:
    """Raise unless a file has the columns of an option: one, a pattern, or a list with commas."""
    from dubito.data import patterns

    found = patterns.matching(_listed(wanted, names), names, option, file)
    if twice := [name for name in found if names.count(name) > 1]:
        raise _same_name(file, twice[0])


def _same_name(file: str, name: str) -> BadValueError:
    """Return the error for two columns of one name."""
    return BadValueError("", file, f"has two columns named {name!r}", "", "Rename one of them")


def _require_fitted_positive(positive: str | None, policy: Policy, path: Path) -> None:
    """Raise for another positive class than that of a policy."""
    names = [str(one) for one in policy.classes]
    fitted = names[policy.pos_column] if len(names) == 2 else None
    if positive not in (None, fitted):
        rule = f"applies to two classes; {path} has {len(names)}"
        if fitted is not None:
            rule = f"differs from the positive class of {path}, {fitted}"
        raise BadValueError("", f"--positive {positive}", rule, "", "Leave out --positive")


def _note_other_scale(fitted: str | None, path: Path, predictions: Predictions) -> None:
    """Print a note if a policy was fitted on probabilities and is given logits, or vice versa."""
    kind = _kind_of(predictions.columns)
    got = "logits" if kind.endswith("logits") else "probabilities"
    if fitted not in (None, got):
        option = f"{flag(kind)} {_joined(getattr(predictions.columns, kind))}"
        say_note(
            f"{path} was fitted on {fitted}, and {predictions.file} is read as {got} ({option}). "
            "Check the option."
        )


def require_classes(
    predictions: Sequence[Predictions],
    n_classes: int,
    classes: Sequence[ClassName] | None,
    path: Path,
    fitted: Mapping[str, str],
    kind: str | None = None,
) -> None:
    """Raise unless files have as many classes as a policy or calibrator was fitted on."""
    from dubito.data import scan

    for file, source, columns in predictions:
        bound = scan(source, columns).columns
        if bound.kind not in OUTPUTS[:2]:
            continue
        names = bound.found[bound.kind]
        n_found = bound.widths.get(names[0], max(len(names), 2))
        if n_found != n_classes:
            known = "" if classes is None else f" ({first_few([str(one) for one in classes])})"
            role = next((one for one in OUTPUTS[:3] if one in fitted), None)
            kind = kind or (flag(role)[2:] if role else "outputs")
            given = f"{bound.kind} of {n_found} classes ({first_few(names)})"
            if len(names) == 1 and not bound.widths:
                noun = {"logits": "logit", "probabilities": "probability"}[bound.kind]
                given = f"a single {noun} `{names[0]}`"
            rule = f"has {given}; {path} needs {kind} of {n_classes} classes{known}"
            fix = f"Pass predictions of the model that {path} was fitted on"
            if role and _occurs_in(source.schema.names, fitted[role].split(",")):
                fix = f"Pass --{role} {shlex.quote(fitted[role])}, as for the fit"
            raise BadValueError("", file, rule, "", fix)


def output_columns(columns: Columns) -> dict[str, str]:
    """Return the options that name the columns of outputs, and their unit, for later files."""
    unit = {"unit": PERCENT} if columns.percent else {}
    if columns.scores is not None:
        scores, confidence = _joined(columns.scores), columns.confidence
        found = {"scores": None if scores == confidence else scores, "confidence": confidence}
        found["group"] = columns.group
        return {role: name for role, name in found.items() if name is not None} | unit
    kind = _kind_of(columns)
    name = getattr(columns, kind)
    is_single = isinstance(name, str) and "*" not in name
    if kind == "probabilities" and columns.classes is not None and is_single:
        kind = "probability"
    return {kind: _joined(name), **unit}


def _require_scores(fitted: str, names: Sequence[str], file: str) -> None:
    """Raise unless all scores of a fit are among the columns of a file."""
    from dubito.data.patterns import missing_column

    for one in [fitted] if fitted in names else fitted.split(","):
        if not _occurs_in(names, [one]):
            fix = "Add the column, or fit again without it"
            raise missing_column(one, names, "a score of the fit", file, fix)


def as_fitted(predictions: Predictions, calibrator: ConfidenceCalibrator) -> Predictions:
    """Return new rows whose scores must be missing, and fractions, only where those of a fit were.

    So that errors name the row, and bad rows can be set aside.
    """
    names = calibrator.names_ or ()
    known = [one for one, can in zip(names, calibrator.has_missing_, strict=False) if not can]
    fractions = list(compress(names, calibrator.is_probability_))
    columns = replace(predictions.columns, known_scores=known, fraction_scores=fractions)
    return predictions._replace(columns=columns)


def _require_known_later(expressions: Sequence[str], label: str | None) -> None:
    """Raise if a cost depends on the label, which is unknown where the costs decide."""
    from dubito.data.expressions import Expression

    for one in expressions:
        if label in Expression.parse(one, "--cost", "dubito").columns:
            rule = f"must not depend on `{label}`, the label: it is unknown when rows are decided"
            raise BadValueError("", "A cost", rule, one, "Give a cost for each class instead")


def _levels_in_names(names: Sequence[str], file: str, columns: Columns) -> list[str]:
    """Return the levels of quantiles, if they come from the names of columns."""
    if columns.quantiles is None or columns.levels is not None:
        return []
    levels = [f"{level:g}" for level in columns.bind(names, file).levels]
    shown = levels if len(levels) < 8 else [*levels[:2], "...", levels[-1]]
    return [f"levels = {', '.join(shown)}"]


def _notation(source: BaseSource, columns: Columns) -> list[str]:
    """Return how cells are separated and decimals written, if a text file does not use commas."""
    from dubito.data import scan
    from dubito.data.sources.formats import SEPARATORS

    expected = "\t" if ".tsv" in source.name.lower() else ","
    if source.separator in (None, expected):
        return []
    has_commas = scan(source, columns).columns.decimal != "."
    separated = f"separated by {SEPARATORS[source.separator]}"
    return [separated, *["with decimal commas"] * has_commas]


def _note_fractions(source: BaseSource, columns: Columns, file: str) -> None:
    """Print a note if no number of columns of percentages is above 1: they may be fractions."""
    from dubito.data.cells import largest

    bound = columns.bind(source.schema.names, file)
    names = bound.found["confidence" if columns.confidence is not None else bound.kind]
    found = largest(source, names, above=1)
    if found is not None and found <= 1:
        say_note(
            f"--percent: the largest value of `{first_few(names)}` in {file} is {found:.4g}. Leave "
            "out --percent if these are fractions."
        )


def _find_label(names: Sequence[str], file: str, *, is_required: bool) -> dict[str, str]:
    """Return the only column named like a label; raise if one is required and none is unique.

    >>> _find_label(["id", "y"], "f.csv", is_required=True)
    {'label': 'y'}
    """
    found = [name for name in names if name in LABELS]
    if len(found) == 1:
        return {"label": found[0]}
    if not is_required:
        return {}
    if any(f"y_{one.removeprefix('p_')}" in names for one in names if one.startswith("p_")):
        rule, got = "has no single column of labels", "columns p_* and y_*"
        fix = "Pass --multilabel 'p_*' --label 'y_*' for several labels per row"
        raise BadValueError("", file, rule, got, fix)
    if len(set(found)) < len(found):
        raise _same_name(file, max(found, key=found.count))
    rule = f"has {'both' if len(found) == 2 else 'all of'} {' and '.join(found)}"
    if not found:
        rule = f"has no column named {join_choices(LABELS)}; its columns are {first_few(names, 8)}"
    fix = f"Pass {' or '.join(f'--label {name}' for name in found or ['NAME'])}"
    raise BadValueError("", file, rule, "", fix)


def _find_several_labels(names: Sequence[str], file: str) -> dict[str, str]:
    """Return the only pattern of columns named like labels, or raise.

    >>> _find_several_labels(["p_cough", "y_cough"], "f.csv")
    {'label': 'y_*'}
    """
    starts = [f"{name}_" for name in LABELS if any(one.startswith(f"{name}_") for one in names)]
    if len(starts) == 1:
        return {"label": f"{starts[0]}*"}
    got = " and ".join(f"{start}*" for start in starts) or f"columns {first_few(names)}"
    rule = "needs one set of label columns named y_*, label_* or target_*"
    raise BadValueError("", file, rule, got, "Pass --label 'y_*'")


def _select_labels(
    values: dict[str, Any],
    names: Sequence[str],
    file: str,
    needed: Sequence[ClassName] | None,
) -> None:
    """Turn lists of columns into a pattern and the labels to read; print those left out.

    These are the `needed` ones of a policy, those listed, or all that have outputs.
    """
    from dubito.data import patterns

    kind = next((kind for kind in MULTILABEL[:2] if kind in values), None)
    if kind is None:
        return
    found: dict[str, list[str]] = {}
    is_listed = False
    for role in (kind, "label"):
        pattern, own = _as_pattern(values.get(role, ""), names)
        if own:
            values[role], is_listed = pattern, True
        elif "*" in pattern:
            columns = patterns.matching(pattern, names, role, file)
            own = [str(name) for name in patterns.class_names(pattern, columns)]
        found[role] = own
    if not found[kind]:
        return  # one column of lists
    wanted, spare = found[kind], found["label"]
    if needed is not None:
        wanted, spare = [str(name) for name in needed], found[kind]
        missing = [name for name in wanted if name not in spare]
        if is_listed and missing:
            rule = f"leaves out labels that the fit has: {first_few(missing)}"
            raise BadValueError("", flag(kind), rule, "", f"Pass {flag(kind)} '{values[kind]}'")
    elif is_listed:
        wanted, spare = [name for name in wanted if name in (spare or wanted)], []
    values["only_labels"] = wanted
    if spare := [name for name in spare if name not in wanted]:
        why = "have no outputs" if needed is None else "are not among those of the fit"
        say_note(f"Labels of {file} that {why} are left out: {first_few(spare)}.")


def _as_pattern(wanted: str, names: Sequence[str]) -> tuple[str, list[str]]:
    """Return columns separated by commas as a pattern and the names of their labels.

    >>> _as_pattern("p_cough,p_fever", ["p_cough", "p_fever", "p_rash"])
    ('p_*', ['cough', 'fever'])
    """
    columns = [name.strip() for name in wanted.split(",")]
    if len(columns) == 1 or wanted in names:
        return wanted, []
    start = columns[0][: columns[0].find("_") + 1]
    if not start or not all(name.startswith(start) for name in columns):
        rule, fix = "must be columns of one prefix", "Pass e.g. p_cough,p_fever, or 'p_*'"
        raise BadValueError("", "--multilabel", rule, wanted, fix)
    return f"{start}*", [name.removeprefix(start) for name in columns]


def _find_outputs(names: Sequence[str], file: str) -> dict[str, str]:
    """Return the only kind of outputs whose columns are named by convention, or raise.

    >>> _find_outputs(["logit_cat", "logit_dog", "y"], "f.csv")
    {'logits': 'logit_*'}
    >>> _find_outputs(["id", "p", "label"], "f.csv")
    {'probability': 'p'}
    """
    found = [one for one in PREFIXES if sum(name.startswith(one) for name in names) > 1]
    if len(found) == 1:
        return {PREFIXES[found[0]]: f"{found[0]}*"}
    alone = [name for name in names if name in SINGLE]
    if len(set(alone)) < len(alone):
        raise _same_name(file, max(alone, key=alone.count))
    if not found and len(alone) == 1:
        return {"probability": alone[0]}
    rule = "needs one set of columns named logit_*, p_* or prob_*, or one named "
    rule += join_choices(SINGLE)
    several = [f"{prefix}*" for prefix in found] or alone
    if alone and not found:
        fix = f"Pass {' or '.join(f'--probability {name}' for name in alone)}"
    elif any(name.startswith(("q_", "quantile_")) for name in names) or "std" in names:
        fix = "Pass --quantiles 'q_*', or --mean NAME --std NAME for a regression"
    else:
        single = next((name for name in names if name == "p" or name.startswith("p_")), "NAME")
        fix = f"Pass --logits or --probabilities, or --probability {single} for a single column"
    got = f"columns {' and '.join(several) or first_few(names)}"
    raise BadValueError("", file, rule, got, fix)


def _find_features(names: Sequence[str]) -> dict[str, str]:
    """Return the columns named as features, if any.

    >>> _find_features(["feature_0", "feature_1", "y"])
    {'features': 'feature_*'}
    """
    has_some = any(name.startswith(FEATURES) and name != FEATURES for name in names)
    return {"features": f"{FEATURES}*"} if has_some else {}


def _two_classes(
    source: BaseSource, label: str | None, positive: str | None, column: str
) -> tuple[str, str] | None:
    """Return the two classes of a single probability column, the positive class last.

    The other class is found among the labels. None stands for labels that are 0 and 1.
    """
    from dubito.data.table_queries import distinct_values

    values = [] if label is None else distinct_values(source, label)
    if label is None or not values:
        return None if positive is None else (f"not {positive}", positive)
    if len(values) > MAX_LABELS and all(map(is_number_text, values)):
        rule = f"has {len(values):,} distinct numbers, so it is not a label column"
        names = [name for name in source.schema.names if name != label]
        likely = [f"{name}, or" for name in names if name in LABELS] or ["with"]
        fix = f"Pass --label {likely[0]} another of the columns {', '.join(names)}"
        raise BadValueError(label, source.name, rule, "", fix)
    if NUMERIC_LABELS.issuperset(values) and positive is None:
        return None
    shown, single = first_few(values), f"{column} is a single probability"
    if len(values) > 2:
        rule = f"has {len(values):,} classes ({shown}), but {single}"
        fix = "Pass one column per class with --probabilities, or another --label"
        if marks := {"u", "-1"} & set(map(str, values)):
            fix = f"Pass --multilabel {column} --uncertain ignore if {min(marks)} marks uncertain "
            fix += "labels, or another --label"
        raise BadValueError(label, source.name, rule, "", fix)
    others = [name for name in values if name != positive]
    if positive is not None and len(others) == 1:
        return others[0], positive
    where = f"The labels in `{label}` of {source.name}"
    if len(values) == 1:
        rule, fix = f"are all {shown}: two classes are needed", "Add rows, or pass another --label"
        raise BadValueError("", where, rule, "", fix)
    known = " and ".join(values)
    if positive is None:
        rule = f"are {known}: state which class {column} is the probability of"
    else:
        where = f"--positive {positive}"
        rule = f"is not a class in `{label}` of {source.name}, which has {known}"
    raise BadValueError("", where, rule, "", positive_choices(values))


def _require_two_classes(source: BaseSource, label: str | None, column: str) -> None:
    """Raise if there are more than two classes of labels for a single column of numbers."""
    from dubito.data.cells import is_list
    from dubito.data.patterns import likely_family
    from dubito.data.table_queries import distinct_values

    names = source.schema.names
    if label is None or "*" in label or is_list(source.schema.field(column).type):
        return
    n_classes = len(distinct_values(source, label))
    if n_classes > 2:
        family = likely_family(column, names)
        fix = f"Pass --logits {shlex.quote(family)}" if family else "Pass one column per class"
        rule = f"is for two classes, but `{label}` has {n_classes}"
        raise BadValueError("", f"{source.name}: a single column", rule, "", fix)


def _classes_in_labels(
    files: Sequence[tuple[str, BaseSource, Mapping[str, Any]]],
) -> tuple[str, str] | None:
    """Return the two classes of the first file whose labels hold both, the positive class last.

    So that files of one model have the same classes, if some are unlabeled.
    """
    from dubito.data.table_queries import distinct_values

    for _, source, values in files:
        positive = values.get("positive")
        if positive is not None and "label" in values:
            names = distinct_values(source, values["label"])
            if len(names) == 2 and positive in names:
                return next(name for name in names if name != positive), positive
    return None


def _as_columns(
    values: dict[str, Any],
    source: BaseSource,
    label: str,
    classes: Sequence[ClassName] | None,
) -> Columns:
    """Return options as the columns of a file."""
    from dubito.data import Columns

    if label == "unused":
        values.pop("label", None)
    for role in {*OUTPUTS[:2], *REGRESSION, "std", "scores"} & values.keys():
        columns = _listed(values[role], source.schema.names)
        if role in OUTPUTS[:2] and isinstance(columns, list):
            columns = _as_family(columns, source.schema.names)
        values[role] = columns
    if "levels" in values:
        values["levels"] = numbers_in(values["levels"], "--levels", "0.05,0.5,0.95")
    _require_single(values.get("probability"), source)
    positive, named = values.pop("positive", None), values.pop("classes", None)
    alone = (values.get(kind, "*") for kind in OUTPUTS[:3])
    single = [one for one in alone if isinstance(one, str) and "*" not in one]
    if named is not None:
        values["classes"] = tuple(name.strip() for name in named.split(","))
    elif classes is not None and single:
        values["classes"] = tuple(classes)
    elif single and "logits" in values and positive is None:
        _require_two_classes(source, values.get("label"), single[0])
    elif "probability" in values or (positive is not None and single):
        values["classes"] = _two_classes(source, values.get("label"), positive, single[0])
    if "probability" in values:
        values["probabilities"] = values.pop("probability")
    if values.get("uncertain", "").removeprefix("0").removeprefix(".").isdigit():
        values["uncertain"] = float(values["uncertain"])
    return Columns(**values)


def _require_single(wanted: str | None, source: BaseSource) -> None:
    """Raise if several columns are given as one probability of the positive class."""
    if wanted is not None and wanted not in source.schema.names and any(x in wanted for x in "*,"):
        fix = "Pass --probabilities for classes, or --multilabel if several labels apply to a row"
        raise BadValueError("", "--probability", "takes one column", repr(wanted), fix)


def _listed(wanted: str, names: Sequence[str]) -> str | list[str]:
    """Return columns separated by commas as a list, and one column or a pattern unchanged.

    >>> _listed("low, high", ["low", "high"]), _listed("q_*", ["q_0.1", "q_0.9"])
    (['low', 'high'], 'q_*')
    """
    is_list = "," in wanted and wanted not in names
    return [name.strip() for name in wanted.split(",")] if is_list else wanted


def _as_family(columns: list[str], names: Sequence[str]) -> str | list[str]:
    """Return the pattern that selects listed columns and no others, so that it names their classes.

    >>> _as_family(["z_cat", "z_dog"], ["z_cat", "z_dog", "y"]), _as_family(["a", "b"], ["a", "b"])
    ('z_*', ['a', 'b'])
    """
    start = columns[0][: columns[0].find("_") + 1]
    is_all = {*columns} == {name for name in names if name.startswith(start) and name != start}
    return f"{start}*" if start and is_all else columns
