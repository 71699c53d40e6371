import asyncio
from typing import Any

import pytest

from dubito.serve.together import Together


class Told:
    """Halves even numbers, and remembers what it was asked at once."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def __call__(self, numbers: list[int]) -> list[int]:
        self.asked.append(numbers)
        if odd := [number for number in numbers if number % 2]:
            raise ValueError(f"{odd[0]} is odd")
        return [number // 2 for number in numbers]


async def gathered(together: Together[int, int], *questions: tuple[str, int]) -> list[Any]:
    asked = (together.ask(kind, number) for kind, number in questions)
    return await asyncio.gather(*asked, return_exceptions=True)


def test_what_comes_at_once_is_answered_at_once() -> None:
    told = Told()
    together = Together(told)

    async def turns() -> None:
        assert await gathered(together, ("a", 2), ("b", 4), ("a", 6), ("a", 8)) == [1, 2, 3, 4]
        assert told.asked == [[2, 6, 8], [4]]
        assert await together.ask("a", 10) == 5
        assert told.asked[2:] == [[10]]

    asyncio.run(turns())
    assert not together.waiting


def test_one_that_cannot_be_answered_fails_alone() -> None:
    answers = asyncio.run(gathered(Together(Told()), ("a", 2), ("a", 3), ("a", 8), ("b", 5)))
    assert answers[::2] == [1, 4]
    assert [str(error) for error in answers[1::2]] == ["3 is odd", "5 is odd"]


@pytest.mark.parametrize("number", [4, 5])
def test_one_that_nobody_waits_for_disturbs_no_other(number: int) -> None:
    told = Told()
    together = Together(told)

    async def left() -> int:
        leaving = asyncio.create_task(together.ask("a", number))
        staying = asyncio.create_task(together.ask("a", 2))
        await asyncio.sleep(0)
        leaving.cancel()
        return await staying

    assert asyncio.run(left()) == 1
    assert told.asked[0] == [number, 2]
