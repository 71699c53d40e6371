"""The rows of a decide request: validated, identified, and hashed."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import Any, final
from uuid import uuid4

import numpy as np

from dubito.arrays import FloatArray
from dubito.calibrate import ConfidenceCalibrator
from dubito.data.batch import Batch, make_batch
from dubito.decide import Policy
from dubito.decide.multilabel.label_policy import MultiLabelPolicy
from dubito.decide.policy.loading import AnyPolicy
from dubito.decide.regression.regression_policy import RegressionPolicy
from dubito.errors import BadTypeError, BadValueError
from dubito.formatting import quantity
from dubito.outputs import Logits, MultiLabel, Normal, Probabilities, Quantiles, Samples, Scores
from dubito.serve.http_errors import INVALID, TOO_LARGE, HTTPError, show_json
from dubito.serve.schemas import MAX_LINK_LENGTH, DecideRequest, validate
from dubito.serve.service import Settings
from dubito.serve.value_rows import (
    MAX_FLOAT64,
    Regression,
    read_numbers,
    read_outputs,
    sent_matrix,
)

CALLER = "POST /v1/decide"
OF_OTHERS = ("mean", "std", "quantiles", "levels", "samples", "scores", "groups")
MAX_FLOAT32 = float(np.finfo(np.float32).max)  # outputs are stored in single precision
WEB_ADDRESS = re.compile(
    r"https?://(?:[^/?#\[\]\\]+|[^/?#\[\]\\]*\[[0-9a-fA-F:.]+\](?::[0-9]*)?)(?:[/?#].*)?"
)


@final
@dataclass(frozen=True, slots=True, eq=False)
class RequestRows:
    """The rows of a request with their ids, and links for reviewers.

    `has_new_ids` is True if the ids are random, so that no other row can have them.
    """

    batch: Batch
    ids: list[str]
    links: list[str | None]
    has_new_ids: bool = False

    @classmethod
    def of(
        cls,
        content: Any,
        policy: AnyPolicy,
        settings: Settings,
        key: str | None = None,
        *,
        rearrange: bool = False,
    ) -> RequestRows:
        """Validate a body for a policy; missing ids are random, or derived from the key.

        If `rearrange`, quantiles that cross are sorted.
        """
        fields = validate(DecideRequest, content)
        outputs = _as_outputs(fields, policy, settings, rearrange=rearrange)
        n_rows = outputs.n_rows
        require_few(n_rows, settings.max_rows)
        features = None
        if fields.features is not None:
            features = _as_matrix(fields.features, "features", settings)
            if len(features) != n_rows:
                problem = f"`features` must have {n_rows} rows, got {len(features)}"
                raise HTTPError(INVALID, problem, "Send one row of features per row of outputs")
        row_costs = _as_row_costs(fields.row_costs, n_rows, settings)
        return cls(
            batch=make_batch(None, outputs, features=features, row_costs=row_costs, caller=CALLER),
            ids=as_unique_ids(fields.ids, n_rows, key),
            links=as_links(fields.links, n_rows),
            has_new_ids=fields.ids is None and key is None,
        )

    @classmethod
    def concatenate(cls, parts: Sequence[RequestRows]) -> RequestRows:
        """Join the rows of several requests that have outputs of one kind and nothing else."""
        if len(parts) == 1:
            return parts[0]
        outputs = type(parts[0].outputs)(np.concatenate([part.outputs.array for part in parts]))
        return cls(
            batch=make_batch(None, outputs, caller=CALLER),
            ids=list(chain.from_iterable(part.ids for part in parts)),
            links=list(chain.from_iterable(part.links for part in parts)),
        )

    @property
    def outputs(self) -> Any:
        """The model outputs: of classes, of several labels, or of a regression."""
        return self.batch.outputs

    @property
    def is_logits(self) -> bool:
        """Whether logits were sent."""
        outputs = self.outputs
        has_odds = isinstance(outputs, MultiLabel) and outputs.odds is not None
        return has_odds or isinstance(outputs, Logits)

    @property
    def sent(self) -> FloatArray:
        """The numbers that were sent."""
        outputs = self.outputs
        if isinstance(outputs, Normal | Samples | Quantiles):
            return sent_matrix(outputs)
        odds = outputs.odds if isinstance(outputs, MultiLabel) else None
        sent: FloatArray = outputs.array if odds is None else odds
        return sent

    @property
    def digests(self) -> list[bytes]:
        """A hash per row of everything that was sent about it."""
        parts = [np.ascontiguousarray(self.sent, "<f4")]
        if self.batch.features is not None:
            parts.append(np.ascontiguousarray(self.batch.features, "<f4"))
        names: list[str] = []
        if (table := self.batch.row_costs) is not None:
            names = sorted(table.dtype.names or ())
            parts.append(np.stack([table[name] for name in names], axis=1).astype("<f8"))
        if isinstance(self.outputs, Scores) and self.outputs.groups is not None:
            texts = [str(one).encode() for one in self.outputs.groups]
            hashes = b"".join(blake2b(one, digest_size=16).digest() for one in texts)
            parts.append(np.frombuffer(hashes, "u1").reshape(-1, 16))
        kinds = [f"{part.dtype.str}{part.shape[1]}" for part in parts]
        kind = f"{'Logits' if self.is_logits else 'Probabilities'} {kinds} {names} "
        start = blake2b(kind.encode(), digest_size=16)
        whole = np.hstack([part.view(np.uint8) for part in parts])
        content, width = memoryview(whole.tobytes()), whole.shape[1]
        digests = []
        for row, link in enumerate(self.links):
            one = start.copy()
            one.update(content[row * width : (row + 1) * width])
            if link is not None:
                one.update(link.encode())
            digests.append(one.digest())
        return digests


def _as_scores(
    fields: DecideRequest, calibrator: ConfidenceCalibrator, settings: Settings
) -> Scores:
    """Return the scores of answers that a calibrator was fitted on, null where missing."""
    names = calibrator.names_ or tuple(f"score_{k}" for k in range(calibrator.n_scores_))
    example = json.dumps({"scores": {name: [0.9] for name in names[:3]}})
    fix = f"Send {example}, one number per row"
    if not isinstance(fields.scores, dict):
        problem = "The policy was fitted on scores of answers: the body must have `scores`"
        raise HTTPError(INVALID, problem, fix)
    found = {}
    for name in names:
        column = fields.scores.get(name)
        column = column.tolist() if isinstance(column, np.ndarray) else column
        require_few(len(column) if isinstance(column, list) else 0, settings.max_rows)
        found[name] = read_numbers(
            column, f"scores.{name[:50]}", None, fix,
            form="a list of numbers", limit=MAX_FLOAT32, has_gaps=True,
        )  # fmt: skip
    lengths, groups = {len(column) for column in found.values()}, None
    if fields.groups is not None:  # one that is empty is unknown
        groups = ["" if one is None else str(one) for one in fields.groups]
        lengths.add(len(groups))
    if len(lengths) > 1:
        problem = f"`scores` must have the same number of rows each, got {sorted(lengths)}"
        raise HTTPError(INVALID, problem, fix)
    try:
        return calibrator._check_outputs(Scores(found, groups=groups), "decide")
    except BadValueError as error:
        name = error.argument.replace("['", ".").removesuffix("']")
        if isinstance(error.column, int):
            name = f"scores.{names[error.column]}"
            error = error.moved(column=None)
        raise as_http_error(error, "scores" if name == "array" else name, error.fix) from error


def _as_outputs(
    fields: DecideRequest, policy: AnyPolicy, settings: Settings, *, rearrange: bool
) -> Logits | Probabilities | MultiLabel | Regression | Scores:
    """Return the model outputs of a request, declared as those that a policy was fitted on."""
    if rearrange and getattr(policy, "levels", None) is None:
        problem = "?rearrange=true is for quantiles, and the policy takes none"
        raise HTTPError(INVALID, problem, "Leave it out")
    if isinstance(policy, RegressionPolicy):
        return read_outputs(fields, policy, rearrange=rearrange)
    if isinstance(policy.calibrator, ConfidenceCalibrator):
        return _as_scores(fields, policy.calibrator, settings)
    return _as_probabilities(fields, policy, settings)


def _as_probabilities(
    fields: DecideRequest, policy: Policy | MultiLabelPolicy, settings: Settings
) -> Logits | Probabilities | MultiLabel:
    """Return the logits or probabilities of a request, of classes or of several labels per row."""
    unused = next((name for name in OF_OTHERS if getattr(fields, name) is not None), None)
    if unused is not None:
        problem = f"`{unused}` must not be sent to a policy that decides on classes"
        raise HTTPError(INVALID, problem, "Send `logits` or `probabilities`")
    if (fields.logits is None) == (fields.probabilities is None):
        problem = "The body must have either `logits` or `probabilities`"
        raise HTTPError(INVALID, problem, 'Send for example {"logits": [[2.5, -1.0]]}')
    of_logits: Callable[[FloatArray], Logits | MultiLabel]
    of_probabilities: Callable[[FloatArray], Probabilities | MultiLabel]
    if isinstance(policy, MultiLabelPolicy):
        for name in ("features", "row_costs"):
            if getattr(fields, name) is not None:
                problem = f"`{name}` must not be sent to a policy of several labels per row"
                raise HTTPError(INVALID, problem, "Leave it out: the costs depend on labels alone")
        of_logits, of_probabilities = MultiLabel.from_logits, MultiLabel
        each, n_names = "label", len(policy.label_names)
        fix = "Send the probability of each label, from 0 to 1, or use `logits`"
    else:
        of_logits, of_probabilities = Logits, Probabilities
        each, n_names = "class", len(policy.classes)
        fix = "Send numbers from 0 to 1 that sum to 1 per row, or use `logits`"
    outputs: Logits | Probabilities | MultiLabel
    if fields.logits is not None:
        outputs = of_logits(_as_matrix(fields.logits, "logits", settings))
    else:
        array = _as_matrix(fields.probabilities, "probabilities", settings)
        try:
            outputs = of_probabilities(array)
        except BadValueError as error:
            raise as_http_error(error, "probabilities", fix) from error
    n_columns = outputs.array.shape[1]
    if n_columns != n_names:
        name = "probabilities" if fields.logits is None else "logits"
        problem = f"`{name}` must have {n_names} columns, one per {each}, got {n_columns} in row 0"
        raise HTTPError(INVALID, problem, "Send the outputs that the policy was fitted on")
    return outputs


def _as_matrix(value: Any, name: str, settings: Settings) -> FloatArray:
    """Return a float32 matrix within the limits of a request."""
    require_few(len(value) if isinstance(value, list) else 0, settings.max_rows)
    fix = f'Send for example "{name}": [[2.5, -1.0], [0.5, 0.0]]'
    array = read_numbers(value, name, 0, fix, limit=MAX_FLOAT32)
    n_rows, n_columns = array.shape
    require_few(n_rows, settings.max_rows)
    require_few(n_columns, settings.max_columns, "columns")
    return array.astype(np.float32)


def _as_row_costs(value: Any, n_rows: int, settings: Settings) -> dict[str, FloatArray] | None:
    """Return the columns that costs depend on, or None."""
    if value is None:
        return None
    fix = 'Send for example "row_costs": {"amount": [120.0]}'
    if not isinstance(value, dict) or not value:
        problem = f"`row_costs` must be lists of numbers by column name, got {show_json(value)}"
        raise HTTPError(INVALID, problem, fix)
    require_few(len(value), settings.max_columns, "columns")
    found = {}
    for name, column in value.items():
        place = f"row_costs.{name[:50]}"
        found[name] = read_numbers(column, place, None, fix, limit=MAX_FLOAT64)
        if len(column) != n_rows:
            got = f"{len(column)} for {quantity(n_rows)}"
            raise HTTPError(INVALID, f"`{place}` must be one number per row, got {got}", fix)
    return found


def as_unique_ids(ids: list[str] | None, n_rows: int, key: str | None) -> list[str]:
    """Return unique ids; with an idempotency key, generated ids are the same every time."""
    if ids is None:
        start = key or uuid4().hex
        return [f"{start}-{row}" for row in range(n_rows)]
    if len(ids) != n_rows:
        problem = f"`ids` must have one id per row, got {len(ids)} for {quantity(n_rows, 'row')}"
        raise HTTPError(INVALID, problem, "Send as many ids as rows")
    require_unique(ids, "Send one id per row")
    return ids


def require_unique(ids: Sequence[str], fix: str) -> None:
    """Raise if an id is there more than once."""
    if len(set(ids)) < len(ids):
        [(first, number)] = Counter(ids).most_common(1)
        times = "twice" if number == 2 else f"{number:,} times"
        raise HTTPError(INVALID, f"`ids` must be unique, got {first!r} {times}", fix)


def as_links(value: Any, n_rows: int) -> list[str | None]:
    """Return web addresses that a browser opens for reviewers."""
    if value is None:
        return [None] * n_rows
    is_list = isinstance(value, list) and len(value) == n_rows
    if not is_list or not all(link is None or _is_web_address(link) for link in value):
        problem = "`links` must be a list of http(s) addresses or null, one per row"
        raise HTTPError(INVALID, problem, "Use for example https://example.org/picture.png")
    return list(value)


def _is_web_address(link: Any) -> bool:
    """Return whether a link is an absolute http or https address."""
    is_text = isinstance(link, str) and len(link) <= MAX_LINK_LENGTH and link.isprintable()
    return is_text and WEB_ADDRESS.fullmatch(link) is not None


def as_http_error(error: BadTypeError | BadValueError, name: str, fix: str) -> HTTPError:
    """Return an error of the library in terms of a request field."""
    got = "none" if error.got == "None" else error.got
    return HTTPError(INVALID, f"`{name}` {error.moved(got=got).problem}", fix)


def require_few(number: int, limit: int, what: str = "rows") -> None:
    """Raise if a request has too many rows or columns."""
    if number > limit:
        problem = f"A request may have at most {limit:,} {what}"
        raise HTTPError(TOO_LARGE, problem, f"Send fewer {what} per request")
