"""The files that `benchmarks.scale` reads: predictions of several shapes."""

from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import pyarrow as pa
from pyarrow import dataset, parquet

from dubito.arrays import FloatArray, IntArray
from dubito.data import Columns

__all__ = [
    "LISTS",
    "PLAIN",
    "SHAPES",
    "WIDE",
    "WIDER",
    "Shape",
    "read_by_batches",
    "read_by_scanner",
    "write_rows",
]

GROUP_ENTRIES = 1 << 21  # logits per row group: 8 MB


@final
@dataclass(frozen=True, slots=True)
class Shape:
    """The number of classes of a file, and the layout of its logits."""

    title: str
    n_classes: int
    is_list: bool
    group_entries: int = GROUP_ENTRIES

    @property
    def columns(self) -> Columns:
        """The roles of the columns."""
        return Columns(label="y", logits="logits" if self.is_list else "logit_*")

    @property
    def group_rows(self) -> int:
        """The number of rows of a row group."""
        return max(1, self.group_entries // self.n_classes)


LISTS = Shape("fixed-size lists of 10", 10, is_list=True)
PLAIN = Shape("10 scalar columns", 10, is_list=False)
WIDE = Shape("fixed-size lists of 100", 100, is_list=True)
WIDER = Shape("fixed-size lists of 1,000", 1_000, is_list=True)
SHAPES = {shape.title: shape for shape in (LISTS, PLAIN, WIDE, WIDER)}


def some_rows(n_rows: int, n_classes: int) -> tuple[FloatArray, IntArray]:
    """Return logits and labels of an over-confident model."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((n_rows, n_classes), dtype=np.float32)
    # The argmax of logits plus Gumbel noise is a draw from their softmax.
    noise = -np.log(rng.standard_exponential(logits.shape, dtype=np.float32))
    return logits, (logits / 2 + noise).argmax(axis=1)


def table_of(logits: FloatArray, y: IntArray, shape: Shape) -> pa.Table:
    """Return rows as a table."""
    if shape.is_list:
        flat = pa.array(logits.ravel())
        return pa.table(
            {"y": y, "logits": pa.FixedSizeListArray.from_arrays(flat, shape.n_classes)}
        )
    columns = {f"logit_{k}": logits[:, k] for k in range(shape.n_classes)}
    return pa.table({"y": y, **columns})


def write_rows(path: Path, n_rows: int, shape: Shape) -> None:
    """Write rows, one row group at a time.

    Drawing random numbers would take longer than writing them: each group reuses those of the
    first, with classes rotated and rows shifted.
    """
    step = shape.group_rows
    logits, y = some_rows(min(step, n_rows), shape.n_classes)
    with parquet.ParquetWriter(path, table_of(logits[:1], y[:1], shape).schema) as writer:
        for group, low in enumerate(range(0, n_rows, step)):
            size = min(step, n_rows - low)
            rows = np.roll(np.arange(len(y)), 7 * group)[:size]
            turned = np.roll(logits[rows], group, axis=1)
            writer.write_table(table_of(turned, (y[rows] + group) % shape.n_classes, shape))


def read_by_batches(path: Path) -> int:
    """Read all columns with pyarrow, batch by batch."""
    with parquet.ParquetFile(path) as file:
        return sum(batch.num_rows for batch in file.iter_batches())


def read_by_scanner(path: Path) -> int:
    """Read all columns with pyarrow's dataset scanner, in threads."""
    return sum(batch.num_rows for batch in dataset.dataset(path).scanner().to_batches())
