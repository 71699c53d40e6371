"""Messages of the command line: the value, its place, and a remedy that works when it is typed."""

import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Run

TABLES = {
    "pay.csv": "id,amount,region,p,label\n1,10,n,0.1,ok\n2,20,s,0.9,fraud\n3,30,s,0.3,ok\n",
    "three.csv": "p,label\n0.1,0\n0.2,1\n0.3,2\n",
    "nolab.csv": "id,p\n1,0.5\n2,0.25\n",
    "two.csv": "p,label,y\n0.5,0,1\n0.25,1,0\n",
    "same.csv": "p,p,label\n0.5,0.5,1\n0.25,0.5,0\n",
    "findings.csv": "p_edema,p_nodule,y_edema,y_nodule\n0.5,0.25,1,0\n0.25,0.5,0,1\n",
    "animals.csv": "p_cat,p_dog,p_fox,label\n0.2,0.3,0.5,fox\n0.1,0.1,0.8,cow\n0.5,0.2,0.3,cat\n",
    "inf.csv": "p,label\n0.5,1\ninf,0\n0.25,0\n",
    "gap.csv": "p,label\n0.5,1\n,0\n0.25,0\n",
    "text.csv": "p,label\n0.5,1\nn/a,0\nhigh,0\n",
    "sums.csv": "p_cat,p_dog,label\n0.5,0.25,cat\n0.2,0.9,dog\n",
    "z.csv": "z_0,z_1,z_2,y\n0.2,0.3,0.5,0\n0.2,2,0.5,1\n0.2,3,0.5,2\n",
}
ERRORS = [
    (
        "audit pay.csv --positive fraud --label lable",
        "pay.csv has no column 'lable' (--label).",
        "Pass --label label, or another of its columns: id, amount, region, p, label.",
    ),
    (
        "audit pay.csv --positive fraud --probability prb",
        "pay.csv has no column 'prb' (--probability).",
        "Pass --probability p, or another of its columns: id, amount, region, p, label.",
    ),
    (
        "audit pay.csv --positive fraud --group regoin",
        "pay.csv has no column 'regoin' (--group).",
        "Pass --group region, or another of its columns: id, amount, region, p, label.",
    ),
    (
        "audit findings.csv --multilabel p_edema,p_nodul",
        "findings.csv has no column 'p_nodul' (--multilabel).",
        "Pass --multilabel p_nodule, or another of its columns: p_edema, p_nodule, y_edema, "
        "y_nodule.",
    ),
    (
        "fit findings.csv --multilabel p_edema,p_nodul --review-label 0.3",
        "findings.csv has no column 'p_nodul' (--multilabel).",
        "Pass --multilabel p_nodule, or",
    ),
    (
        "audit three.csv",
        "three.csv: `label` has 3 classes (0, 1, 2), but p is a single probability.",
        "Pass one column per class with --probabilities, or another --label.",
    ),
    (
        "audit pay.csv",
        "The labels in `label` of pay.csv are fraud and ok: state which class p is the "
        "probability of.",
        "Pass --positive fraud or --positive ok.",
    ),
    (
        "audit nolab.csv",
        "nolab.csv has no column named label, y or target; its columns are id, p.",
        "Pass --label NAME.",
    ),
    ("audit two.csv", "two.csv has both label and y.", "Pass --label label or --label y."),
    ("audit same.csv", "same.csv has two columns named 'p'.", "Rename one of them."),
    (
        "audit same.csv --probability p",
        "same.csv has two columns named 'p'.",
        "Rename one of them.",
    ),
    (
        "audit animals.csv",
        "animals.csv, column `label`, row 1: 'cow' is not one of the classes cat, dog, fox.",
        "Correct the label, or pass --bad-rows bad.csv to set invalid rows aside.",
    ),
    (
        "audit inf.csv",
        "inf.csv, column `p`, row 1: inf is not finite.",
        "Fix the cell, or pass --bad-rows bad.csv to set invalid rows aside.",
    ),
    (
        "audit gap.csv",
        "gap.csv, column `p`, row 1: the value is missing.",
        "Fix the cell, or pass --bad-rows bad.csv to set invalid rows aside.",
    ),
    (
        "audit text.csv",
        "text.csv, column `p`, row 1: 'n/a' is not a number.",
        "Fix the cell, or pass --bad-rows bad.csv to set invalid rows aside.",
    ),
    (
        "audit sums.csv",
        "sums.csv: `p_cat, ..., p_dog` must have rows that sum to 1, got a sum of 0.75 in row 0.",
        "Pass --normalize to divide each row by its sum, or --multilabel if several labels may "
        "apply to a row.",
    ),
    (
        "audit z.csv --logits z_1",
        "z.csv: a single column is for two classes, but `y` has 3.",
        "Pass --logits 'z_*'.",
    ),
    (
        "audit s3://bucket/x.parquet",
        "A URL of s3:// needs the package s3fs, which is not installed.",
        "Run pip install s3fs.",
    ),
    (
        "audit nowhere://bucket/x.csv",
        "nowhere://bucket/x.csv cannot be read: URLs of nowhere:// are not supported.",
        "Use a path, https:// or s3://.",
    ),
]
REMEDIES = [  # of the errors above, typed
    "audit pay.csv --positive fraud --group region",
    "audit animals.csv --bad-rows bad.csv",
    "audit inf.csv --bad-rows bad.csv",
    "audit sums.csv --normalize",
    "audit z.csv --logits 'z_*'",
    "audit z.csv --logits z_0,z_1,z_2",
]


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with a mistake each, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name, text in TABLES.items():
        Path(name).write_text(text)


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(("words", "problem", "fix"), ERRORS)
def test_a_mistake_is_named_with_its_place_and_a_remedy(
    run: Run, words: str, problem: str, fix: str
) -> None:
    done = run(*shlex.split(words))
    assert done.exit_code == 2
    first, last = done.stderr.splitlines()[-2:]
    assert first == f"dubito: {problem}"
    assert last.startswith(fix)


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("words", REMEDIES)
def test_a_remedy_works_when_it_is_typed(run: Run, words: str) -> None:
    assert run(*shlex.split(words)).exit_code == 0


@pytest.mark.usefixtures("tables")
def test_fractions_with_percent_are_noted(run: Run) -> None:
    note = "--percent: the largest value of `p` in pay.csv is 0.9. Leave out --percent if"
    words = ["audit", "pay.csv", "--positive", "fraud"]
    assert note in " ".join(run(*words, "--percent").stderr.split())
    assert "--percent" not in run(*words).stderr
