import numpy as np
import pytest

from benchmarks.penalized import objective, penalties
from dubito import Logits
from dubito.calibrate.affine import Basis, fit_affine
from dubito.data import ArrayShards, Batch


@pytest.mark.parametrize("name", ["svs", "sms"])
def test_our_solution_is_lower_than_its_neighbors(name: str) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 200)
    logits = np.log(rng.dirichlet(np.ones(3), 200))
    penalty = penalties(name, 200, 3)
    table = fit_affine(ArrayShards(Batch.of(y, Logits(logits))), Basis(1.0), penalty)
    least = objective(logits, y, table, penalty)
    for _ in range(20):
        nearby = table + 0.01 * rng.normal(size=table.shape)
        assert least < objective(logits, y, nearby, penalty)


def test_the_penalties_of_a_matrix() -> None:
    assert penalties("sms", 30, 3).tolist()[0] == pytest.approx([0.1, 0.2, 0.2, 0.1])
