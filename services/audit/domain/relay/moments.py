"""The moments of an invocation: the event classes of the Agent Tool standard that a record attests by its content.

The executor writes one record for a decision and one for an outcome; a record for each state would cost every call
several. The outcome lists the states that the invocation passed through, so the relay sends an event for each of them.
"""

from __future__ import annotations

from functools import lru_cache

MAX_MOMENTS = 15
# The state as the executor writes it, and what its passing attests.
_EVENTS_OF_STATE: dict[str, tuple[str, ...]] = {
    "planned": ("tool.invocation.planned",),
    "selected": ("tool.invocation.selected",),
    "arguments_ready": ("tool.invocation.arguments_ready",),
    "pre_hooks_running": ("tool.hook.pre.started", "tool.hook.pre.completed"),
    "awaiting_approval": ("tool.permission.requested",),
    "queued": ("tool.invocation.queued",),
    "running": ("tool.invocation.started",),
    "partial_result": ("tool.invocation.partial_result",),
    "post_hooks_running": ("tool.hook.post.started", "tool.hook.post.completed"),
    "yielded": ("tool.invocation.yielded",),
}
_DECIDED, _SUCCEEDED = "permission_decided", "invocation_succeeded"


@lru_cache(maxsize=512)
def moments_of(event_class: str, state_path: str) -> tuple[str, ...]:
    """Return the event types, without prefix, that a record attests beside its own, in the order of the states."""
    if event_class == _DECIDED:
        return ("tool.permission.requested",)
    moments = [event for state in state_path.split() for event in _EVENTS_OF_STATE.get(state, ())]
    if event_class == _SUCCEEDED and moments:
        moments.append("tool.result.created")
    return tuple(moments[:MAX_MOMENTS])
