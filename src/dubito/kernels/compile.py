"""Compilation of kernels: once per machine, cached on disk, with a notice."""

import gc
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, final

import llvmlite.binding as llvm
from numba import njit
from numba.core import event
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.runtime.nrt import rtsys

from dubito.kernels import Workload

# A division that may raise ZeroDivisionError is a branch, and branches keep loops scalar.
# Sums may be reordered to fill vector lanes; NaN and infinity keep their meaning. A loop that sums
# writes to no array: if arrays might overlap it would run scalar, in another order, and the last
# digits would depend on the memory layout.
FAST: dict[str, Any] = {"error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz", "arcp"}}
# Elementary functions keep their order of operations: their last digits depend on it.
EXACT: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}
INNER: dict[str, Any] = {**FAST, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

KERNELS: list[Any] = []  # all that were imported
SECONDS = 1.0  # that a kernel takes to compile, until some have been compiled
PAUSE = 10.0  # seconds between two lines where a line cannot be overwritten


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` on its first call, without the GIL, and cache it on disk.

    No other kernel may call it: what several kernels share is `inner`.
    """
    compiled: Any = njit(nogil=True, **FAST)(function)
    with suppress(RuntimeError):  # no writable directory: compile in every process
        cache: Any = LockedCache
        compiled._cache = cache(function)  # as `cache=True` does
    KERNELS.append(compiled)
    return compiled


class _MachineCode(CompileResultCacheImpl):
    """A cached kernel: its machine code, and only a name instead of the bitcode for callers.

    No kernel calls another, and bitcode takes longer to load than machine code.
    """

    def reduce(self, cres: Any) -> Any:
        (name, kind, (code, _)), *others = cres._reduce()
        named = f'define void @"{cres.fndesc.llvm_cpython_wrapper_name}"() {{ ret void }}'
        return (name, kind, (code, llvm.parse_assembly(named).as_bitcode())), *others


@final
class LockedCache(FunctionCache):
    """Numba's cache on disk, to which one process writes at a time.

    Two that save a kernel for different types at once could give both the same file name.
    """

    _impl_class = _MachineCode

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        # Numba would import all that it can compile, and with it scipy.linalg. A kernel that is
        # compiled needs only the memory of arrays; a compilation imports the rest itself.
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with open(Path(self.cache_path, "lock"), "ab") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


def inner(function: Callable[..., Any], **options: Any) -> Any:
    """Compile `function` only as a part of the kernels that call it; Python cannot call it.

    With `_nrt=False` it counts no references to arrays, and can make none.
    """
    return njit(nogil=True, **INNER, **options)(function)


class CompilationNotice(event.Listener):
    """Shows that kernels are being compiled rather than loaded, how many, and the time left.

    On a terminal this is one line, erased when a kernel is ready; elsewhere a new line every few
    seconds. A kernel that another kernel calls is not counted.
    """

    depth = n_compiled = 0
    seconds = 0.0
    started: float | None = None
    spoken = -PAUSE

    def on_start(self, event: Any) -> None:
        is_ours = event.data["dispatcher"].py_func.__module__.startswith("dubito.")
        self.depth += 1
        if self.depth > 1 or not is_ours or sys.stderr is None:  # a service may have no stderr
            return
        self.started = time.monotonic()
        if _is_terminal():
            sys.stderr.write(f"\r{self._text()}\x1b[K\r")
        elif self.started - self.spoken >= PAUSE:
            self.spoken = self.started
            sys.stderr.write(f"{self._text()}\n")
        sys.stderr.flush()

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if self.depth or self.started is None:
            return
        self.n_compiled += 1
        self.seconds += time.monotonic() - self.started
        self.started = None
        if _is_terminal():
            sys.stderr.write("\x1b[K")
            sys.stderr.flush()

    def _text(self) -> str:
        """Return how many kernels are ready, of about how many, and the time left."""
        n_ready = self.n_compiled + sum(sum(one.stats.cache_hits.values()) for one in KERNELS)
        text = "dubito: compiling kernels, once per machine"
        if not Workload.n_kernels:
            return f"{text}: {n_ready} ready, about {SECONDS:g} s each"
        n_left = max(Workload.n_kernels - n_ready, 1)
        seconds = n_left * (self.seconds + 3 * SECONDS) / (self.n_compiled + 3)
        return f"{text}: {n_ready} of about {n_ready + n_left}, about {seconds:.0f} s left"


def _is_terminal() -> bool:
    """Return whether a line of the standard error stream can be overwritten.

    Not where a progress bar has replaced the stream to keep its own line.
    """
    return sys.stderr is sys.__stderr__ is not None and sys.__stderr__.isatty()


@final
class GarbageCollectionPause(event.Listener):
    """Pauses the garbage collector while kernels compile, when it frees little and takes long."""

    depth = 0
    was_enabled = False

    def on_start(self, event: Any) -> None:
        self.depth += 1
        if self.depth == 1:
            self.was_enabled = gc.isenabled()
            gc.disable()

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if not self.depth and self.was_enabled:
            gc.enable()


NOTICE = CompilationNotice()
event.register("numba:compile", NOTICE)  # type: ignore[no-untyped-call]
event.register("numba:compile", GarbageCollectionPause())  # type: ignore[no-untyped-call]
