"""A policy is read only if all of it is there, nothing else is, and its parts fit each other."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubito import Logits
from dubito.calibrate import TemperatureScaling
from dubito.decide import Cascade, CostMatrix, OODGate, Policy, RiskBound, load_policy
from dubito.decide.policy.loading import seal_policy
from dubito.errors import BadFileError, DubitoError

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
FIX = "Restore the values as they were written."


def changed(path: str, value: Any) -> dict[str, Any]:
    document: dict[str, Any] = deepcopy(DOCUMENT)
    *parents, last = path.split(".")
    holder = document
    for name in parents:
        holder = holder[name]
    holder[last] = value
    return document


def test_a_policy_survives_its_dict() -> None:
    policy = Policy.from_dict(deepcopy(DOCUMENT))
    assert policy.train_prior.tolist() == DOCUMENT["train_prior"]
    assert policy.deploy_prior is not None
    assert policy.deploy_prior.tolist() == [0.2, 0.3, 0.5]
    assert policy.feature_names == ("length", "width")
    assert policy.provenance == DOCUMENT["provenance"]
    assert policy.risk is not None
    assert policy.risk.max_risk == 0.5
    assert policy.costs.to_dict() == DOCUMENT["costs"]
    assert not policy.train_prior.flags.writeable
    assert policy.to_dict() == DOCUMENT


def test_arrays_are_read_like_lists() -> None:
    document = changed("costs.costs", np.array(DOCUMENT["costs"]["costs"]))
    document["train_prior"] = np.array(DOCUMENT["train_prior"])
    assert Policy.from_dict(document).to_dict() == DOCUMENT


PROVENANCE = "must have the keys dubito, created, fingerprint, n_rows, calibrator, random_state"
WRONG: list[tuple[str, Any, str]] = [
    ("class", "a model", "`values` must be a Policy, got 'a model'"),
    ("class", np.ones(3), "`values` must be a Policy, got an array of shape"),
    ("format", 2, "`values` must have format 1, got format 2"),
    ("format", True, "`values` must have format 1, got format True"),
    ("format", 1.0, "`values` must have format 1, got format 1.0"),
    ("format", np.ones(2, int), "`values` must have format 1, got format an array"),
    ("format", 10**500, "must have format 1, got format a number beyond 2^128"),
    ("extra", 1, "`values` must have no other keys than provenance, "),
    ("train_prior", [0.5, 0.5], "`train_prior` must have 3 probabilities, one per class, got 2"),
    ("train_prior", [1.0, 0.0, 0.0], "`train_prior` must be numbers from 1e-300 to 1, got 0.0 in"),
    ("train_prior", [0.5, 0.25, 0.2], "must be probabilities that sum to 1, got a sum of 0.95"),
    ("train_prior", ["0.5", "0.25", "0.25"], "`train_prior` must be a list of numbers"),
    ("train_prior", None, "`train_prior` must be a list of numbers, got None"),
    ("train_prior", [[0.5, 0.25, 0.25]], "`train_prior` must be a list of numbers"),
    ("train_prior", [10**400, 0.5, 0.5], "`train_prior` must be a list of numbers"),
    ("deploy_prior", [1.5, -0.5, 0.0], "`deploy_prior` must be numbers from 0 to 1, got 1.5"),
    ("risk", [], "`risk` must be a dict that `to_dict` returned, got a list"),
    ("risk.fitted.threshold_", 1.5, "`risk.fitted.threshold_` must be a number from 0 to 1"),
    ("risk.params.delta", "x", "`risk.params.delta` must be a number from 0 to 1, got 'x'"),
    ("risk.fitted.summary_", 5, "`risk.fitted.summary_` must be a string of at most"),
    ("provenance", None, "`provenance` must be a dict, got None"),
    ("provenance", {}, f"`provenance` {PROVENANCE}"),
    ("provenance.n_rows", -1, "`provenance.n_rows` must be an integer of at least 0, got -1"),
    ("provenance.created", 5, "`provenance.created` must be a string of at most"),
    ("feature_names", ["a"], "`feature_names` must have 2 names, one per feature, got 1"),
    ("feature_names", [1, 2], "`feature_names[0]` must be a string of at most"),
    ("feature_names", "ab", "`feature_names` must be a list, got 'ab'"),
    ("costs.costs", "abc", "`costs.costs` must be an array of n x n numbers, got 'abc'"),
    ("costs.costs", [["1 +"]], "`costs.costs[0][0]` must be a number or an expression, got '1 +'"),
    ("costs.costs", [["x", None]], "`costs.costs[0][1]` must be a number"),
    ("costs.costs", [["x"], [2, 3]], "`costs.costs` must be an array of n x n numbers or expr"),
    ("costs.costs", [["x"], 2], "`costs.costs` must be an array of n x n numbers or expressions"),
    ("costs.costs", [[np.nan, 1]], "`costs.costs` must be numbers from -1e+100 to 1e+100, got nan"),
    ("costs.class", np.ones(2), "`costs` must be a CostMatrix, got an array"),
    ("costs", 5, "`costs` must be a dict that `to_dict` returned, got 5"),
    ("costs.reject", None, "`costs` must have a reject action, got none"),
    ("calibrator.fitted.n_classes_", 4, "`calibrator` must have 3 classes, got 4"),
    ("calibrator.fitted.classes_", ["a", "b", "c"], "must have the classes ('ant', 'bee', 'cat')"),
    ("ood", 5, "`ood` must be a dict that `to_dict` returned, got 5"),
    ("ood.fitted.score_", "surprise", "`ood.fitted.score_` must be one of 'energy', "),
    ("report", [], "`report` must be a dict, got a list"),
    ("report.risk", [1.0, 2.0], "`report.risk` must be a list of 3, got 2"),
]


@pytest.mark.parametrize(("path", "value", "message"), WRONG)
def test_a_wrong_entry_is_named(path: str, value: Any, message: str) -> None:
    document = changed(path, value)
    if path == "costs.reject":
        document["costs"]["actions"][-1] = "ask"  # "reject" would reject by its name
    with pytest.raises(DubitoError) as caught:
        Policy.from_dict(document)
    assert message in str(caught.value)
    assert str(caught.value).startswith("Policy.from_dict: ")
    assert len(str(caught.value)) < 500
    if path != "format":
        assert str(caught.value).endswith(FIX)


def test_a_policy_needs_an_action_besides_reject() -> None:
    costs = CostMatrix([[1, 1, 1]], ["reject"]).to_dict()
    with pytest.raises(DubitoError, match="`costs` must have an action that does not reject"):
        Policy.from_dict({**DOCUMENT, "costs": costs})


@pytest.mark.parametrize("name", sorted(DOCUMENT))
def test_every_part_is_required(name: str) -> None:
    rest = {key: value for key, value in DOCUMENT.items() if key != name}
    with pytest.raises(DubitoError):
        Policy.from_dict(rest)


@pytest.mark.parametrize("values", [None, 5, "Policy", [DOCUMENT], np.ones(3)])
def test_only_a_dict_is_read(values: Any) -> None:
    with pytest.raises(DubitoError, match="`values` must be a dict that `to_dict` returned, got "):
        Policy.from_dict(values)


def test_files_of_other_kinds_are_named_before_their_checksum(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps(DOCUMENT["calibrator"]))
    for read in (Policy.load, Policy.seal, load_policy, seal_policy):
        with pytest.raises(BadFileError) as caught:
            read(path)
        assert "it is a calibrator (TemperatureScaling), not a policy" in str(caught.value)
        assert f"or use `dubito calibrate --apply {path}`" in str(caught.value)
    path.write_text(json.dumps({"format": 1, "class": "Model"}))
    with pytest.raises(BadFileError, match=r"\(its class is 'Model'\)\. Pass a file written by"):
        load_policy(path)
    Policy.from_dict(DOCUMENT).save(path)
    with pytest.raises(BadFileError, match=r"holds a Policy, not a Cascade\. Use `dubito decide "):
        Cascade.load(path)


def test_sealing_names_the_file_and_the_field(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({key: one for key, one in DOCUMENT.items() if key != "costs"}))
    with pytest.raises(BadFileError, match=r"p\.json .* it has no field `costs`\. Add it, or fit"):
        seal_policy(path)
    path.write_text(json.dumps(changed("train_prior", [0.5, 0.25, 0.2])))
    with pytest.raises(DubitoError, match=r"p\.json: `train_prior` must .* Correct it, or fit"):
        seal_policy(path)


def test_an_edited_file_loads_only_after_it_is_sealed(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    Policy.from_dict(DOCUMENT).save(path)
    path.write_text(path.read_text().replace('"random_state": 0', '"random_state": 1'))
    with pytest.raises(BadFileError) as caught:
        Policy.load(path)
    assert str(caught.value) == (
        f"{path} cannot be read: its checksum does not match, so it was edited after it was saved. "
        f"Run `dubito policy seal {path}` to accept the edit."
    )
    Policy.seal(path)
    assert Policy.load(path).provenance["random_state"] == 1
