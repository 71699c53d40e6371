from pathlib import Path

import pytest

from dubito.cli.columns import _found_features, _found_label, _found_outputs, _two_classes
from dubito.errors import BadValueError

FILE = Path("f.csv")


@pytest.mark.parametrize("name", ["label", "y", "target"])
def test_one_column_that_is_called_like_a_label_is_found(name: str) -> None:
    assert _found_label(["id", name, "labels"], FILE, is_needed=True) == {"label": name}


@pytest.mark.parametrize(
    ("names", "got", "fix"),
    [
        (["y", "target"], "y and target", "--label y"),
        (["a", "b"], "a, b", "--label NAME"),
        (list("abcdef"), "a, b, c, d, ...", "--label NAME"),
    ],
)
def test_a_label_that_could_be_several_is_refused(names: list[str], got: str, fix: str) -> None:
    assert _found_label(names, FILE, is_needed=False) == {}
    with pytest.raises(BadValueError) as caught:
        _found_label(names, FILE, is_needed=True)
    assert str(caught.value) == (
        "`--label` of f.csv must be named, unless one column is called label, y or target. "
        f"Got {got}. Try {fix}."
    )


@pytest.mark.parametrize(
    ("prefix", "kind"), [("logit_", "logits"), ("p_", "probabilities"), ("prob_", "probabilities")]
)
def test_outputs_are_found_by_their_prefix(prefix: str, kind: str) -> None:
    assert _found_outputs([f"{prefix}a", f"{prefix}b", "y"], FILE) == {kind: f"{prefix}*"}


@pytest.mark.parametrize(
    ("names", "got"),
    [
        (["p_fraud", "y"], "p_fraud, y"),
        (["z_a", "z_b"], "z_a, z_b"),
        (["p_a", "p_b", "logit_a", "logit_b"], "logit_* and p_*"),
    ],
)
def test_what_numbers_mean_is_never_guessed(names: list[str], got: str) -> None:
    with pytest.raises(BadValueError) as caught:
        _found_outputs(names, FILE)
    assert str(caught.value) == (
        "`outputs` of f.csv must be named, unless columns are called logit_* or else p_* or "
        f"prob_*. Got {got}. Try --logits 'z_*' or --probabilities 'z_*'."
    )


def test_features_are_found_if_there_are_any() -> None:
    assert _found_features(["feature_a", "y"]) == {"features": "feature_*"}
    assert _found_features(["feature_", "features", "y"]) == {}


def write(folder: Path, labels: list[str]) -> Path:
    path = folder / "f.csv"
    path.write_text("p,y\n" + "".join(f"0.5,{label}\n" for label in labels))
    return path


def test_the_other_class_stands_among_the_labels(tmp_path: Path) -> None:
    assert _two_classes(write(tmp_path, ["ok", "fraud", "ok"]), "y", "fraud") == ("ok", "fraud")
    assert _two_classes(write(tmp_path, ["ok", "ok"]), "y", "fraud") == ("ok", "fraud")
    assert _two_classes(write(tmp_path, ["0", "1"]), "y", None) is None
    assert _two_classes(tmp_path / "never read", None, "fraud") == ("not fraud", "fraud")
    assert _two_classes(tmp_path / "never read", None, None) is None


def test_a_positive_class_must_be_one_of_two(tmp_path: Path) -> None:
    path = write(tmp_path, ["ok", "fraud"])
    with pytest.raises(BadValueError) as caught:
        _two_classes(path, "y", None)
    assert str(caught.value) == (
        f"`--positive` of {path} must be named, as `y` is neither 0 nor 1. Got fraud, ok. "
        "Try --positive fraud."
    )
    with pytest.raises(BadValueError) as caught:
        _two_classes(path, "y", "frad")
    assert str(caught.value) == (
        f"`--positive` of {path} must be one of two classes in `y`. Got frad, beside fraud, ok. "
        "Try --positive fraud."
    )
    with pytest.raises(BadValueError, match=r"Got a, beside b, c, d\. Try one column a class\."):
        _two_classes(write(tmp_path, ["a", "b", "c", "d"]), "y", "a")
