"""One deadline."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.call_context import margin
from libs.common.errors import MeshError, Reason
from libs.common.testing.clock import ManualClock
from services.executor.domain.deadlines import Deadline, Limit, limit_for
from services.executor.tests.samples import a_caller, a_request, a_tool


def limit(*, own: float = 5.0, left: float | None = 30.0, authority: float = 3600.0) -> Limit:
    clock = ManualClock()
    caller = a_caller(authority_ends=clock.now().timestamp() + authority)
    request = a_request(caller=caller, deadline=left)
    return limit_for(a_tool(own_limit=own), request, Deadline(request, 0.0), clock)


@pytest.mark.parametrize(
    ("bounds", "seconds", "reason"),
    [
        ({"own": 0.5}, 0.5, Reason.TOOL_TIMEOUT),
        ({"own": 5.0, "left": None}, 5.0, Reason.TOOL_TIMEOUT),
        ({"own": 5.0, "left": 1.0}, 0.8, Reason.DEADLINE_EXCEEDED),
        ({"own": 5.0, "authority": 2.0}, 2.0, Reason.TOKEN_EXPIRED),
        ({"own": 5.0, "left": 1.0, "authority": 2.0}, 0.8, Reason.DEADLINE_EXCEEDED),
    ],
)
def test_the_least_of_all_bounds_holds_and_is_what_the_caller_hears_of(
    bounds: dict[str, float], seconds: float, reason: Reason
) -> None:
    found = limit(**bounds)
    assert found.seconds == pytest.approx(seconds)
    assert found.exceeded().reason is reason


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [({"left": 0.0}, Reason.DEADLINE_EXCEEDED), ({"authority": 0.0}, Reason.TOKEN_EXPIRED)],
)
def test_nothing_is_begun_that_has_no_time(bounds: dict[str, float], reason: Reason) -> None:
    with pytest.raises(MeshError) as caught:
        limit(**bounds)
    assert caught.value.reason is reason


@given(st.floats(0.01, 400.0))
def test_a_run_ends_before_the_waiting_for_its_record_and_that_before_the_server_gives_up(left: float) -> None:
    deadline = Deadline(a_request(deadline=left), 0.0)
    assert 0 < deadline.run_until < deadline.answer_by < left - margin(left)
