"""The audit of several labels per row, compared with sorting its columns in one run.

    python -m benchmarks.multilabel_audit            # 1,000,000 rows x 14 labels
    python -m benchmarks.multilabel_audit --quick    # a tenth of the rows

The audit has all figures per label with analytic intervals, macro, micro and weighted means, and
the metrics of rows, without the bootstrap. Seconds are CPU seconds of all threads, the minimum of
several alternating calls. Streamed, the rows come from a Parquet file in batches.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.clock import best_times, peak_growth
from dubito import MultiLabel, audit
from dubito.arrays import FloatArray
from dubito.data import Columns, scan
from dubito.measure import MultiLabelAudit

__all__ = ["main"]

N_LABELS = 14
N_TIMES = 3
MAX_RATIO = 6.0


def findings(n_rows: int) -> tuple[FloatArray, FloatArray]:
    """Return labels of which about 8 % are true and 5 % unknown, and their probabilities."""
    rng = np.random.default_rng(0)
    odds = rng.normal(-3.5, 1.5, (n_rows, N_LABELS)) + rng.normal(0, 1, (n_rows, 1))
    y = (rng.random(odds.shape) < 1 / (1 + np.exp(-0.9 * odds))) * 1.0
    y[rng.random(odds.shape) < 0.05] = np.nan
    return y, 1 / (1 + np.exp(-odds))


def main() -> None:
    """Print the table."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    n_rows = 100_000 if parser.parse_args().quick else 1_000_000
    y, p = findings(n_rows)
    outputs = MultiLabel(p)
    audit(y[:1000], MultiLabel(p[:1000]), n_resamples=0)  # loads or compiles the kernels
    calls = {
        "np.sort of each column": lambda: [np.sort(p[:, k]) for k in range(N_LABELS)],
        "audit": lambda: audit(y, outputs, n_resamples=0),
        "audit, with bootstrap": lambda: audit(y, outputs),
    }
    best = best_times(calls, N_TIMES, time.process_time)
    reference = best["np.sort of each column"]
    print(f"{n_rows:,} x {N_LABELS} probabilities, CPU seconds, minimum of {N_TIMES}\n")
    for name, seconds in best.items():
        print(f"{name:<24} {seconds:>9.3f} {seconds / reference:>8.2f} x")
    print(f"\naudit: {best['audit'] / reference:.2f} x the sorts (at most {MAX_RATIO:g})\n")
    with tempfile.TemporaryDirectory() as folder:
        for size in (n_rows // 2, n_rows):
            path = Path(folder, "findings.parquet")
            table = {f"p_{k}": p[:size, k] for k in range(N_LABELS)}
            table |= {f"y_{k}": y[:size, k] for k in range(N_LABELS)}
            pq.write_table(pa.table(table), path, row_group_size=100_000)
            rows = scan(path, Columns(multilabel="p_*", label="y_*"))
            growth = peak_growth(lambda rows=rows: MultiLabelAudit.of(rows, n_resamples=0))  # type: ignore[misc]
            print(f"streamed, {size:>9,} rows: {growth:,.0f} MB of memory")


if __name__ == "__main__":
    main()
