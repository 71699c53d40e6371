"""A policy as one JSON file with a checksum: what policies of all kinds share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dubito import __version__, calibrate
from dubito.arrays import as_count
from dubito.data.shards import Shards, fingerprint
from dubito.data.sink import write_atomic
from dubito.errors import BadFileError, BadTypeError, BadValueError
from dubito.formatting import HTMLTable, html_view
from dubito.outputs import Logits, Normal, Quantiles, Samples
from dubito.serialization.documents import decode_document, encode_document, read_text
from dubito.serialization.fields import (
    RESTORE,
    Check,
    Entry,
    Omittable,
    declare,
    describe,
    dict_of,
    integer,
    list_of,
    number,
    record,
    text,
)
from dubito.serialization.objects import Record

if TYPE_CHECKING:
    from dubito.data.batch import Batch

KINDS = ("Policy", "MultiLabelPolicy", "RegressionPolicy", "Cascade")


class BasePolicy(Record):
    """A policy that is written to one JSON file, and read with every entry checked."""

    __slots__ = ()

    described: ClassVar[str] = "the figures above"  # which an edit by hand does not change

    provenance: Mapping[str, Any]
    report: Any

    @property
    @abstractmethod
    def rule_lines(self) -> list[str]:
        """What is decided from which outputs on, in sentences or a table."""

    def _rule_parts(self) -> list[str | HTMLTable]:
        """Return the same for notebooks."""
        return ["\n".join(self.rule_lines)]

    def __str__(self) -> str:
        return "\n".join([*self.rule_lines, str(self.report), *self.origin_lines()])

    def _repr_html_(self) -> str:
        parts = [*self._rule_parts(), *self.report._html_parts()]
        return html_view(self.report.lines[0], *parts, "\n".join(self.origin_lines()))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the policy as one JSON file, atomically.

        Parameters
        ----------
        path : str or path
            The file, or a URL.
        """
        write_atomic(path, self.to_json())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Return the policy in a file. Nothing in it is executed, and every entry is checked.

        Parameters
        ----------
        path : str or path
            The file.

        Returns
        -------
        Policy, MultiLabelPolicy, RegressionPolicy or Cascade
            Of the class that it is called on; `load_policy` reads any.
        """
        return cls.from_json(read_text(path), fspath(path))

    def origin_lines(self) -> list[str]:
        """Return the calibrator, and whether the file was edited, in sentences.

        Returns
        -------
        list of str
        """
        lines = [f"Calibrator: {self.provenance['calibrator']}."]
        if "edited" in self.provenance:
            when = f"Edited by hand on {self.provenance['edited']}"
            lines.append(f"{when}: {self.described} describe the policy before the edit.")
        return lines

    def to_json(self) -> str:
        """Return the text of the policy file.

        Returns
        -------
        str
            JSON with a format number and a checksum.
        """
        return encode_document(self.to_dict(), f"{type(self).__name__}.save")

    @classmethod
    def from_json(cls, text: str, name: str = "The policy") -> Self:
        """Return the policy in the text of a file, which error messages call `name`.

        Parameters
        ----------
        text : str
            The text of a policy file.
        name : str, default "The policy"
            What error messages call the file.

        Returns
        -------
        policy
            Every field is validated; no code is executed.
        """
        return cls.from_document(*decode_document(text, name), name)

    @classmethod
    def from_document(cls, document: dict[str, Any], is_intact: bool, name: str) -> Self:
        """Return the policy in a decoded document, whose checksum matches or not.

        Parameters
        ----------
        document : dict
            The decoded JSON, without its checksum.
        is_intact : bool
            Whether the checksum matched.
        name : str
            What error messages call the file.

        Returns
        -------
        policy
            Every field is validated; no code is executed.
        """
        cls._require_kind(document, name)
        if not is_intact:
            problem = "its checksum does not match, so it was edited after it was saved"
            fix = f"Run `dubito policy seal {name}` to accept the edit"
            raise BadFileError(name, problem, fix)
        return cls._read_file(document, name)

    @classmethod
    def seal(cls, path: str | PathLike[str]) -> None:
        """Check a policy file that was edited by hand, and update its checksum so that it loads.

        The policy will state that its report is older than the edit. A file whose checksum matches
        is left unchanged.

        Parameters
        ----------
        path : str or path
            The file, which is rewritten.
        """
        document, is_intact = decode_document(read_text(path), fspath(path))
        cls._require_kind(document, fspath(path))
        cls._read_file(document, fspath(path))
        if not is_intact:
            document["provenance"] = {**document["provenance"], "edited": _utc_now()}
            write_atomic(path, encode_document(document, f"{cls.__name__}.seal"))

    @classmethod
    def _read_file(cls, document: dict[str, Any], name: str) -> Self:
        """Return the policy in the document of a file; errors name the file and the field."""
        for field, check in cls.fields.items():
            if field not in document and not isinstance(check, Omittable):
                raise BadFileError(name, f"it has no field `{field}`", "Add it, or fit again")
        try:
            return cls._read(document, Entry("values", name, {}))
        except (BadTypeError, BadValueError) as error:
            fix = "Correct it, or fit again" if error.fix == RESTORE else error.fix
            raise error.moved(fix=fix) from error

    @classmethod
    def _require_kind(cls, document: dict[str, Any], name: str) -> None:
        """Raise for what is not a policy, or for a policy of another class."""
        fix = "Pass a file written by `dubito fit` or Policy.save"
        for field in ("format", "class"):
            if field not in document:
                problem = f"it is not a dubito policy (the field `{field}` is missing)"
                raise BadFileError(name, problem, fix)
        kind = document["class"]
        if not isinstance(kind, str) or kind == cls.__name__:  # an array compares by entry
            return
        if kind in KINDS:
            problem = f"it holds a {kind}, not a {cls.__name__}"
            fix = f"Use {kind}.load, or load_policy for any kind"
            if kind == "Cascade":  # it asks for outputs step by step
                fix = f"Use Cascade.load, or `dubito cascade decide {name}`"
            elif cls.__name__ == "Cascade":
                fix = f"Use `dubito decide {name}`, or load_policy in Python"
        elif kind in calibrate.__all__:
            problem = f"it is a calibrator ({kind}), not a policy"
            fix = f"Fit a policy with `dubito fit`, or use `dubito calibrate --apply {name}`"
        elif kind == "OnlineConformal":
            problem, fix = "it is the state of forecasts, not a policy", "Use `dubito forecast`"
        else:
            problem = f"it is not a dubito policy (its class is {describe(kind)})"
        raise BadFileError(name, problem, fix)


class BaseBatchPolicy(BasePolicy):
    """A policy that decides whole batches; a cascade asks for outputs step by step instead."""

    __slots__ = ()

    _batch_columns: ClassVar[tuple[str, ...]] = ()  # that decisions need besides outputs

    decide: Callable[..., Any]
    explain: Callable[..., str]

    @property
    @abstractmethod
    def rule(self) -> Any:
        """What turns calibrated outputs into decisions."""

    @property
    @abstractmethod
    def action_names(self) -> tuple[str, ...]:
        """The names of what is done with rows."""

    @property
    @abstractmethod
    def has_reviews(self) -> bool:
        """Whether rows may be rejected or reviewed."""

    def decide_batch(self, batch: Batch) -> Any:
        """Return the decisions on a batch, by whatever of its columns the policy needs.

        Parameters
        ----------
        batch : Batch
            Rows with outputs, and features and the columns of costs where they are needed.

        Returns
        -------
        Decisions, MultiLabelDecisions or RegressionDecisions
        """
        return self.decide(batch.outputs, *self._beside(batch))

    def explain_batch(self, batch: Batch, row: int) -> str:
        """Explain what is decided for one row of a batch, and why.

        Parameters
        ----------
        batch : Batch
            Rows, as for `decide_batch`.
        row : int
            The row to explain.

        Returns
        -------
        str
        """
        return self.explain(batch.outputs, *self._beside(batch), row=row)

    def _beside(self, batch: Batch) -> list[Any]:
        """Return the columns of a batch that decisions need besides outputs."""
        return [getattr(batch, name) for name in self._batch_columns]

    @staticmethod
    def _slice_of(row: Any, n_rows: int, caller: str) -> slice:
        """Return the slice of the one row that is to be explained."""
        start = as_count(row, "row", caller, 0, n_rows - 1)
        return slice(start, start + 1)

    @abstractmethod
    def evidence_on(self, batch: Batch, evaluation: str) -> Any:
        """Return what the policy decides for labeled rows, to report on.

        Parameters
        ----------
        batch : Batch
            Rows with labels or targets.
        evaluation : str
            Which rows these are, for the report.

        Returns
        -------
        Evidence, LabelEvidence or ValueEvidence
            The rows and their decisions.
        """

    def report_on(self, evidence: Any, seed: int = 0) -> Any:
        """Return the figures of decided rows with labels, as `report` has those of the fit.

        Parameters
        ----------
        evidence : Evidence, LabelEvidence or ValueEvidence
            What `evidence_on` returned, or some of its rows.
        seed : int, default 0
            Seed of the bootstrap.

        Returns
        -------
        PolicyReport, MultiLabelPolicyReport or RegressionPolicyReport
        """
        return type(self.report).of(evidence, self.rule, seed)


_ORIGIN: Mapping[str, Check] = declare(
    dubito=text,
    created=text,
    fingerprint=text,
    n_rows=integer(),
    calibrator=text,
    random_state=integer(0, 2**32 - 1),
    edited=Omittable(text),
    columns=Omittable(dict_of(text)),
    outputs=Omittable(text),
)


PROVENANCE = record(**_ORIGIN)
CLASS_PROVENANCE = record(
    **_ORIGIN,
    positive=Omittable(text),
    medians=Omittable(dict_of(number())),
    row_costs=Omittable(text),
    output_columns=Omittable(list_of(text)),
)


def provenance_of(shards: Shards, calibrator: Any, seed: int) -> dict[str, Any]:
    """Return where a policy comes from: the version, the time, the rows, and how it was fitted.

    The calibrator is fitted, None, or its description.
    """
    outputs = next(shards.batches()).outputs
    kind = "probabilities"
    if isinstance(outputs, Normal | Samples | Quantiles):
        kind = type(outputs).__name__.lower()
    elif isinstance(outputs, Logits) or getattr(outputs, "odds", None) is not None:
        kind = "logits"
    return {
        "dubito": __version__,
        "created": _utc_now(),
        "fingerprint": fingerprint(shards),
        "n_rows": int(shards.sum(len)),
        "calibrator": calibrator if isinstance(calibrator, str) else _description(calibrator),
        "random_state": seed,
        "outputs": kind,
    }


def _description(calibrator: Any) -> str:
    """Return the parameters of a calibrator in words, after its name unless they contain it."""
    if calibrator is None:
        return "none"
    text, name = calibrator.summary(), type(calibrator).__name__
    return text if name == "AutoCalibrator" else f"{name} ({text})"


def _utc_now() -> str:
    """Return the time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
