"""Metrics compared with independent reference values on real outputs.

    python -m benchmarks.reference FOLDER

FOLDER holds NPZ files of outputs and labels, and `reference.json`: for each "file:array" the
accuracy, log loss (null if infinite), Brier score, and ECE and MCE with 15 uniform bins. Prints the
largest difference of each entry and exits with 1 if any is above 1e-6.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from dubito import Logits, Probabilities, TopLabel, audit

__all__ = ["differences", "main"]

FIGURES = {
    "accuracy": "accuracy",
    "log_loss": "log_loss",
    "brier": "brier_score",
    "ece15": "expected_calibration_error",
    "mce15": "maximum_calibration_error",
    "mean_confidence": "confidence",
}


def load_entry(folder: Path, entry: str) -> tuple[Any, Any]:
    """Return labels and outputs of an entry: "file:array", "file:array[pass]", or top-1 only."""
    name, _, part = entry.partition(":")
    arrays = np.load(folder / f"{name.split(' ')[0]}.npz", allow_pickle=False)
    if not part:
        return None, TopLabel(arrays["confidence"], arrays["pred"] == arrays["labels"])
    if " (columns 1-p, p)" in part:
        games = part.split(" ")[0]
        return arrays[f"{games}_y"], Probabilities(arrays[f"{games}_p"])
    found = re.fullmatch(r"(\w+?)(?:\[(\d+)\])?", part)
    assert found is not None, entry
    array = arrays[found[1]] if found[2] is None else arrays[found[1]][int(found[2])]
    half = found[1].rpartition("_")[2]
    labels = arrays["labels"] if "labels" in arrays else arrays[f"labels_{half}"]
    is_probability = found[1].startswith("probs")
    return labels, Probabilities(array) if is_probability else Logits(array)


def differences(folder: Path) -> dict[str, float]:
    """Return the largest difference of each entry; an infinite log loss must be infinite."""
    result = {}
    for entry, figures in json.loads((folder / "reference.json").read_text()).items():
        ours = audit(*load_entry(folder, entry), n_resamples=0)
        largest = 0.0
        for key, name in FIGURES.items():
            if key in figures:
                mine = getattr(ours, name)
                theirs = np.inf if figures[key] is None else figures[key]
                largest = max(largest, 0.0 if mine == theirs else abs(mine - theirs))
        result[entry] = largest
    return result


def main() -> None:
    """Print the differences."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("folder", type=Path)
    found = differences(parser.parse_args().folder)
    for entry, difference in found.items():
        print(f"{difference:.1e}  {entry}")
    print(f"\nlargest: {max(found.values()):.1e}")
    sys.exit(int(max(found.values()) > 1e-6))


if __name__ == "__main__":
    main()
