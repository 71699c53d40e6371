"""Whose turn it is to write to a folder."""

from __future__ import annotations

from typing import NamedTuple, Self
from uuid import uuid4

from dubito.data.sources.locations import is_there, open_file, remove
from dubito.data.whole_text import write_whole
from dubito.errors import BadFileError

__all__ = ["Turn"]


class Turn(NamedTuple):
    """The right to add parts to a folder, until it ends or another one begins.

    A worker of a cluster goes on with a part after the run that asked for it has failed. It looks
    here before the part takes its name, which may be that of another part by now.

    >>> import tempfile
    >>> turn = Turn.begin(f"{tempfile.mkdtemp()}/_turn")
    >>> turn.require()
    >>> turn.end()
    """

    place: str
    mark: str

    @classmethod
    def begin(cls, place: str) -> Self:
        """Take the turn, from whoever has it, by a mark in a file or at a URL."""
        turn = cls(place, uuid4().hex)
        write_whole(place, turn.mark)
        return turn

    def require(self) -> None:
        """Raise if the turn is over."""
        if not self.is_on():
            folder = self.place.rpartition("/")[0]
            problem = "the run that this part is of has ended, or another one has begun"
            raise BadFileError(folder, problem, "one run at a time")

    def is_on(self) -> bool:
        """Whether the mark is still there."""
        if not is_there(self.place):
            return False
        with open_file(self.place) as file:
            return bytes(file.read()) == self.mark.encode()

    def end(self) -> None:
        """Give the turn up, unless another one has begun."""
        if self.is_on():
            remove(self.place)
