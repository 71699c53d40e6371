"""The command line that all studies have."""

from __future__ import annotations

import argparse
import inspect
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar, final

from studies.common.images import FOLDER
from studies.common.reporting import Told, put_into_readme
from studies.common.runs import Arrays, Found, run_all

DOCS = Path(__file__).parents[2] / "docs" / "studies"
CACHE = Path.home() / ".cache" / "dubito-studies"
Setting = TypeVar("Setting")


@final
@dataclass(frozen=True, slots=True)
class Options:
    """What is asked on the command line: how many seeds, quick or whole, where the images are.

    `cifar` is None where CIFAR-10 is not at hand; `cache` is where runs are kept.
    """

    seeds: tuple[int, ...]
    is_quick: bool
    folder: Path
    cifar: Path | None = None
    cache: Path = CACHE

    def kept(self, name: str) -> Path:
        """Return the folder that keeps the runs of the study, or of the studies, of this name."""
        return self.cache / (f"{name}-quick" if self.is_quick else name)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Study(Generic[Setting]):
    """A claim that is tried: the runs it needs, the work of one, and what they tell together.

    `python -m studies.NAME` runs it. `settings` are frozen dataclasses, `work` makes figures and
    arrays of one, `tell` makes the tables and the picture of all. Runs are kept by the name of the
    study, or by `kept` where studies share what was run. With `has_cifar` there is an option for
    where CIFAR-10 is.
    """

    name: str
    settings: Callable[[Options], Sequence[Setting]]
    work: Callable[[Setting], Found]
    tell: Callable[[Mapping[Setting, Arrays]], Told]
    n_seeds: int = 3
    kept: str | None = None
    has_cifar: bool = False

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """Run what is not kept yet, print the tables, and write them with the picture.

        Those of whole runs, with all seeds and sets, go to the docs and into the README.
        """
        options = self.parsed(arguments)
        seeds = tuple(range(options.seeds))
        is_whole = not options.quick and len(seeds) >= self.n_seeds
        is_whole &= not self.has_cifar or options.cifar is not None
        output = options.o or (DOCS if is_whole else Path(tempfile.mkdtemp()))
        asked = Options(seeds, options.quick, options.folder, options.cifar, options.cache)
        start = time.monotonic()
        kept = asked.kept(self.kept or self.name)
        told = self.tell(run_all(self.work, self.settings(asked), kept, options.processes))
        told.write(output, self.name)
        print(told.text)
        print(f"\n{output / self.name}.md and .png, {time.monotonic() - start:.0f} s")
        if output == DOCS and is_whole:
            put_into_readme(self.name, told.text)

    def parsed(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """Return what the command line says; its help is the text of the study's module."""
        parser = argparse.ArgumentParser(
            prog=f"python -m studies.{self.name}",
            description=getattr(inspect.getmodule(self.settings), "__doc__", None),
            formatter_class=argparse.RawTextHelpFormatter,
        )
        add = parser.add_argument
        add("--quick", action="store_true", help="seconds instead of minutes: few rows, one seed")
        add("--seeds", type=count, help=f"how many (default: {self.n_seeds}, 1 if quick)")
        add("--processes", type=count, help="runs at a time (default: 2, 1 if quick)")
        add("--folder", type=Path, default=FOLDER, help="where Fashion-MNIST's idx files are")
        if self.has_cifar:
            add(
                "--cifar", type=Path, help="CIFAR-10, the folder cifar-10-batches-py or an npz file"
            )
        add("--cache", type=Path, default=CACHE, help=f"where runs are kept (default: {CACHE})")
        add(
            "-o",
            type=Path,
            help="folder for table and picture (default: docs/studies; a new one in /tmp if the run"
            "\nis quick or has fewer seeds or sets than the whole study)",
        )
        parser.set_defaults(cifar=None)
        given = parser.parse_args(arguments)
        given.processes = given.processes or (1 if given.quick else 2)
        given.seeds = given.seeds or (1 if given.quick else self.n_seeds)
        return given


def count(text: str) -> int:
    """Return a whole number from 1 up."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 up. Got {text}.")
    return int(text)
