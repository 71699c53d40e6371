"""The rows that a request asks about: checked, named, and digested."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import Any, final
from uuid import uuid4

import numpy as np

from dubito.data.batch import Batch
from dubito.errors import BadValueError
from dubito.outputs import BaseClassOutputs, Logits, Probabilities
from dubito.serve.bodies import as_fields, as_ids
from dubito.serve.matrices import CALLER, as_row_costs, as_rows, counted, told
from dubito.serve.refusals import WRONG, RefusedError
from dubito.serve.settings import Settings

FIELDS = ("logits", "probabilities", "ids", "features", "row_costs", "links")
LONGEST_LINK = 2000
WEB = re.compile(
    r"https?://(?:[^/?#\[\]\\]+|[^/?#\[\]\\]*\[[0-9a-fA-F:.]+\](?::[0-9]*)?)(?:[/?#].*)?"
)


@final
@dataclass(frozen=True, slots=True, eq=False)
class AskedRows:
    """Outputs with what else is known of the rows, their ids, and links to what they are about."""

    batch: Batch
    ids: list[str]
    links: list[str | None]

    @classmethod
    def of(cls, body: Any, n_classes: int, settings: Settings, key: str | None = None) -> AskedRows:
        """Check a body; rows without ids get some of their own, or of the idempotency key."""
        fields = as_fields(body, FIELDS)
        outputs = _as_class_outputs(fields, settings)
        if outputs.n_classes != n_classes:
            problem = f"A row must have {n_classes} columns, one a class. Got {outputs.n_classes}"
            raise RefusedError(WRONG, problem, "the outputs that the policy was fitted on")
        features = fields.get("features")
        if features is not None:
            features = as_rows(features, "features", settings)
            if len(features) != len(outputs):
                got = f"{len(features)} for {counted(len(outputs), 'row')}"
                problem = f"`features` must be one row for each row that is decided. Got {got}"
                raise RefusedError(WRONG, problem, "sending both in the same order")
        row_costs = as_row_costs(fields.get("row_costs"), len(outputs))
        batch = Batch.of(None, outputs, features=features, row_costs=row_costs, caller=CALLER)
        ids = fields.get("ids")
        return cls(
            batch=batch,
            ids=_made_ids(len(batch), key) if ids is None else _as_different(ids, len(batch)),
            links=_as_links(fields.get("links"), len(batch)),
        )

    @classmethod
    def joined(cls, parts: Sequence[AskedRows]) -> AskedRows:
        """Return the rows of several requests, all logits or all probabilities and nothing else."""
        if len(parts) == 1:
            return parts[0]
        outputs = type(parts[0].outputs)(np.concatenate([part.outputs.array for part in parts]))
        return cls(
            batch=Batch.of(None, outputs, caller=CALLER),
            ids=list(chain.from_iterable(part.ids for part in parts)),
            links=list(chain.from_iterable(part.links for part in parts)),
        )

    @property
    def outputs(self) -> Logits | Probabilities:
        """What the model put out."""
        assert isinstance(self.batch.outputs, Logits | Probabilities)
        return self.batch.outputs

    @property
    def digests(self) -> list[bytes]:
        """A digest of each row: of all that was sent about it."""
        parts = [np.ascontiguousarray(self.outputs.array, "<f4")]
        if self.batch.features is not None:
            parts.append(np.ascontiguousarray(self.batch.features, "<f4"))
        if self.batch.row_costs is not None:
            parts.append(np.ascontiguousarray(self.batch.row_costs[:, np.newaxis], "<f8"))
        kinds = [f"{part.dtype.str}{part.shape[1]}" for part in parts]
        start = blake2b(f"{type(self.outputs).__name__} {kinds} ".encode(), digest_size=16)
        whole = np.hstack([part.view(np.uint8) for part in parts])
        content, width = memoryview(whole.tobytes()), whole.shape[1]
        found = []
        for row, link in enumerate(self.links):
            one = start.copy()
            one.update(content[row * width : (row + 1) * width])
            if link is not None:
                one.update(link.encode())
            found.append(one.digest())
        return found


def _as_class_outputs(fields: Mapping[str, Any], settings: Settings) -> BaseClassOutputs:
    """Return what the model put out, of which the body says what it is."""
    kinds = [name for name in ("logits", "probabilities") if fields.get(name) is not None]
    if len(kinds) != 1:
        problem = "The body must have either `logits` or `probabilities`"
        raise RefusedError(WRONG, problem, '{"logits": [[2.5, -1.0]]}')
    array = as_rows(fields[kinds[0]], kinds[0], settings)
    if kinds[0] == "logits":
        return Logits(array)
    try:
        return Probabilities(array)
    except BadValueError as error:
        fix = "`logits` if these are logits, or numbers from 0 to 1 that sum to 1 in each row"
        raise told(error, "probabilities", fix) from error


def _made_ids(n_rows: int, key: str | None) -> list[str]:
    """Return ids for rows without: with an idempotency key, the same ones every time."""
    start = uuid4().hex if key is None else blake2b(key.encode(), digest_size=16).hexdigest()
    return [f"{start}-{row}" for row in range(n_rows)]


def _as_different(value: Any, n_rows: int) -> list[str]:
    """Return the ids of rows, none of which comes twice."""
    ids = as_ids(value, n_rows)
    if len(set(ids)) < len(ids):
        raise RefusedError(WRONG, "`ids` must be all different", "one id a row")
    return ids


def _as_links(value: Any, n_rows: int) -> list[str | None]:
    """Return addresses of what rows are about: of the web, as a browser will open them."""
    if value is None:
        return [None] * n_rows
    rule, fix = "a list of web addresses or null, one a row", "https://example.org/picture.png"
    if not isinstance(value, list) or len(value) != n_rows:
        raise RefusedError(WRONG, f"`links` must be {rule}", fix)
    for link in value:
        if link is not None and not (
            isinstance(link, str)
            and len(link) <= LONGEST_LINK
            and link.isprintable()
            and WEB.fullmatch(link)
        ):
            raise RefusedError(WRONG, f"`links` must be {rule}", fix)
    return value
