"""A policy is read only if all of it is there, nothing else is, and its parts fit each other."""

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from dubito import Logits
from dubito.calibrate import TemperatureScaling
from dubito.decide import CostMatrix, OODGate, Policy, RiskBound
from dubito.decide.policy.checks import checked_parts
from dubito.errors import DubitoError

RNG = np.random.default_rng(0)
Z = 4 * RNG.normal(size=(200, 3))
Y = (Z / 2 + RNG.gumbel(size=Z.shape)).argmax(axis=1)
X = RNG.normal(size=(200, 2)) + Y[:, np.newaxis]
DOCUMENT = Policy.fit(
    Logits(Z),
    Y,
    costs=CostMatrix.zero_one(["ant", "bee", "cat"]).with_reject(0.3),
    calibrator=TemperatureScaling(),
    features=X,
    feature_names=["length", "width"],
    ood=OODGate(alpha=0.05),
    risk=RiskBound(0.5),
    deploy_prior=[0.2, 0.3, 0.5],
).to_dict()
FIX = "Try the file as `dubito fit` or `Policy.save` wrote it."
ENTRIES = "dubito, created, fingerprint, n_rows, calibrator, random_state"


def changed(path: str, value: Any) -> dict[str, Any]:
    document: dict[str, Any] = deepcopy(DOCUMENT)
    *parents, last = path.split(".")
    holder = document
    for name in parents:
        holder = holder[name]
    holder[last] = value
    return document


def test_what_was_written_is_read() -> None:
    parts = checked_parts(deepcopy(DOCUMENT))
    assert parts["train_prior"].tolist() == DOCUMENT["train_prior"]
    assert parts["deploy_prior"].tolist() == [0.2, 0.3, 0.5]
    assert parts["feature_names"] == ("length", "width")
    assert parts["provenance"] == DOCUMENT["provenance"]
    assert parts["risk"].max_risk == 0.5
    assert parts["costs"].to_dict() == DOCUMENT["costs"]
    assert not parts["train_prior"].flags.writeable


def test_arrays_may_stand_for_lists() -> None:
    document = changed("costs.costs", np.array(DOCUMENT["costs"]["costs"]))
    document["train_prior"] = np.array(DOCUMENT["train_prior"])
    parts = checked_parts(document)
    assert parts["costs"].to_dict() == DOCUMENT["costs"]
    assert parts["train_prior"].tolist() == DOCUMENT["train_prior"]


