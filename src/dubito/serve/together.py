"""Questions that wait are answered in one go: nobody waits longer, and the work is shared."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar, final

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Waiting = tuple[Question, asyncio.Future[Answer]]


@final
class Together(Generic[Question, Answer]):
    """Gathers what comes in one turn of the event loop, by kind, and answers it in the next.

    Where several cannot be answered at once each is answered alone, so that none fails for another.

    >>> together = Together(lambda questions: [sum(questions)] * len(questions))
    >>> async def asked() -> list[int]:
    ...     return await asyncio.gather(*(together.ask("sum", number) for number in (1, 2, 3)))
    >>> asyncio.run(asked())
    [6, 6, 6]
    """

    def __init__(self, answer_all: Callable[[list[Question]], list[Answer]]) -> None:
        self.answer_all = answer_all
        self.waiting: dict[Hashable, list[Waiting[Question, Answer]]] = defaultdict(list)

    async def ask(self, kind: Hashable, question: Question) -> Answer:
        """Return the answer to a question, which may be answered with others of its kind."""
        loop = asyncio.get_running_loop()
        if not self.waiting:
            loop.call_soon(self.answer)
        future: asyncio.Future[Answer] = loop.create_future()
        self.waiting[kind].append((question, future))
        return await future

    def answer(self) -> None:
        """Answer all that waits."""
        groups = list(self.waiting.values())
        self.waiting.clear()
        for group in groups:
            self.answer_group(group)

    def answer_group(self, group: list[Waiting[Question, Answer]]) -> None:
        """Answer questions of one kind."""
        try:
            answers = self.answer_all([question for question, _ in group])
        except Exception as error:
            if len(group) > 1:
                for one in group:
                    self.answer_group([one])
            elif not group[0][1].done():
                group[0][1].set_exception(error)
            return
        for (_, future), answer in zip(group, answers, strict=True):
            if not future.done():  # nobody waits any longer for one that was cancelled
                future.set_result(answer)
