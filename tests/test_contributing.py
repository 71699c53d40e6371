"""The worked example of CONTRIBUTING.md works: it is run here as it stands there."""

import doctest
import json
import re
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dubito import Logits, TopLabel
from dubito.data import Batch

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"


@pytest.fixture
def example() -> ModuleType:
    (block,) = re.findall(r" +```python\n(.*?)\n +```", CONTRIBUTING.read_text(), flags=re.DOTALL)
    module = ModuleType("mean_doubt")
    exec(compile(textwrap.dedent(block), "CONTRIBUTING.md", "exec"), module.__dict__)
    return module


def test_the_example_keeps_the_promises_of_a_state(example: ModuleType) -> None:
    kind: Any = example.MeanDoubtState
    rng = np.random.default_rng(0)
    for batch in (
        Batch.of(rng.integers(0, 3, 30), Logits(rng.normal(size=(30, 3)))),
        Batch.of(None, TopLabel(rng.random(30), rng.random(30) < 0.5)),
    ):
        parts = kind.of(batch.take(slice(0, 10))) + kind.of(batch.take(slice(10, 30)))
        assert parts.value == pytest.approx(kind.of(batch).value)
        again = kind.from_dict(json.loads(json.dumps(parts.to_dict())))
        assert again == parts


def test_the_examples_own_example_runs(example: ModuleType) -> None:
    finder = doctest.DocTestFinder(recurse=False)
    (test,) = finder.find(example.mean_doubt, "mean_doubt", globs=example.__dict__)
    assert doctest.DocTestRunner().run(test).attempted == 1
