"""A second process compiles, in the first run on a machine, what a command needs last."""

import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from dubito import Logits, Probabilities, TopLabel
from dubito.cli import ahead
from dubito.kernels.compile import KERNELS, NOTICE

FIT_KERNELS = {
    "add_forest", "add_to_cells", "fill_basis", "fill_bumps", "grow_tree", "leaves_of",
    "narrow_least", "narrow_temperature_sums", "pool_neighbors", "residual_rows", "vector_sums",
}  # fmt: skip
AUDIT_KERNELS = {"narrow_rows", "reliability_sums", "score_sums"}
ALL_FOUND = """
import numpy as np
from dubito import AutoCalibrator, CostMatrix, Logits
from dubito.cli.ahead import _rehearse
from dubito.decide import optimal_actions
from dubito.kernels.compile import KERNELS

def known():
    return {(one.py_func.__name__, str(types)) for one in KERNELS for types in one.signatures}

_rehearse("Logits", "float32", 3)
before = known()
rng = np.random.default_rng(0)
logits = rng.normal(size=(1200, 3)).astype(np.float32)
y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
fitted = AutoCalibrator(max_parts=None).fit(Logits(logits), y)
optimal_actions(fitted.apply(Logits(logits)), CostMatrix.zero_one(3).with_reject(0.3))
print(*{name for name, _ in known() - before if name[0] != "_"})
"""


class Started(list[Any]):
    """The processes that would have been started."""

    def start(self, words: list[str], **_: Any) -> Any:
        self.append(words)
        return self

    def terminate(self) -> None:
        """End the process."""

    def wait(self) -> None:
        """Wait for its end."""


@pytest.mark.parametrize(
    ("n_compiled", "threads", "n_started"), [(0, "2", 0), (1, "1", 0), (1, "2", 1)]
)
def test_a_process_starts_only_if_kernels_are_compiled_and_a_core_is_idle(
    monkeypatch: pytest.MonkeyPatch, n_compiled: int, threads: str, n_started: int
) -> None:
    outputs = Logits(np.zeros((2, 3), np.float32))  # may compile
    started = Started()
    monkeypatch.setattr(ahead, "Popen", started.start)
    monkeypatch.setattr(NOTICE, "n_compiled", n_compiled)
    monkeypatch.setenv("DUBITO_THREADS", threads)
    ahead.compile_ahead(TopLabel([0.5], [1.0]))
    ahead.compile_ahead(outputs, ends_with_audit=True)
    ahead.compile_ahead(outputs, is_audit=True)
    kind, steps = ["Logits", "float32", "3"], [["fit", "audit"], ["audit"]] if n_started else []
    assert [words[3:] for words in started] == [[*kind, *step] for step in steps]


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the kernels that are called, by which they are compiled or loaded."""
    import_module("dubito.decide")  # and with it all modules that a rehearsal imports
    names = set[str]()

    def recording(kernel: Any) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            names.add(kernel.py_func.__name__)
            return kernel(*arguments)

        return call

    kernels = {id(one): recording(one) for one in KERNELS}
    for module in [one for name, one in sys.modules.items() if name.startswith("dubito.")]:
        for name, value in list(vars(module).items()):
            if id(value) in kernels:
                monkeypatch.setattr(module, name, kernels[id(value)])
    return names


@pytest.mark.parametrize("kind", [Logits, Probabilities])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_rehearsal_compiles_or_loads_kernels(
    kind: type, n_classes: int, called: set[str]
) -> None:
    has_audit = n_classes == 2
    ahead._rehearse(kind.__name__, "float64", n_classes, ["fit", *["audit"] * has_audit])
    assert called >= FIT_KERNELS
    assert (called >= AUDIT_KERNELS) == has_audit


AUDIT_FOUND = """
import numpy as np
from dubito import Logits
from dubito.cli.ahead import _rehearse
from dubito.kernels.compile import KERNELS
from dubito.measure import audit

def known():
    return {(one.py_func.__name__, str(types)) for one in KERNELS for types in one.signatures}

_rehearse("Logits", "float32", 3, ["audit"])
before = known()
rng = np.random.default_rng(0)
logits = rng.normal(size=(1200, 3)).astype(np.float32)
audit((logits + rng.gumbel(size=logits.shape)).argmax(axis=1), Logits(logits))
print(*{name for name, _ in known() - before if name[0] != "_"})
"""


@pytest.mark.slow
def test_a_rehearsal_of_an_audit_compiles_all_but_the_pass_over_the_matrix() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AUDIT_FOUND], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["narrow_rows"]


@pytest.mark.slow
def test_a_rehearsal_compiles_nearly_all_that_a_fit_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALL_FOUND], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) <= {"fit_mixture", "write_probabilities"}  # of mixtures
