"""Valid and invalid arguments of `ExportedModule`, its precision, and programs of torch.export."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dubito import CostMatrix, Logits, Policy
from dubito.calibrate import TemperatureScaling
from dubito.errors import BadTypeError, BadValueError, DubitoError
from dubito.export import to_module, to_program

pytestmark = pytest.mark.torch

RNG = np.random.default_rng(0)
Z = 3 * RNG.normal(size=(300, 2))
Y = (Z / 2 + RNG.gumbel(size=Z.shape)).argmax(axis=1)
X = RNG.normal(size=(300, 4)) + Y[:, np.newaxis]
AMOUNT = RNG.exponential(5, size=300)
COSTS = CostMatrix([[0, "amount"], [1, 0]], ["pass", "block"]).with_reject(0.5)
LOGITS, FEATURES = torch.from_numpy(Z[:6]), torch.from_numpy(X[:6])
AMOUNTS = {"amount": torch.from_numpy(AMOUNT[:6])}


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy.fit(
        Logits(Z), Y, costs=COSTS, calibrator=TemperatureScaling(), features=X,
        row_costs={"amount": AMOUNT},
    )  # fmt: skip


def test_arguments_that_do_not_fit_raise(policy: Policy) -> None:
    module = to_module(policy)
    cases: list[tuple[type[DubitoError], tuple[Any, ...], str]] = [
        (BadValueError, (LOGITS, FEATURES[:, :3], AMOUNTS), r"`features`.*rows x 4.*\(6, 3\)"),
        (BadValueError, (LOGITS, FEATURES[:1], AMOUNTS), r"`features`.*\(1, 4\)"),
        (BadTypeError, (LOGITS, None, AMOUNTS), r"`features` must be given"),
        (BadTypeError, (LOGITS, FEATURES), r"`row_costs` must be given"),
        (BadTypeError, (LOGITS, X[:6], AMOUNTS), r"`features` must be a tensor, got ndarray"),
        (BadTypeError, (Z[:6], FEATURES, AMOUNTS), r"`logits` must be a tensor, got ndarray"),
        (BadValueError, (LOGITS, FEATURES, {"fee": LOGITS}), r"column 'amount', got fee"),
        (BadValueError, (LOGITS, FEATURES, {"amount": torch.ones(1)}), r"amount.*shape \(1,\)"),
        (BadValueError, (LOGITS, FEATURES, torch.ones(6, 2, 2)), r"rows x 3 x 2.*\(6, 2, 2\)"),
        (BadValueError, (torch.zeros(2, 2, 4, 5),), r"must be rows x columns for a policy"),
    ]
    for kind, arguments, message in cases:
        with pytest.raises(kind, match=message):
            module(*arguments)


def test_row_costs_are_columns_or_costs(policy: Policy) -> None:
    module = to_module(policy)
    cube = RNG.exponential(size=(6, 3, 2))
    amount = AMOUNTS["amount"]
    given: list[tuple[Any, Any]] = [
        (AMOUNTS, {"amount": AMOUNT[:6]}),
        (amount, {"amount": AMOUNT[:6]}),
        ({"amount": amount[:, None]}, {"amount": AMOUNT[:6]}),
        (torch.from_numpy(cube), cube),
    ]
    for ours, theirs in given:
        wanted = policy.decide(Logits(Z[:6]), X[:6], theirs)
        found = module(LOGITS, FEATURES, ours)
        assert found["action"].tolist() == wanted.action.tolist()
        np.testing.assert_allclose(found["expected_cost"], wanted.expected_cost)
    assert "logits x 2, features x 4, amount -> " in repr(module)
    assert "actions: pass, block, reject" in repr(module)


@pytest.mark.slow
def test_a_program_takes_its_arguments_in_order(policy: Policy, tmp_path: Path) -> None:
    to_program(policy, tmp_path / "policy.pt2")
    program = torch.export.load(tmp_path / "policy.pt2").module()
    amounts = {"amount": AMOUNTS["amount"].float()}
    found = program(LOGITS.float(), FEATURES.float(), amounts)
    wanted = to_module(policy)(LOGITS.float(), FEATURES.float(), amounts)
    assert found["action"].equal(wanted["action"])


def test_it_computes_in_full_precision_within_autocast() -> None:
    rows = torch.from_numpy(Z[:50]).float()
    calibrator = TemperatureScaling().fit(Logits(Z), Y)
    costs = CostMatrix.zero_one(2).with_reject(0.3)
    policy = Policy.fit(Logits(Z), Y, costs=costs, calibrator=calibrator)
    module = to_module(policy).float()
    wanted = module(rows)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = module(rows)
    for name, one in wanted.items():
        assert found[name].equal(one), name
