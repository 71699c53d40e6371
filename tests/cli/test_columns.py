from pathlib import Path

import pytest

from dubito.cli.columns import Given
from dubito.data import Columns
from dubito.errors import BadValueError


def test_options_are_said_as_they_were_typed() -> None:
    given = Given(label="the label", logits="z_*")
    assert str(given) == "--label 'the label' --logits 'z_*'"
    assert given.said == {"label": "the label", "logits": "z_*"}
    assert str(Given()) == ""


def test_what_was_not_said_is_found_and_told(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Given(id="id").columns(made / "sure.csv", made / "later.csv", has_features=True)
    expected = Columns(label="label", logits="logit_*", features="feature_*", id="id")
    assert found == [expected, expected]
    told = capsys.readouterr().err
    assert told == "Found by name: label in label, logits in logit_*, features in feature_*.\n"


def test_what_was_said_is_not_looked_for(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = Given(label="label", logits="logit_*", features="feature_0")
    [found] = given.columns(made / "sure.csv", has_features=True)
    assert found == Columns(label="label", logits="logit_*", features="feature_0")
    assert capsys.readouterr().err == ""


def test_labels_are_needed_welcome_or_unused(made: Path) -> None:
    file = made / "sure_new.csv"
    with pytest.raises(BadValueError, match="`--label` of"):
        Given().columns(file)
    assert Given().columns(file, label="welcome") == [Columns(logits="logit_*")]
    assert Given().columns(made / "sure.csv", label="unused") == [Columns(logits="logit_*")]


def test_classes_of_one_column_are_named(made: Path) -> None:
    file = made / "fraud.csv"
    [found] = Given(probability="chance", positive="fraud").columns(file)
    assert found == Columns(label="y", probabilities="chance", classes=("ok", "fraud"))
    [found] = Given(probability="chance").columns(file, label="unused", classes=("ok", "fraud"))
    assert found == Columns(probabilities="chance", classes=("ok", "fraud"))
    [found] = Given(probabilities="lists", classes="a, b").columns(file, label="unused")
    assert found == Columns(probabilities="lists", classes=("a", "b"))
    [found] = Given(logits="logit_*").columns(
        made / "sure.csv", label="unused", classes=("a", "b", "c")
    )
    assert found == Columns(logits="logit_*")
