import numpy as np
import pytest

from dubito import Logits, measure
from dubito.data import Batch
from dubito.measure.scorers import CATALOG

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_a_metric_of_a_batch_equals_its_function(name: str) -> None:
    settings = {"risk": 0.6} if name == "coverage_at_risk" else {}
    y, outputs = RNG.integers(0, 4, 200), Logits(RNG.normal(size=(200, 4)))
    weight = RNG.random(200)
    of_batch = CATALOG[name].of_batch(Batch.of(y, outputs, sample_weight=weight), **settings)
    function = getattr(measure, name)
    assert of_batch == pytest.approx(function(y, outputs, sample_weight=weight, **settings))


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_better_outputs_score_better(name: str) -> None:
    settings = {"risk": 0.3} if name == "coverage_at_risk" else {}
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 2, (3000, 4))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = np.minimum((p.cumsum(axis=1) < rng.random((3000, 1))).sum(axis=1), 3)
    noise = rng.normal(0, 4, (3000, 4))
    good, bad = (CATALOG[name].function(y, Logits(z), **settings) for z in (logits, logits + noise))
    assert (good > bad) == CATALOG[name].is_higher_better