WRONG: list[tuple[str, Any, str]] = [
    ("kind", "a model", "`values` of Policy.load must be what `Policy.to_dict` gave. Got a dict. "),
    ("kind", np.ones(3), "`values` of Policy.load must be what `Policy.to_dict` gave. Got a dict."),
    ("format", 2, "`values` of Policy.load must be of format 1. Got format 2. "),
    ("format", True, "`values` of Policy.load must be of format 1. Got format True. "),
    ("format", 1.0, "`values` of Policy.load must be of format 1. Got format 1.0. "),
    ("format", np.ones(2, int), "must be of format 1. Got format array([1, 1]). "),
    ("format", 10**500, "must be of format 1. Got format a huge number. "),
    ("extra", 1, "Got 'extra' missing or unknown. "),
    ("train_prior", [0.5, 0.5], "`train_prior` of Policy.load must be 3 shares that sum to 1. "),
    ("train_prior", [1.0, 0.0, 0.0], "`train_prior` of Policy.load must be above 0 for every "),
    ("train_prior", [0.5, 0.25, 0.2], "must be 3 shares that sum to 1. Got [0.5, 0.25, 0.2]. "),
    ("train_prior", ["0.5", "0.25", "0.25"], "must be 3 shares that sum to 1. Got ['0.5', "),
    ("train_prior", None, "must be 3 shares that sum to 1. Got None. "),
    ("train_prior", [[0.5, 0.25, 0.25]], "must be 3 shares that sum to 1. Got [[0.5, "),
    ("train_prior", [10**400, 0.5, 0.5], "must be 3 shares that sum to 1. Got [1000000"),
    ("deploy_prior", [1.5, -0.5, 0.0], "`deploy_prior` of Policy.load must be 3 shares that sum"),
    ("risk", [], "must be what `to_dict` wrote. Got a list. "),
    (
        "risk.learned.threshold_",
        1.5,
        "`learned.threshold_` of RiskBound.from_dict must be a number",
    ),
    ("risk.settings.delta", "x", "`settings.delta` of RiskBound.from_dict must be a number from 0"),
    ("risk.learned.summary_", 5, "`learned.summary_` of RiskBound.from_dict must be text of up to"),
    ("provenance", None, f"`provenance` of Policy.load must be of the entries {ENTRIES}. Got None"),
    ("provenance.n_rows", -1, "`provenance.n_rows` of Policy.load must be a whole number from 0"),
    ("provenance.created", 5, "`provenance.created` of Policy.load must be a text. Got 5. "),
    ("feature_names", ["a"], "`feature_names` of Policy.load must be a text for each feature. "),
    ("feature_names", [1, 2], "`feature_names` of Policy.load must be a text for each feature. "),
    ("feature_names", "ab", "`feature_names` of Policy.load must be a text for each feature. "),
    ("costs.costs", "abc", "`costs.costs` of Policy.load must be lists of numbers. Got 'abc'. "),
    ("costs.costs", [["1"]], "`costs.costs` of Policy.load must be lists of numbers. Got [['1']]"),
    ("costs.rate", [[1], [2, 3]], "`costs.rate` of Policy.load must be lists of numbers. Got [[1"),
    ("costs.kind", np.ones(2), "`values` of CostMatrix.from_dict must be what `to_dict` gave. "),
    ("costs", 5, "`values` of CostMatrix.from_dict must be what `to_dict` gave. Got a int. "),
    ("costs.reject", None, "`costs` of Policy.load must be with an action that hands rows over. "),
    ("calibrator.learned.n_classes_", 4, "`calibrator` of Policy.load must be of 3 classes. Got 4"),
    (
        "calibrator.learned.classes_",
        ["a", "b", "c"],
        "must be of the classes ('ant', 'bee', 'cat')",
    ),
    ("ood", 5, "`values` of OODGate.from_dict must be what `to_dict` wrote. Got a int. "),
    ("report", [], "`report` of Policy.load must be all figures of a report, and no others. "),
]


@pytest.mark.parametrize(("path", "value", "text"), WRONG)
def test_what_is_wrong_is_named(path: str, value: Any, text: str) -> None:
    document = changed(path, value)
    if path == "costs.reject":
        document["costs"]["actions"][-1] = "ask"  # "reject" would hand rows over by its name
    with pytest.raises(DubitoError) as caught:
        checked_parts(document)
    assert text in str(caught.value)
    assert len(str(caught.value)) < 500
    if "Policy.load" in text and "between 0 and 1" not in text and path != "format":
        assert str(caught.value).endswith(FIX)


def test_reject_alone_is_no_policy() -> None:
    costs = CostMatrix([[1, 1, 1]], ["reject"]).to_dict()
    with pytest.raises(DubitoError) as caught:
        checked_parts({**DOCUMENT, "costs": costs})
    assert str(caught.value) == (
        "`costs` of Policy.load must be with an action that decides rows. "
        f"Got one that hands them over alone. {FIX}"
    )


@pytest.mark.parametrize("name", sorted(DOCUMENT))
def test_every_part_must_be_there(name: str) -> None:
    rest = {key: value for key, value in DOCUMENT.items() if key != name}
    with pytest.raises(DubitoError):
        checked_parts(rest)


@pytest.mark.parametrize("values", [None, 5, "dubito policy", [DOCUMENT], np.ones(3)])
def test_what_is_no_document_is_refused(values: Any) -> None:
    with pytest.raises(DubitoError) as caught:
        checked_parts(values)
    assert str(caught.value) == (
        "`values` of Policy.load must be what `Policy.to_dict` gave. "
        f"Got a {type(values).__name__}. {FIX}"
    )
