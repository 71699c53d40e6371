"""A report says which rows it was made of, and by what."""

import numpy as np

from dubito import Logits, __version__
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, fingerprint
from dubito.report.summary import Provenance

ROWS = Batch.of([0, 1], Logits([[0.0, 1.0], [2.0, 0.0]]))
OTHERS = Batch.of([1, 1], Logits([[0.0, 1.0], [2.0, 0.0]]))


def test_all_rows_have_their_fingerprint() -> None:
    marks = [fingerprint(ArrayShards(batch)) for batch in (ROWS, OTHERS)]
    assert Provenance.of([ROWS, None, OTHERS], 0, None).fingerprint == ", ".join(marks)


def test_versions_seed_and_command_are_told() -> None:
    found = Provenance.of([ROWS], 5, "make it")
    assert (found.seed, found.command) == (5, "make it")
    assert dict(found.versions)["dubito"] == __version__
    assert dict(found.versions)["numpy"] == np.__version__
