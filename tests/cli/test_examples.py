"""Every example in a help text fits on a line and runs."""

import importlib
import inspect
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.main import get_command

from dubito.cli.commands import app
from dubito.data import make_questions
from tests.cli.conftest import Run, animals

pytestmark = pytest.mark.slow

LINE = 80 - len(" Example: ") - 1  # what a terminal of 80 columns does not wrap
TOO_LONG = ["dubito cascade fit"]  # two models need two lines


def examples(command: Any = None) -> Iterator[str]:
    """Yield the examples in the help texts of all commands, in the order of the help."""
    command = command or get_command(app)
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("Example: "):
            yield " ".join(paragraph.removeprefix("Example: ").split())
    for one in getattr(command, "commands", {}).values():
        yield from examples(one)


def write_payments(folder: Path) -> None:
    """Write fewer payments than the demo does, here and where it does."""
    demo = folder / "dubito-demo"
    demo.mkdir(exist_ok=True)
    importlib.import_module("dubito.cli.demo")._write_inputs("binary", demo)
    for name in ("payments.csv", "new.csv"):
        lines = (demo / name).read_text().splitlines(keepends=True)[:2001]
        for place in (demo, folder):
            (place / name).write_text("".join(lines))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The files that examples name."""
    rng = np.random.default_rng(0)
    write_payments(tmp_path)
    frame = animals(300, 2.0, 0.0, 1).rename(columns={"label": "y"})
    logits = frame.filter(like="logit_").to_numpy()
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    frame[["p_cat", "p_dog", "p_fox"]] = p
    frame["date"] = np.arange(300)
    mean = rng.normal(100, 20, 300)
    demand = mean + rng.normal(0, 10, 300)
    frame = frame.assign(demand=demand, m=mean, s=10.0, place=rng.choice(["a", "b"], 300))
    for level, shift in {"0.05": -16, "0.5": 0, "0.95": 16}.items():
        frame[f"q_{level}"] = mean + shift
    names = [name for name in frame if name not in ("demand", "m", "s") and "q_" not in name]
    for name in ("predictions.csv", "old.csv", "weather.csv"):
        frame[names].to_csv(tmp_path / name, index=False)
    numbers = frame[["date", "place", "m", "s", *frame.filter(like="q_")]]
    numbers = numbers.assign(y=demand, demand=demand)
    for name in ("sales.csv", "may.csv", "june.csv"):
        numbers.to_csv(tmp_path / name, index=False)
    numbers.drop(columns=["m", "s"]).to_csv(tmp_path / "flu.csv", index=False)
    labels = rng.random((300, 3)).round(3)
    findings = ("nodule", "mass", "edema")
    xrays = pd.DataFrame(labels, columns=[f"p_{one}" for one in findings])
    xrays[[f"y_{one}" for one in findings]] = (rng.random((300, 3)) < labels).astype(int)
    xrays.to_csv(tmp_path / "xrays.csv", index=False)
    answers = pd.DataFrame({"logprob": -rng.exponential(2, 300), "judge": rng.random(300)})
    answers["ok"] = (rng.random(300) < answers["judge"]).astype(int)
    answers.to_csv(tmp_path / "answers.csv", index=False)
    (tmp_path / "team.csv").write_text("name,capacity_per_day,error_rate,cost\nann,40,0.02,0.01\n")
    return tmp_path


def test_examples_can_be_pasted() -> None:
    found = list(examples())
    assert len(found) > len(get_command(app).commands)  # type: ignore[attr-defined]
    wrapped = [one for one in found if len(one) > LINE]
    assert all(any(one.startswith(known) for known in TOO_LONG) for one in wrapped), wrapped


def test_examples_run(run: Run, files: Path) -> None:
    demo = importlib.import_module("dubito.cli.demo")
    failed = {}
    for text in examples():
        words = shlex.split(text.partition(" > ")[0])[1:]
        if words[0] in ("demo", "doctor", "serve"):  # tested elsewhere; the last does not end
            continue
        write_payments(files)
        if words[0] == "cascade":
            names = ("questions.csv", "new.csv", "large.csv")
            demo._write_tables(files, dict(zip(names, make_questions(), strict=True)))
        if words[1:2] == ["old.csv"]:
            columns = "predictions.csv" if "--logits" in words else "sales.csv"
            for name in ("old.csv", "new.csv"):
                (files / name).write_bytes((files / columns).read_bytes())
        is_second = words[0] == "fit" and (files / "policy.json").exists()
        done = run(*words, *(["-o", "other.json"] if is_second else []))
        if done.exit_code != 0:
            failed[text] = done.output
    assert failed == {}
