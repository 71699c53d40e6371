"""The routes under /v1: one file for each thing that is asked about."""

from dubito.serve.api.deciding import router as deciding
from dubito.serve.api.health import router as health
from dubito.serve.api.labeling import router as labeling
from dubito.serve.api.monitoring import router as monitoring
from dubito.serve.api.policies import router as policies
from dubito.serve.api.reviewing import router as reviewing

__all__ = ["deciding", "health", "labeling", "monitoring", "policies", "reviewing"]
