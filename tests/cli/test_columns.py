"""Column options: found by name where that is safe, never guessed."""

from pathlib import Path
from typing import Any

import pytest

from dubito.cli.columns import (
    ColumnOptions,
    _find_features,
    _find_label,
    _find_outputs,
    _two_classes,
)
from dubito.data import Columns
from dubito.data.sources import open_source
from dubito.errors import BadValueError

FILE = "f.csv"
NO_LABEL = "no column named label, y or target; its columns are"


def columns_of(options: ColumnOptions, *files: Path, **settings: Any) -> list[Columns]:
    """Return the columns that options find in files."""
    return [found.columns for found in options.open(*map(str, files), **settings)]


def test_options_print_as_they_were_typed() -> None:
    options = ColumnOptions(label="the label", logits="z_*")
    assert str(options) == "--label 'the label' --logits 'z_*'"
    assert options.given == {"label": "the label", "logits": "z_*"}
    assert str(ColumnOptions()) == ""


def test_missing_options_are_found_by_name_and_printed(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = made / "sure.csv", made / "later.csv"
    expected = Columns(label="label", logits="logit_*", features="feature_*", id="id")
    assert columns_of(ColumnOptions(id="id"), *files, has_features=True) == [expected, expected]
    printed = capsys.readouterr().err
    assert printed == "Detected columns: label = label, logits = logit_*, features = feature_*.\n"


def test_given_options_are_not_looked_for(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ColumnOptions(label="label", logits="logit_*", features="feature_0")
    [found] = columns_of(options, made / "sure.csv", has_features=True)
    assert found == Columns(label="label", logits="logit_*", features="feature_0")
    assert capsys.readouterr().err == ""


def test_labels_are_required_optional_or_unused(made: Path) -> None:
    options, file = ColumnOptions(), made / "sure_new.csv"
    with pytest.raises(
        BadValueError,
        match=r"sure_new.csv has no column named label, y or target; its columns are logit_cat",
    ):
        columns_of(options, file)
    assert columns_of(options, file, label="optional") == [Columns(logits="logit_*")]
    assert columns_of(options, made / "sure.csv", label="unused") == [Columns(logits="logit_*")]


def test_classes_of_a_single_column(made: Path) -> None:
    file = made / "fraud.csv"
    [found] = columns_of(ColumnOptions(probability="chance", positive="fraud"), file)
    assert found == Columns(label="y", probabilities="chance", classes=("ok", "fraud"))
    known = {"label": "unused", "classes": ("ok", "fraud")}
    [found] = columns_of(ColumnOptions(probability="chance"), file, **known)
    assert found == Columns(probabilities="chance", classes=("ok", "fraud"))
    lists = ColumnOptions(probabilities="top", classes="a, b")
    [found] = columns_of(lists, file, label="unused")
    assert found == Columns(probabilities="top", classes=("a", "b"))
    known = {"label": "unused", "classes": ("a", "b", "c")}
    [found] = columns_of(ColumnOptions(logits="logit_*"), made / "sure.csv", **known)
    assert found == Columns(logits="logit_*")


@pytest.mark.parametrize("several", ["ch*", "chance,y"])
@pytest.mark.parametrize("positive", [None, "fraud"])
def test_one_probability_is_one_column(made: Path, several: str, positive: str | None) -> None:
    options = ColumnOptions(probability=several, positive=positive)
    for settings in ({}, {"label": "unused", "classes": ("ok", "fraud")}):
        with pytest.raises(BadValueError) as caught:
            columns_of(options, made / "fraud.csv", **settings)
        assert f"--probability takes one column, got '{several}'" in str(caught.value)
        assert "--multilabel if several labels" in caught.value.fix


@pytest.mark.parametrize("name", ["label", "y", "target"])
def test_a_single_column_named_like_a_label_is_found(name: str) -> None:
    assert _find_label(["id", name, "labels"], FILE, is_required=True) == {"label": name}


@pytest.mark.parametrize(
    ("names", "problem", "fix"),
    [
        (["y", "target"], "both y and target", "Pass --label y or --label target"),
        (["a", "b"], f"{NO_LABEL} a, b", "Pass --label NAME"),
        (list("abcdefghij"), f"{NO_LABEL} a, b, c, d, e, f, g, h and 2 more", "Pass --label NAME"),
    ],
)
def test_an_ambiguous_label_must_be_given(names: list[str], problem: str, fix: str) -> None:
    assert _find_label(names, FILE, is_required=False) == {}
    with pytest.raises(BadValueError) as caught:
        _find_label(names, FILE, is_required=True)
    assert str(caught.value) == f"f.csv has {problem}. {fix}."


@pytest.mark.parametrize(
    ("prefix", "kind"), [("logit_", "logits"), ("p_", "probabilities"), ("prob_", "probabilities")]
)
def test_outputs_are_found_by_their_prefix(prefix: str, kind: str) -> None:
    assert _find_outputs([f"{prefix}a", f"{prefix}b", "y"], FILE) == {kind: f"{prefix}*"}


@pytest.mark.parametrize(
    ("names", "got", "single"),
    [
        (["p_fraud", "y"], "columns p_fraud, y", "p_fraud"),
        (["z_a", "z_b"], "columns z_a, z_b", "NAME"),
        (["p_a", "p_b", "logit_a", "logit_b"], "columns logit_* and p_*", "p_a"),
    ],
)
def test_the_kind_of_outputs_is_never_guessed(names: list[str], got: str, single: str) -> None:
    with pytest.raises(BadValueError) as caught:
        _find_outputs(names, FILE)
    assert str(caught.value).startswith(
        "f.csv needs one set of columns named logit_*, p_* or prob_*"
    )
    fix = f"Pass --logits or --probabilities, or --probability {single} for a single column."
    assert str(caught.value).endswith(f", got {got}. {fix}")


@pytest.mark.parametrize("name", ["p", "prob", "probability"])
def test_a_single_probability_is_found_by_its_name(name: str) -> None:
    assert _find_outputs(["id", name, "label"], FILE) == {"probability": name}


def test_features_are_found_if_there_are_any() -> None:
    assert _find_features(["feature_a", "y"]) == {"features": "feature_*"}
    assert _find_features(["feature_", "features", "y"]) == {}


def source_with(folder: Path, labels: list[str]) -> Any:
    """Return an opened file with these labels."""
    path = folder / "f.csv"
    path.write_text("p,y\n" + "".join(f"0.5,{label}\n" for label in labels))
    return open_source(path)


def test_the_negative_class_is_found_among_the_labels(tmp_path: Path) -> None:
    source = source_with(tmp_path, ["ok", "fraud", "ok"])
    assert _two_classes(source, "y", "fraud", "p") == ("ok", "fraud")
    assert _two_classes(source_with(tmp_path, ["ok", "ok"]), "y", "fraud", "p") == ("ok", "fraud")
    assert _two_classes(source_with(tmp_path, ["0", "1"]), "y", None, "p") is None
    assert _two_classes(source, None, "fraud", "p") == ("not fraud", "fraud")
    assert _two_classes(source, None, None, "p") is None


def test_the_positive_class_must_be_one_of_two(tmp_path: Path) -> None:
    source = source_with(tmp_path, ["ok", "fraud"])
    with pytest.raises(BadValueError) as caught:
        _two_classes(source, "y", None, "p")
    assert str(caught.value) == (
        f"The labels in `y` of {source.name} are fraud and ok: state which class p is the "
        "probability of. Pass --positive fraud or --positive ok."
    )
    with pytest.raises(BadValueError) as caught:
        _two_classes(source, "y", "frad", "p")
    assert str(caught.value) == (
        f"--positive frad is not a class in `y` of {source.name}, which has fraud and ok. "
        "Pass --positive fraud or --positive ok."
    )
    numbers = source_with(tmp_path, [f"0.{k}1" for k in range(30)])
    with pytest.raises(BadValueError, match=r"`y` has 30 distinct numbers.* of the columns p"):
        _two_classes(numbers, "y", None, "p")
    for names in (["a", "b", "c"], ["a", "b", "c", "d"]):
        problem = f"`y` has {len(names)} classes \\({', '.join(names)}\\), but p is a single prob.*"
        for positive in ("a", None):
            with pytest.raises(BadValueError, match=f"{problem}Pass one column per class with --p"):
                _two_classes(source_with(tmp_path, names), "y", positive, "p")
    one = source_with(tmp_path, ["ok"])
    with pytest.raises(BadValueError, match=r"are all ok: two classes are needed\. Add rows"):
        _two_classes(one, "y", None, "p")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"logits": "z_*", "probabilities": "p_*"},
            "dubito needs one kind of outputs, got --logits and --probabilities. "
            "Pass either --logits or --probabilities.",
        ),
        (
            {"confidence": "top"},
            "--confidence requires --correct, got top alone. Pass --correct NAME as well.",
        ),
        ({"std": "s"}, "--std requires --mean, got s alone. Pass --mean NAME as well."),
    ],
)
def test_options_that_do_not_fit_together(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValueError) as caught:
        ColumnOptions(**options).open(FILE)
    assert str(caught.value) == message


def test_two_columns_of_probabilities_are_named_with_the_remedy() -> None:
    with pytest.raises(BadValueError) as caught:
        _find_outputs(["id", "amount", "x", "z", "p", "prob", "y"], FILE)
    assert str(caught.value).endswith(
        "or one named p, prob or probability, got columns p and prob. "
        "Pass --probability p or --probability prob."
    )
