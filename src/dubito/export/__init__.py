"""Policies and calibrators for other runtimes (ONNX, PyTorch, plain NumPy); audits for trackers."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dubito.export.numpy_source import to_numpy
    from dubito.export.onnx_export import to_onnx
    from dubito.export.torch_module import ExportedModule, to_module, to_program
    from dubito.export.trackers import log_audit

__all__ = ["ExportedModule", "log_audit", "to_module", "to_numpy", "to_onnx", "to_program"]


def __getattr__(name: str) -> Any:
    if name == "to_onnx":
        from dubito.export.onnx_export import to_onnx

        return to_onnx
    if name == "to_numpy":
        from dubito.export.numpy_source import to_numpy

        return to_numpy
    if name == "log_audit":
        from dubito.export.trackers import log_audit

        return log_audit
    if name in __all__:
        from dubito.export import torch_module

        return getattr(torch_module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
