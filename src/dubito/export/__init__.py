"""Policies and calibrators for other runtimes (ONNX, PyTorch, plain NumPy); audits for trackers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dubito.export.numpy_source import to_numpy
    from dubito.export.onnx_export import to_onnx
    from dubito.export.torch_module import ExportedModule, to_module, to_program
    from dubito.export.trackers import log_audit

__all__ = ["ExportedModule", "log_audit", "to_module", "to_numpy", "to_onnx", "to_program"]

_HOMES = {"log_audit": "trackers", "to_numpy": "numpy_source", "to_onnx": "onnx_export"}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"dubito.export.{_HOMES.get(name, 'torch_module')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
