import json
from pathlib import Path

import pytest

from dubito.cli.tables import costs_of, prior_of, read_costs
from dubito.errors import BadFileError, BadValueError
from dubito.outputs import Normal, Probabilities

OUTPUTS = Probabilities([[0.5, 0.5]], ["well", "ill"])


def test_costs_come_from_csv_or_json(tmp_path: Path) -> None:
    (tmp_path / "costs.csv").write_text("action,well,ill\nhome,0,10\ntreat,1,0\n")
    costs = read_costs(tmp_path / "costs.csv")
    assert costs.actions == ("home", "treat")
    (tmp_path / "costs.json").write_text(json.dumps(costs.to_dict()))
    assert read_costs(tmp_path / "costs.json").array.tolist() == [[0, 10], [1, 0]]


def test_without_a_file_an_error_costs_1(tmp_path: Path) -> None:
    assert costs_of(None, OUTPUTS, None).array.tolist() == [[0, 1], [1, 0]]
    assert costs_of(None, OUTPUTS, 0.25).actions == ("well", "ill", "reject")
    with pytest.raises(BadValueError, match=r"beside outputs of classes\. Got Normal"):
        costs_of(tmp_path / "costs.csv", Normal([0.0], [1.0]), None)


@pytest.mark.parametrize("header", ["", "class,share\n"])
def test_a_prior_has_a_line_a_class(tmp_path: Path, header: str) -> None:
    path = tmp_path / "prior.csv"
    path.write_text(f"{header}ill,0.25\n\n well ,0.75\n")
    assert prior_of(path, OUTPUTS) == {"ill": 0.25, "well": 0.75}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("class,share\nwell,0.5\nwolf,0.5\n", "a line with class and share for each of well, ill"),
        ("well,much\nill,0.5\n", "a line with class and share for each of well, ill"),
        ("well,0.5,1\nill,0.5\n", "a line with class and share for each of well, ill"),
        ("well,0.5\nwell,0.5\n", "a class comes twice"),
    ],
)
def test_a_prior_that_says_something_else_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "prior.csv"
    path.write_text(text)
    with pytest.raises(BadFileError, match=words) as caught:
        prior_of(path, OUTPUTS)
    assert str(caught.value).endswith("Try a line for each class such as cat,0.25.")


def test_a_prior_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadFileError, match="No such file or directory"):
        prior_of(tmp_path / "none.csv", OUTPUTS)
    (tmp_path / "prior.csv").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(BadFileError, match="it is no CSV in UTF-8"):
        prior_of(tmp_path / "prior.csv", OUTPUTS)


def test_an_action_without_costs_hands_nothing_over() -> None:
    with pytest.raises(BadValueError) as caught:
        costs_of(None, OUTPUTS, None, "ask")
    assert str(caught.value) == (
        "`--reject-action` of dubito must be beside --costs, whose action it names. "
        "Got ask alone. Try --reject-cost 0.3 for one of its own."
    )
