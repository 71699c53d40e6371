"""The table of speeds in README.md, from what the benchmarks printed (docs/benchmarks/*.txt).

    python -m benchmarks.readme_table            # print it
    python -m benchmarks.readme_table --write    # and put it into README.md

Each line is one table that a benchmark printed in one run; a ratio above 1 means that the other
library took that many times as long as dubito, one below 1 that it was faster.
"""

import argparse
import re
from pathlib import Path

__all__ = ["main", "table_lines"]

ROOT = Path(__file__).parents[1]
PRINTED = ROOT / "docs" / "benchmarks"
TABLES = (  # in which file, below which title, our name, and what it is called in the README
    ("calibration_speed.txt", "Temperature, 50,000 x 1,000", "TemperatureScaling", "temperature"),
    ("calibration_speed.txt", "Matrix, 5,000 x 100", "StructuredMatrixScaling", "matrix scaling"),
    ("calibration_speed.txt", "Isotonic, 50,000 x 2", "IsotonicCalibration", "isotonic"),
    ("calibration_speed.txt", "Histogram, 50,000 x 2", "HistogramBinning", "histogram binning"),
    ("calibration_speed.txt", "Platt, 50,000 x 2", "PlattScaling", "Platt scaling"),
    ("sets.txt", "fit and predict, 50,000 x 1,000", "APS", "conformal sets (APS)"),
)
PEERS = ("scikit-learn", "netcal", "probmetrics", "MAPIE", "TorchCP")
START, END = "<!-- benchmarks.readme_table -->", "<!-- end -->"


def seconds_below(text: str, title: str) -> dict[str, float]:
    """Return the seconds of each method in the table below a title."""
    lines = iter(text[text.index(title) :].splitlines()[1:])
    found: dict[str, float] = {}
    for line in lines:
        row = re.match(r"(\S.*?) {2,}([\d.]+)( |$)", line)
        if row:
            found[row.group(1)] = float(row.group(2))
        elif found and not line.strip():
            break
    return found


def table_lines() -> list[str]:
    """Return the lines of the table in Markdown."""
    lines = [f"| seconds | dubito | {' | '.join(PEERS)} |", f"|---|---|{'---|' * len(PEERS)}"]
    for file, title, method, name in TABLES:
        seconds = seconds_below((PRINTED / file).read_text(), title)
        ours = seconds[f"dubito {method}"]
        cells = []
        for peer in PEERS:
            wanted = f"{peer} {method}" if file == "sets.txt" else peer
            theirs = [value for key, value in seconds.items() if key.startswith(wanted)]
            cells.append(f"{min(theirs) / ours:.1f} x" if theirs else "")
        size = re.findall(r"[\d,]+ x [\d,]+", title)[0]
        lines.append(f"| {name}, {size} | {ours:.4f} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Print the table, and write it on request."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--write", action="store_true", help="put it into README.md")
    table = "\n".join(table_lines())
    print(table)
    if parser.parse_args().write:
        page = ROOT / "README.md"
        before, _, rest = page.read_text().partition(START)
        page.write_text(f"{before}{START}\n{table}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
