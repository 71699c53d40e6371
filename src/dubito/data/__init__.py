"""Where rows come from: arrays, frames and files, as batches and as shards that add up."""

from dubito.data.batch import Batch
from dubito.data.columns import Columns
from dubito.data.files import FileShards, read, scan
from dubito.data.samples import FashionMnist, load_fashion_mnist
from dubito.data.shards import ArrayShards, Shards

__all__ = [
    "ArrayShards",
    "Batch",
    "Columns",
    "FashionMnist",
    "FileShards",
    "Shards",
    "load_fashion_mnist",
    "read",
    "scan",
]
