"""`dubito doctor`: is the installation in order?"""

from __future__ import annotations

from typing import Any

import typer

from dubito.cli.options import command
from dubito.cli.printing import say, say_json, show_table

PACKAGES = (  # the last four are optional
    "numpy", "scipy", "scikit-learn", "numba", "pyarrow", "narwhals", "jinja2", "typer", "rich",
    "matplotlib", "torch", "dask", "fastapi",
)  # fmt: skip
STORED = {
    "accuracy": 0.8712500,
    "log loss": 0.6024715,
    "Brier score": 0.2138246,
    "ECE (15 uniform bins)": 0.0852124,
    "temperature": 2.8293724,
    "cost with reject at 0.2": 0.0851500,
}
TOLERANCE = 1e-6  # above rounding in single precision


@command()
def doctor() -> None:
    """Show versions, threads and compiled kernels, and verify results against stored values.

    Example: dubito doctor
    """
    facts, found = _environment(), _computed_metrics()
    checks = {name: [found[name], stored] for name, stored in STORED.items()}
    wrong = [name for name, (now, stored) in checks.items() if abs(now - stored) > TOLERANCE]
    say_json({**facts, "checks": checks, "wrong": wrong})
    say("\n".join(f"{name:<15} {value}" for name, value in facts.items()) + "\n")
    lines = [
        (name, f"{now:.7f}", f"{stored:.7f}", "wrong" if name in wrong else "ok")
        for name, (now, stored) in checks.items()
    ]
    show_table(("value", "computed", "expected", ""), lines)
    say(f"\n{'All checks passed' if not wrong else 'Checks failed: ' + ', '.join(wrong)}.")
    if wrong:
        raise typer.Exit(1)


def _environment() -> dict[str, Any]:
    """Return versions, platform, threads and the number of compiled kernels."""
    import platform
    from importlib.metadata import PackageNotFoundError, version
    from pathlib import Path

    from dubito import __version__, kernels
    from dubito.kernels.blocks import n_threads

    def installed(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "not installed (optional)"

    folder = Path(kernels.__file__).parent / "__pycache__"
    return {
        "dubito": __version__,
        "python": f"{platform.python_version()} on {platform.machine()}, {platform.system()}",
        **{name: installed(name) for name in PACKAGES},
        "threads": n_threads(),
        "cached kernels": len(list(folder.glob("*.nbc"))),
    }


def _computed_metrics() -> dict[str, float]:
    """Return metrics of the bundled sample, computed on this machine."""
    from dubito import Logits
    from dubito.calibrate import TemperatureScaling
    from dubito.data import load_fashion_mnist
    from dubito.decide import CostMatrix, optimal_actions, realized_cost
    from dubito.measure import accuracy, brier_score, expected_calibration_error, log_loss

    sample = load_fashion_mnist()
    outputs, labels = Logits(sample.test_logits), sample.test_labels
    learned = TemperatureScaling().fit(Logits(sample.validation_logits), sample.validation_labels)
    costs = CostMatrix.zero_one(len(sample.classes)).with_reject(0.2)
    actions = optimal_actions(learned.transform(outputs), costs)
    return {
        "accuracy": accuracy(labels, outputs),
        "log loss": log_loss(labels, outputs),
        "Brier score": brier_score(labels, outputs),
        "ECE (15 uniform bins)": expected_calibration_error(labels, outputs),
        "temperature": learned.temperature_,
        "cost with reject at 0.2": realized_cost(labels, actions, costs),
    }
