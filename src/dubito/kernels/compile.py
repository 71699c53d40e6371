"""Compilation of kernels: once per machine, cached on disk, with a notice."""

import sys
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import event

# A division that may raise ZeroDivisionError is a branch, and branches keep loops scalar.
# Sums may be reordered to fill vector lanes; NaN and infinity keep their meaning. A loop that sums
# writes to no array: if arrays might overlap it would run scalar, in another order, and the last
# digits would depend on the memory layout.
FAST: dict[str, Any] = {"error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz", "arcp"}}
# Elementary functions keep their order of operations: their last digits depend on it.
EXACT: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` on its first call, without the GIL, and cache it on disk."""
    try:
        return njit(cache=True, nogil=True, **FAST)(function)
    except RuntimeError:  # no writable directory: compile in every process
        return njit(nogil=True, **FAST)(function)


class CompilationNotice(event.Listener):
    """Prints once per process that kernels are being compiled rather than loaded."""

    has_spoken = False

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        is_ours = function.__module__.startswith("dubito.")
        if self.has_spoken or not is_ours or sys.stderr is None:  # a service may have no stderr
            return
        self.has_spoken = True
        sys.stderr.write("dubito: compiling Numba kernels (first use only, a few seconds)...\n")
        sys.stderr.flush()

    def on_end(self, event: Any) -> None:
        """Do nothing."""


event.register("numba:compile", CompilationNotice())  # type: ignore[no-untyped-call]
