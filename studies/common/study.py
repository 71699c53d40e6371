"""The command line shared by all studies."""

from __future__ import annotations

import argparse
import inspect
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar, final

from studies.claims import CLAIMS
from studies.common.images import FOLDER
from studies.common.reporting import StudyReport, put_into_readme
from studies.common.runs import Arrays, RunResult, run_all
from studies.verdicts import with_verdicts

DOCS = Path(__file__).parents[2] / "docs" / "studies"
CACHE = Path.home() / ".cache" / "dubito-studies"
Setting = TypeVar("Setting")


@final
@dataclass(frozen=True, slots=True)
class Options:
    """Command-line options: seeds, quick or full, and where the images are.

    `cifar` is None if CIFAR-10 is not available; `cache` is where finished runs are stored.
    """

    seeds: tuple[int, ...]
    is_quick: bool
    folder: Path
    cifar: Path | None = None
    cache: Path = CACHE

    def cache_folder(self, name: str) -> Path:
        """Return the folder in which finished runs of this name are cached."""
        return self.cache / (f"{name}-quick" if self.is_quick else name)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Study(Generic[Setting]):
    """A claim under test: the settings to run, one run, and the summary of all runs.

    `python -m studies.NAME` runs it. `settings` returns frozen dataclasses, `work` returns the
    metrics and arrays of one setting, `summarize` the tables and the figure of all. Runs are cached
    under the name of the study, or under `cache_name` if several studies use the same runs. With
    `has_cifar` there is an option for the location of CIFAR-10.
    """

    name: str
    settings: Callable[[Options], Sequence[Setting]]
    work: Callable[[Setting], RunResult]
    summarize: Callable[[Mapping[Setting, Arrays]], StudyReport]
    n_seeds: int = 3
    cache_name: str | None = None
    has_cifar: bool = False
    docs: Path = DOCS

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """Run what is not cached yet, print the tables, and write them with the figure.

        Results of full runs, with all seeds and data sets, go to the docs and into the README.
        """
        options = self.parse(arguments)
        seeds = tuple(range(options.seeds))
        is_full = not options.quick and len(seeds) >= self.n_seeds
        is_full &= not self.has_cifar or options.cifar is not None
        output = options.o or (self.docs if is_full else Path(tempfile.mkdtemp()))
        requested = Options(seeds, options.quick, options.folder, options.cifar, options.cache)
        start = time.monotonic()
        folder = requested.cache_folder(self.cache_name or self.name)
        runs = run_all(self.work, self.settings(requested), folder, options.processes)
        report = self.summarize(runs)
        text = f"{report.text}\n\nSeeds: {len(seeds)}."
        if is_full:
            text = with_verdicts(text, CLAIMS.get(self.name, ()))
        report = replace(report, text=text)
        report.write(output, self.name)
        print(report.text)
        print(f"\n{output / self.name}.md and .png, {time.monotonic() - start:.0f} s")
        if output == self.docs and is_full:
            put_into_readme(self.name, report.text)

    def parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """Return the parsed options; the help text is the docstring of the study's module."""
        parser = argparse.ArgumentParser(
            prog=f"python -m studies.{self.name}",
            description=getattr(inspect.getmodule(self.settings), "__doc__", None),
            formatter_class=argparse.RawTextHelpFormatter,
        )
        add = parser.add_argument
        add("--quick", action="store_true", help="seconds instead of minutes: few rows, one seed")
        add("--seeds", type=count, help=f"number of seeds (default: {self.n_seeds}, 1 if quick)")
        add("--processes", type=count, help="parallel runs (default: 2, 1 if quick)")
        add("--folder", type=Path, default=FOLDER, help="directory of Fashion-MNIST's idx files")
        if self.has_cifar:
            add(
                "--cifar",
                type=Path,
                help="CIFAR-10: the directory cifar-10-batches-py, or an npz file",
            )
        add("--cache", type=Path, default=CACHE, help=f"cache of finished runs (default: {CACHE})")
        add(
            "-o",
            type=Path,
            help="directory for table and figure (default: docs/studies; a temporary one if the run"
            "\nis quick or has fewer seeds or data sets than the full study)",
        )
        parser.set_defaults(cifar=None)
        given = parser.parse_args(arguments)
        given.processes = given.processes or (1 if given.quick else 2)
        given.seeds = given.seeds or (1 if given.quick else self.n_seeds)
        return given


def count(text: str) -> int:
    """Return a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, got {text}")
    return int(text)
