"""The JSON schema of policy files: up to date, true of every kind of policy, false of others."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from dubito import (
    Cascade,
    CostMatrix,
    ErrorCosts,
    LabelCosts,
    Logits,
    MultiLabelPolicy,
    Normal,
    Policy,
    Quantiles,
    RegressionPolicy,
    Scores,
    TopLabel,
)
from dubito.calibrate import (
    AutoCalibrator,
    ConfidenceCalibrator,
    ForestCalibration,
    IsotonicCalibration,
    OneVsRest,
    StructuredMatrixScaling,
    TemperatureScaling,
)
from dubito.cli.commands import app
from dubito.decide import OODGate, RiskBound
from dubito.decide.policy.loading import policy_schema
from dubito.doubt import ClassConditionalDensity, MahalanobisDistance
from dubito.errors import DubitoWarning
from dubito.serialization.schema import schema_text

SCHEMA = policy_schema()
RULES = Draft202012Validator(SCHEMA)
PUBLISHED = Path(__file__).parents[2] / "docs" / "policy.schema.json"


@pytest.mark.slow
def test_the_published_schema_is_up_to_date() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    text = f"{schema_text(SCHEMA)}\n"
    assert PUBLISHED.read_text() == text, "run: dubito policy schema > docs/policy.schema.json"
    assert CliRunner().invoke(app, ["policy", "schema"]).stdout == text
    assert json.loads(text) == SCHEMA


def test_every_entry_says_what_it_is() -> None:
    def properties(value: Any) -> Iterator[tuple[str, Any]]:
        for one in value if isinstance(value, list) else value.values():
            if isinstance(one, dict | list):
                yield from properties(one)
        if isinstance(value, dict) and isinstance(value.get("properties"), dict):
            yield from value["properties"].items()

    assert [name for name, one in properties(SCHEMA["$defs"]) if not one] == []


def policies() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(150, 3))
    y = (z / 2 + rng.gumbel(size=z.shape)).argmax(axis=1)
    x = rng.normal(size=(150, 2)) + y[:, np.newaxis]
    costs = CostMatrix.zero_one(["a", "b", "c"]).with_reject(0.3)
    named, letters = Logits(z, ["a", "b", "c"]), np.array(["a", "b", "c"])[y]
    numbers = Normal(z[:, 0], np.ones(150))
    answers = TopLabel(1 / (1 + np.exp(-z[:, 0])), rng.random(150) < 0.5 + 0.3 * (z[:, 0] > 0))
    known = 1 / (1 + np.exp(-z))
    levels = Quantiles(z[:, :1] + [-1.0, 0.0, 1.0], [0.1, 0.5, 0.9])
    amount = {"amount": np.exp(z[:, 0])}
    by_row = CostMatrix([[0, "amount", 1], [1, 0, 1], [1, 1, 0]]).with_reject("0.1 * amount")

    def fit(**settings: Any) -> Policy:
        given = {"calibrator": TemperatureScaling(), "costs": costs, **settings}
        return Policy.fit(named, letters, **given)

    return {
        "usual": fit(deploy_prior=[0.2, 0.3, 0.5], risk=RiskBound(0.3)),
        "auto": fit(calibrator=AutoCalibrator()),
        "gates": fit(features=x, ood=OODGate(["energy", MahalanobisDistance()], alpha=0.2)),
        "density": fit(features=x, ood=OODGate(ClassConditionalDensity())),
        "curves": fit(calibrator=OneVsRest(IsotonicCalibration())),
        "forest": fit(calibrator=ForestCalibration(n_estimators=9)),
        "matrix": fit(calibrator=StructuredMatrixScaling(basis="rbf")),
        "row costs": Policy.fit(
            Logits(z), y, costs=by_row, calibrator=TemperatureScaling(), row_costs=amount
        ),
        "reviews": Policy.fit(
            named, letters, calibrator=TemperatureScaling(),
            costs=costs.with_review("ann", cost=0.1, error_rate=0.1)
            .with_model("large", cost=0.1, confusion=0.7 * np.eye(3) + 0.1),
        ),
        "scores": Policy.fit(
            Scores(z), y == 1, costs=CostMatrix.for_answers().with_reject(0.4),
            calibrator=ConfidenceCalibrator(),
        ),
        "labels": MultiLabelPolicy.fit(
            known, (rng.random(z.shape) < known) * 1.0, costs=LabelCosts(1, [2, 3, 4], review=0.2)
        ),
        "numbers": RegressionPolicy.fit(
            numbers, z[:, 0] + rng.normal(size=150), costs=ErrorCosts.linear(2, 1),
            review_cost=0.5,
        ),
        "quantiles": RegressionPolicy.fit(
            levels, z[:, 0] + rng.normal(size=150), costs=ErrorCosts.absolute()
        ),
        "cascade": Cascade.fit(
            {"small": answers, "large": TopLabel(answers.confidence, np.ones(150))},
            costs={"small": 0.01, "large": 0.1}, abstain_cost=0.4,
        ),
    }  # fmt: skip


@pytest.fixture(scope="module")
def documents() -> dict[str, dict[str, Any]]:
    with warnings.catch_warnings(action="ignore", category=DubitoWarning):
        return {name: json.loads(policy.to_json()) for name, policy in policies().items()}


@pytest.mark.slow
def test_every_policy_validates(documents: dict[str, dict[str, Any]]) -> None:
    for name, document in documents.items():
        errors = [
            f"{error.json_path}: {error.message[:200]}" for error in RULES.iter_errors(document)
        ]
        assert errors == [], name


def assert_invalid(document: dict[str, Any], place: dict[str, Any], name: str, value: Any) -> None:
    before = dict(place)
    place[name] = value
    assert not RULES.is_valid(document), (name, value)
    place.clear()
    place.update(before)


@pytest.mark.slow
def test_parameters_are_of_their_kind(documents: dict[str, dict[str, Any]]) -> None:
    gate = documents["gates"]["ood"]
    [part] = documents["curves"]["calibrator"]["fitted"]["calibrators_"][:1]
    changes: list[tuple[str, dict[str, Any], str, Any]] = [
        *(("gates", gate["params"], "alpha", value) for value in ("junk", -1, 2)),
        ("gates", gate["fitted"]["detector_"][0]["params"], "alpha", 7),
        ("gates", gate["fitted"]["score_"][1]["params"], "normalize", "junk"),
        ("usual", documents["usual"]["calibrator"]["params"], "objective", "junk"),
        ("usual", documents["usual"]["calibrator"]["params"], "n_bins", 1.5),
        ("curves", part["params"], "interpolation", "junk"),
        ("curves", documents["curves"]["calibrator"]["fitted"], "calibrators_", []),
        ("auto", documents["auto"]["calibrator"]["fitted"], "calibrators_", []),
        ("matrix", documents["matrix"]["calibrator"]["params"], "basis", "junk"),
        ("labels", documents["labels"]["calibrator"]["params"], "base", "junk"),
    ]
    for name, place, key, value in changes:
        assert RULES.is_valid(documents[name])
        assert_invalid(documents[name], place, key, value)


@pytest.mark.slow
def test_other_documents_do_not(documents: dict[str, dict[str, Any]]) -> None:
    document = documents["usual"]
    temperature = document["calibrator"]["fitted"]
    changes: list[tuple[dict[str, Any], str, Any]] = [
        (document, "class", "Other"),
        (document, "format", 2),
        (document, "checksum", "md5:1"),
        (document, "more", 1),
        (document, "costs", None),
        (document["costs"], "costs", [["a"], 1]),
        (document["costs"], "actions", "a"),
        (document["calibrator"], "class", "MahalanobisDistance"),
        (document["calibrator"], "params", {"n_bins": [1]}),
        (temperature, "temperature_", "high"),
        (temperature, "temperature_", -1.0),
        (temperature, "n_classes_", 1),
        (temperature, "other_", 1),
        (document["risk"]["fitted"], "threshold_", 1.5),
        (document, "deploy_prior", [0.5, 1.5]),
        (document["report"], "cost", [1, 2]),
        (document["provenance"], "random_state", -1),
    ]
    for place, name, value in changes:
        assert_invalid(document, place, name, value)
    for place in (document, document["costs"], document["calibrator"], temperature):
        for name in [*place]:
            if name == "pos_label":
                continue
            before = dict(place)
            del place[name]
            assert not RULES.is_valid(document), name
            place.clear()
            place.update(before)
    assert RULES.is_valid(document)
