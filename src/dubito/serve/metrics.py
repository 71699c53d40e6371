"""Counts of what the service did, as Prometheus reads them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from threading import Lock
from typing import final

BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # seconds
HELP = {
    "dubito_requests_total": "Requests answered, by route and status.",
    "dubito_decisions_total": "Rows decided, by action.",
    "dubito_labels_total": "Labels that arrived.",
}


@final
class Metrics:
    """Counters and one histogram, safe to use from any thread.

    >>> metrics = Metrics()
    >>> metrics.count("dubito_labels_total", 2)
    >>> metrics.text({"dubito_review_waiting": 3}).splitlines()[2]
    'dubito_labels_total 2'
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.counts: dict[tuple[str, str], float] = defaultdict(float)
        self.seconds = [0] * (len(BOUNDS) + 1)
        self.total_seconds = 0.0

    def count(self, name: str, amount: float = 1, **labels: str | int) -> None:
        """Add to a counter."""
        said = ",".join(f'{key}="{_escaped(str(value))}"' for key, value in labels.items())
        with self.lock:
            self.counts[name, said] += amount

    def took(self, seconds: float) -> None:
        """Note how long a request took."""
        place = next((k for k, bound in enumerate(BOUNDS) if seconds <= bound), len(BOUNDS))
        with self.lock:
            self.seconds[place] += 1
            self.total_seconds += seconds

    def text(self, gauges: Mapping[str, float]) -> str:
        """Return all of it as text, beside what is counted only when asked for."""
        with self.lock:
            counts, seconds, total = dict(self.counts), list(self.seconds), self.total_seconds
        lines = []
        for name in HELP:
            rows = [(said, value) for (known, said), value in counts.items() if known == name]
            if rows:
                lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} counter"]
                lines += [
                    f"{name}{f'{{{said}}}' if said else ''} {value:.15g}" for said, value in rows
                ]
        lines += _histogram("dubito_request_seconds", seconds, total)
        for name, value in gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value:.15g}"]
        return "\n".join(lines) + "\n"


def _histogram(name: str, counts: list[int], total: float) -> list[str]:
    """Return the lines of a histogram, whose bounds count all that is below."""
    lines, so_far = [f"# TYPE {name} histogram"], 0
    for bound, count in zip([*map(str, BOUNDS), "+Inf"], counts, strict=True):
        so_far += count
        lines.append(f'{name}_bucket{{le="{bound}"}} {so_far}')
    return [*lines, f"{name}_sum {total:.6f}", f"{name}_count {so_far}"]


def _escaped(text: str) -> str:
    """Return a label's value as Prometheus wants it."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
