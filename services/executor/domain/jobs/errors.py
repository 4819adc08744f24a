"""Constructs the errors of jobs, their questions and their streams."""

from __future__ import annotations

from libs.common.errors import MeshError, Reason, Violation


def invocation_not_found(invocation_id: str) -> MeshError:
    """There is no such invocation, or it is another caller's: the error is the same for both."""
    return MeshError(Reason.INVOCATION_NOT_FOUND, metadata={"invocation": f"invocations/{invocation_id}"})


def parent_over(invocation_id: str) -> MeshError:
    """The invocation has ended, or is being cancelled, so that no other can become a part of it."""
    return MeshError(
        Reason.FAILED_PRECONDITION,
        message="the parent has ended or is being cancelled",
        metadata={"invocation": f"invocations/{invocation_id}"},
    )


def question_not_open(input_id: str, open_id: str) -> MeshError:
    """The invocation does not wait with this question: it was answered, or its tool was started again since."""
    message = "the invocation does not wait for an answer to this question"
    metadata = {"input_id": input_id, **({"open_input_id": open_id} if open_id else {})}
    return MeshError(Reason.FAILED_PRECONDITION, message=message, metadata=metadata)


def stream_not_opened(message: str) -> MeshError:
    """The first message of a stream neither starts an invocation nor attaches to one, or a later one does."""
    return MeshError(Reason.INVALID_REQUEST, message=message)


def stream_only() -> MeshError:
    """Only an invocation that a stream starts can be cancelled with it."""
    message = "is for StreamInvocation: an invocation without a stream would be cancelled at once"
    return MeshError(Reason.INVALID_REQUEST, violations=[Violation("on_disconnect", "stream_only", message)])
