"""An answer is given again only while nothing that it depends on has changed."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable, Sequence

import pytest
from google.protobuf.message import Message
from toolmesh.registry.v1 import registry_service_pb2 as pb

from libs.common.testing.clock import ManualClock
from services.registry.domain.catalog.changes import Change, Position
from services.registry.handlers.response_cache import MAX_ANSWERS, Answers, CacheClearingWakeup


class Feed:
    """A feed that says what it is told to."""

    def __init__(self) -> None:
        self.at: Position | None = Position("epoch", 1)

    def seen(self) -> Position | None:
        return self.at

    async def beyond(self, position: Position) -> Sequence[Change]:
        raise AssertionError(f"nobody follows {position} here")


class Maker:
    """Makes a new answer each time, and counts."""

    def __init__(self, until: float = math.inf) -> None:
        self.made, self.until = 0, until

    async def __call__(self) -> tuple[pb.ListToolsResponse, float]:
        self.made += 1
        return pb.ListToolsResponse(next_page_token=f"answer {self.made}"), self.until


class Rung:
    def __init__(self) -> None:
        self.times = 0

    def notify(self) -> None:
        self.times += 1


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def answers(feed: Feed, clock: ManualClock) -> Answers:
    return Answers(feed, clock)


async def recall(answers: Answers, key: Hashable, make: Callable[[], Awaitable[tuple[Message, float]]]) -> bytes:
    """Ask as a handler does."""
    return answers.known(key) or await answers.make(key, make)


async def test_the_same_question_is_answered_again_from_memory(answers: Answers) -> None:
    make = Maker()
    first = await recall(answers, "a", make)
    assert await recall(answers, "a", make) is first
    assert (await recall(answers, "b", make)) is not first
    assert make.made == 2


async def test_an_answer_is_recalled_by_the_request_as_it_was_sent(answers: Answers) -> None:
    make, request = Maker(), pb.ListToolsRequest(namespace="acme")
    recall_listed, sent = answers.recall_of("ListTools"), request.SerializeToString()
    assert recall_listed(sent) is None
    given = await answers.give("ListTools", request, make)
    assert await answers.give("ListTools", request, make) is given
    assert recall_listed(sent) is given
    assert answers.recall_of("ResolveTool")(sent) is None
    assert make.made == 1
    answers.forget()
    assert recall_listed(sent) is None


@pytest.mark.parametrize("now", [Position("epoch", 2), Position("other", 1)])
async def test_a_change_that_the_feed_saw_ends_every_answer(answers: Answers, feed: Feed, now: Position) -> None:
    make = Maker()
    await recall(answers, "a", make)
    feed.at = now
    await recall(answers, "a", make)
    assert make.made == 2


async def test_while_the_log_is_not_seen_nothing_is_remembered(answers: Answers, feed: Feed) -> None:
    make, known = Maker(), Maker()
    await recall(answers, "known", known)
    feed.at = None
    await recall(answers, "known", known)
    await recall(answers, "a", make)
    await recall(answers, "a", make)
    assert (make.made, known.made) == (2, 2)
    feed.at = Position("epoch", 1)
    await recall(answers, "known", known)
    assert known.made == 3


async def test_an_answer_that_was_being_made_while_the_log_moved_is_not_kept(answers: Answers, feed: Feed) -> None:
    make = Maker()

    async def overtaken() -> tuple[pb.ListToolsResponse, float]:
        feed.at = Position("epoch", 2)
        return await make()

    await recall(answers, "a", overtaken)
    await recall(answers, "a", make)
    assert make.made == 2


async def test_an_answer_that_was_being_made_while_this_process_wrote_is_not_kept(answers: Answers) -> None:
    make = Maker()

    async def overtaken() -> tuple[pb.ListToolsResponse, float]:
        made = await make()
        answers.forget()
        return made

    await recall(answers, "a", overtaken)
    await recall(answers, "a", make)
    assert make.made == 2


async def test_the_bell_makes_this_process_forget_before_it_tells_the_others(answers: Answers) -> None:
    make, rung = Maker(), Rung()
    await recall(answers, "a", make)
    CacheClearingWakeup(rung, answers).notify()
    await recall(answers, "a", make)
    assert (make.made, rung.times) == (2, 1)


async def test_an_answer_ends_at_its_own_moment(answers: Answers, clock: ManualClock) -> None:
    make = Maker(until=clock.now().timestamp() + 60)
    await recall(answers, "a", make)
    clock.advance(59)
    await recall(answers, "a", make)
    assert make.made == 1
    clock.advance(1)
    await recall(answers, "a", make)
    assert make.made == 2


async def test_a_failure_is_not_remembered(answers: Answers) -> None:
    make = Maker()

    async def fails() -> tuple[pb.ListToolsResponse, float]:
        raise LookupError

    with pytest.raises(LookupError):
        await recall(answers, "a", fails)
    assert pb.ListToolsResponse.FromString(await recall(answers, "a", make)).next_page_token == "answer 1"


async def test_memory_is_bounded_in_number_and_size(feed: Feed, clock: ManualClock) -> None:
    make = Maker()
    answers = Answers(feed, clock)
    for number in range(MAX_ANSWERS + 10):
        await recall(answers, number, make)
    assert len(answers._known) == MAX_ANSWERS
    small = Answers(feed, clock, max_bytes=100)
    for number in range(50):
        await recall(small, number, make)
    assert small._bytes == sum(len(known.written) for known in small._known.values()) <= 100
    await recall(small, 49, make)
    assert make.made == MAX_ANSWERS + 60
