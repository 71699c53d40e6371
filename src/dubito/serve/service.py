"""What the routes share: the store, the policies, settings and counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
from fastapi import Request

from dubito.serve.catalog import Catalog
from dubito.serve.deciding import Question, decide_together
from dubito.serve.metrics import Metrics
from dubito.serve.settings import Settings
from dubito.serve.store import NewDecisions, Store
from dubito.serve.together import Together


@final
@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """One process of the service. `drawing` draws rows to audit: nobody can foresee which."""

    store: Store
    settings: Settings
    catalog: Catalog
    metrics: Metrics = field(default_factory=Metrics)
    drawing: np.random.Generator = field(default_factory=np.random.default_rng)
    together: Together[Question, NewDecisions] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "together", Together(self.decide_all))

    def decide_all(self, questions: list[Question]) -> list[NewDecisions]:
        """Decide the rows of requests of one kind."""
        return decide_together(questions, self.settings, self.drawing)


def service_of(request: Request) -> Service:
    """Return the service that a request came to."""
    service: Service = request.app.state.service
    return service
