"""Input and output of rows: arrays, frames and files as batches and shards; sinks for results."""

from dubito.data.batch import Batch
from dubito.data.cache import CachedShards
from dubito.data.columns import Columns
from dubito.data.dask import DaskShards
from dubito.data.directory_sink import DirectorySink
from dubito.data.files import BadRow, BadRows, FileShards, read, scan
from dubito.data.labels import LabelMatrix
from dubito.data.progress import report_progress_to, show_progress
from dubito.data.samples import (
    FashionMNISTSample,
    FindingsSample,
    PaymentsSample,
    load_fashion_mnist,
    load_payments,
    make_findings,
    make_forecasts,
    make_questions,
)
from dubito.data.shards import ArrayShards, Shards, as_shards
from dubito.data.sink import EncodedLabels, Sink

__all__ = [
    "ArrayShards",
    "BadRow",
    "BadRows",
    "Batch",
    "CachedShards",
    "Columns",
    "DaskShards",
    "DirectorySink",
    "EncodedLabels",
    "FashionMNISTSample",
    "FileShards",
    "FindingsSample",
    "LabelMatrix",
    "PaymentsSample",
    "Shards",
    "Sink",
    "as_shards",
    "load_fashion_mnist",
    "load_payments",
    "make_findings",
    "make_forecasts",
    "make_questions",
    "read",
    "report_progress_to",
    "scan",
    "show_progress",
]
