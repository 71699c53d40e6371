import struct
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito.data.stream import _require_small, read_stream
from dubito.errors import BadValueError, DubitoError


def stream_of(table: pa.Table, compression: str | None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=400)
    return bytes(sink.getvalue())


def table_of(rng: np.random.Generator) -> pa.Table:
    texts = pa.array([f"text {k % 7}" if k % 5 else None for k in range(1000)])
    flat = pa.array(rng.normal(size=3000).astype(np.float32))
    return pa.table(
        {
            "logits": pa.FixedSizeListArray.from_arrays(flat, 3),
            "zeros": pa.array(np.zeros(1000)),
            "ids": texts,
            "coded": texts.dictionary_encode(),
        }
    )


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_the_size_is_that_of_all_buffers(compression: str | None) -> None:
    table = table_of(np.random.default_rng(0))
    content = stream_of(table, compression)
    # Written buffers are padded to 64 bytes only outside of what their lengths cover.
    parts = [table.slice(start, 400).combine_chunks() for start in (0, 400, 800)]
    floats = sum(8 * part.num_rows + 12 * part.num_rows for part in parts)
    _require_small(content, 2 * floats)
    with pytest.raises(BadValueError) as caught:
        _require_small(content, floats)
    assert str(caught.value).startswith(
        f"Arrow stream: `bytes` must be at most {floats:,}, uncompressed, got "
    )
    limits = {"max_rows": 1000, "max_columns": 3, "max_bytes": 2 * floats}
    found = read_stream(content, **limits)
    assert found["ids"] == found["coded"] == table["ids"].to_pylist()
    assert found["logits"].tolist() == table["logits"].to_pylist()


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_the_exact_size_is_reported(compression: str) -> None:
    content = stream_of(pa.table({"x": np.zeros(300), "y": np.arange(300.0)}), compression)
    _require_small(content, 4800)
    with pytest.raises(BadValueError, match=r"must be at most 4,799, uncompressed, got 4,800 or"):
        _require_small(content, 4799)


# Not `ru_maxrss`: a child's begins with its parent's peak, and would hide what it takes itself.
BOMB = """
import re, sys
from pathlib import Path
from dubito.data.stream import read_stream

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

content = sys.stdin.buffer.read()
before = peak()
try:
    read_stream(content, max_rows=50_000, max_columns=10_000, max_bytes=32 << 20)
except ValueError as error:
    print(error)
print((peak() - before) >> 10)
"""


@pytest.mark.slow
def test_a_decompression_bomb_raises_and_takes_no_memory() -> None:
    flat = pa.array(np.zeros(100_000_000, np.float32))
    table = pa.table({"logits": pa.FixedSizeListArray.from_arrays(flat, 2000)})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    content = bytes(sink.getvalue())
    assert len(content) < 50_000
    done = subprocess.run([sys.executable, "-c", BOMB], input=content, stdout=-1, check=True)
    words, megabytes = done.stdout.decode().splitlines()
    assert words == (
        "Arrow stream: `bytes` must be at most 33,554,432, uncompressed, got 400,000,000 or "
        "more. Send fewer rows per stream."
    )
    assert int(megabytes) < 50


def test_many_rows_that_name_one_long_text_share_it() -> None:
    long = pa.array(["x" * 1_000_000])
    table = pa.table({"ids": pa.DictionaryArray.from_arrays(np.zeros(2000, np.int32), long)})
    content = stream_of(table, None)
    found = read_stream(content, max_rows=2000, max_columns=1, max_bytes=10_000_000)["ids"]
    assert len(found) == 2000
    assert len({id(text) for text in found}) <= 5  # one a batch


def test_a_negative_buffer_size_raises() -> None:
    content = bytearray(stream_of(pa.table({"x": np.zeros(500)}), "zstd"))
    at = bytes(content).index(struct.pack("<q", 3200))
    content[at : at + 8] = struct.pack("<q", -7)
    with pytest.raises(DubitoError, match="The Arrow stream cannot be read"):
        read_stream(bytes(content), max_rows=1000, max_columns=1, max_bytes=10_000)


@given(st.integers(0, 100_000), st.integers(1, 255))
def test_a_flipped_byte_is_read_or_raises(place: int, change: int) -> None:
    whole = bytearray(stream_of(pa.table({"x": np.zeros(50), "y": ["a"] * 50}), "lz4"))
    whole[place % len(whole)] ^= change
    try:
        found = read_stream(bytes(whole), max_rows=100, max_columns=4, max_bytes=2000)
    except DubitoError:
        return
    assert all(len(column) <= 100 for column in found.values())
