"""Studies cache their runs, write their tables, and update their section of a README."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from studies.common import study
from studies.common.reporting import (
    StudyReport,
    markdown_table,
    mean_and_spread,
    panels,
    put_into_readme,
)
from studies.common.runs import Arrays, RunResult, run_all, run_one
from studies.common.study import Options, Study


@dataclass(frozen=True)
class Throw:
    """One run of the study that is made here."""

    seed: int
    log: Path


def thrown(throw: Throw) -> RunResult:
    """Return a figure, and note that this was done."""
    with throw.log.open("a") as file:
        file.write(json.dumps(throw.seed) + "\n")
    return {"figure": 2.0 * throw.seed, "curve": [1.0, 2.0]}


def summarize(found: Mapping[Throw, Arrays]) -> StudyReport:
    """Return the figures as a table."""
    figures = [float(one["figure"]) for one in found.values()]
    return StudyReport(
        markdown_table(["what", "figure"], [["throw", mean_and_spread(figures)]]), panels(1, 2)
    )


@pytest.mark.parametrize("n_processes", [1, 2])
def test_runs_are_done_once(tmp_path: Path, n_processes: int) -> None:
    log = tmp_path / "log"
    settings = [Throw(seed, log) for seed in range(3)]
    first = run_all(thrown, settings[:2], tmp_path / "cache", n_processes)
    again = run_all(thrown, settings, tmp_path / "cache", 1)
    assert sorted(log.read_text().split()) == ["0", "1", "2"]
    assert [float(one["figure"]) for one in again.values()] == [0.0, 2.0, 4.0]
    assert again[settings[0]]["curve"].tolist() == first[settings[0]]["curve"].tolist() == [1, 2]


def test_a_single_run_is_shared_with_those_of_a_study(tmp_path: Path) -> None:
    log = tmp_path / "log"
    alone = run_one(thrown, Throw(3, log), tmp_path / "cache")
    together = run_all(thrown, [Throw(3, log), Throw(4, log)], tmp_path / "cache", 1)
    again = run_one(thrown, Throw(4, log), tmp_path / "cache")
    assert log.read_text().split() == ["3", "4"]
    assert float(alone["figure"]) == float(together[Throw(3, log)]["figure"]) == 6.0
    assert float(again["figure"]) == 8.0


def test_a_run_that_fails_loses_no_other(tmp_path: Path) -> None:
    log = tmp_path / "log"
    settings = [Throw(0, log), Throw(1, tmp_path / "nowhere" / "log")]
    with pytest.raises(FileNotFoundError):
        run_all(thrown, settings, tmp_path / "cache", 1)
    run_all(thrown, settings[:1], tmp_path / "cache", 1)
    assert log.read_text().split() == ["0"]


def test_a_study_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def settings(options: Options) -> list[Throw]:
        assert options.is_quick
        return [Throw(seed, tmp_path / "log") for seed in options.seeds]

    study = Study("throws", settings, thrown, summarize)
    arguments = ["--quick", "--seeds", "2", "--cache", str(tmp_path), "-o", str(tmp_path / "out")]
    study.main(arguments)
    table = "| what | figure |\n|---|---:|\n| throw | 1.000 ± 1.414 |\n\nSeeds: 2."
    assert (tmp_path / "out" / "throws.md").read_text() == f"{table}\n"
    assert (tmp_path / "out" / "throws.png").stat().st_size > 1_000
    assert capsys.readouterr().out.startswith(table)


def test_tables_go_between_their_marks(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text("before\n<!-- depth -->\nold\n<!-- end of depth -->\nafter\n")
    put_into_readme("depth", r"new \1", path)
    put_into_readme("depth", "newer", path)
    assert path.read_text() == "before\n<!-- depth -->\nnewer\n<!-- end of depth -->\nafter\n"


def test_a_readme_without_marks_raises(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text("nothing")
    message = (
        "put_into_readme: README.md has no marks for depth. Add the lines <!-- depth --> and "
        "<!-- end of depth --> where its tables belong."
    )
    with pytest.raises(ValueError, match="marks") as error:
        put_into_readme("depth", "new", path)
    assert str(error.value) == message


def test_only_studies_with_cifar_have_its_option(tmp_path: Path) -> None:
    requested: list[Path | None] = []

    def settings(options: Options) -> list[Throw]:
        requested.append(options.cifar)
        return [Throw(0, tmp_path / "log")]

    places = ["--quick", "--cache", str(tmp_path), "-o", str(tmp_path / "out")]
    Study("throws", settings, thrown, summarize).main(places)
    Study("throws", settings, thrown, summarize, has_cifar=True).main([*places, "--cifar", "there"])
    assert requested == [None, Path("there")]
    with pytest.raises(SystemExit):
        Study("throws", settings, thrown, summarize).main([*places, "--cifar", "there"])


@pytest.mark.parametrize(
    ("given", "is_full"),
    [
        (["--cifar", "there"], True),
        (["--cifar", "there", "--seeds", "2"], True),
        (["--cifar", "there", "--seeds", "1"], False),
        (["--cifar", "there", "--quick", "--seeds", "2"], False),
        ([], False),
    ],
)
def test_only_whole_runs_are_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], is_full: bool
) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("<!-- throws -->\n<!-- end of throws -->\n")
    monkeypatch.setattr(
        study, "put_into_readme", lambda name, text: put_into_readme(name, text, readme)
    )

    def settings(options: Options) -> list[Throw]:
        return [Throw(seed, tmp_path / "log") for seed in options.seeds]

    places = ["--cache", str(tmp_path), "--processes", "1"]
    docs = tmp_path / "docs"
    throws = Study("throws", settings, thrown, summarize, n_seeds=2, has_cifar=True, docs=docs)
    throws.main([*places, *given])
    assert (tmp_path / "docs" / "throws.md").is_file() == is_full
    assert ("| throw |" in readme.read_text()) == is_full


@pytest.mark.parametrize("option", ["--seeds", "--processes"])
@pytest.mark.parametrize("number", ["0", "-1", "two"])
def test_counts_below_1_raise(option: str, number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        Study("throws", lambda _: [], thrown, summarize).main([option, number])
    assert f"must be a positive integer, got {number}" in capsys.readouterr().err
