"""The worked examples of CONTRIBUTING.md run as they are."""

import doctest
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dubito import Logits, TopLabel
from dubito.calibrate import BaseCalibrator
from dubito.data import Batch

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"
NAME = "contributing_examples"
rng = np.random.default_rng(0)


@pytest.fixture(scope="module")
def examples() -> Iterator[ModuleType]:
    """All code blocks, in order, in one module."""
    blocks = re.findall(r" +```python\n(.*?)\n +```", CONTRIBUTING.read_text(), flags=re.DOTALL)
    assert len(blocks) == 3
    module = ModuleType(NAME)
    sys.modules[NAME] = module  # dataclasses look up their module
    for block in blocks:
        exec(compile(textwrap.dedent(block), "CONTRIBUTING.md", "exec"), module.__dict__)
    yield module
    del sys.modules[NAME]


def test_the_metric_pools_and_survives_json(examples: ModuleType) -> None:
    kind: Any = examples.MeanUncertaintyState
    for batch in (
        Batch.of(rng.integers(0, 3, 30), Logits(rng.normal(size=(30, 3)))),
        Batch.of(None, TopLabel(rng.random(30), rng.random(30) < 0.5)),
    ):
        parts = kind.of(batch.take(slice(0, 10))) + kind.of(batch.take(slice(10, 30)))
        assert parts.value == pytest.approx(kind.of(batch).value)
        assert kind.from_dict(json.loads(json.dumps(parts.to_dict()))) == parts


def test_the_calibrator_predicts_classes_as_often_as_they_occur(examples: ModuleType) -> None:
    logits = Logits(rng.normal(size=(500, 3)))
    labels = np.where(rng.random(500) < 0.8, 0, rng.integers(0, 3, 500))
    calibrator: BaseCalibrator = examples.FrequencyShift().fit(logits, labels)
    before, after = np.exp(logits.array), calibrator.predict_proba(logits)
    before /= before.sum(axis=1, keepdims=True)
    frequencies = np.bincount(labels, minlength=3) / 500
    gap_before, gap_after = (
        np.abs(one.mean(axis=0) - frequencies).max() for one in (before, after)
    )
    assert gap_after < gap_before / 3
    assert "shifted by up to" in calibrator.summary()


def test_the_score_is_the_distance_to_the_weighted_mean(examples: ModuleType) -> None:
    features, weight = rng.normal(size=(100, 4)), rng.random(100) + 0.5
    score = examples.CenterDistance().fit(features, sample_weight=weight)
    center = np.average(features, axis=0, weights=weight)
    expected = np.linalg.norm(features - center, axis=1)
    assert score.score(features) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["mean_uncertainty", "FrequencyShift", "CenterDistance"])
def test_doctests_of_the_examples_pass(examples: ModuleType, name: str) -> None:
    finder = doctest.DocTestFinder(recurse=False)
    (test,) = finder.find(getattr(examples, name), name, module=examples, globs=examples.__dict__)
    result = doctest.DocTestRunner().run(test)
    assert result.attempted >= 1
    assert result.failed == 0
