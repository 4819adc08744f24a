"""Tools that report to their jobs, well-behaved and hostile ones."""

import os
import signal
import time

from toolmesh_tool import Canceled, InputUnavailableError, ToolFailure

PROCESS = os.urandom(8).hex()


def steps(arguments, call):
    """Make steps, with a checkpoint after each."""
    state = call.resume_state or {"done": []}
    for step in range(len(state["done"]), arguments["steps"]):
        call.progress(
            step=step + 1, of=arguments["steps"], percent=100 * (step + 1) / arguments["steps"], message="one"
        )
        call.log(f"step {step}", severity="warning")
        call.partial({"step": step})
        state["done"].append(step)
        if not call.checkpoint(state, event="step", label="last" if step == arguments["steps"] - 1 else ""):
            call.log("not saved", severity="error")
    return {"done": state["done"], "process": PROCESS}


def asks(arguments, call):
    """Ask the caller, and return the answer and the time that is left."""
    try:
        answer = call.ask("Which color?\nThink.", {"type": "string"})
    except InputUnavailableError as unavailable:
        if arguments.get("catches"):
            return {"unavailable": str(unavailable)}
        raise
    return {"answer": answer, "left": call.remaining()}


def waits(arguments, call):
    """Wait until the call is canceled, in the way of the arguments."""
    how = arguments["how"]
    if how == "ignores":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        call.progress(message="waiting")
        while not call.canceled if how == "looks" else True:
            if how in ("computes", "ignores", "looks"):
                time.sleep(0.01)
            elif how == "sleeps":
                call.sleep(60)
            elif how == "asks":
                call.ask("anything?")
            else:
                call.progress(percent=1)
                time.sleep(0.001)
    except Canceled:
        # The report itself may already meet the cancellation.
        while how == "ignores":
            time.sleep(0.01)
        call.report_effect("orders/1", "update")
        call.checkpoint({"cleaned": how})
        if how == "fails":
            raise ToolFailure("half of it is done", partial=True) from None
        raise
    return {"finished": True}


def floods(arguments, call):
    """Report as fast as possible, and more than the worker would send."""
    for count in range(arguments["count"]):
        if arguments["how"] == "progress":
            call.progress(step=count)
        else:
            call._channel._send("progress", {"current_step": count})
    call.progress(step=arguments["count"], message="end")
    return {}


def speaks(arguments, call):
    """Send a frame that the worker would not send."""
    call.log("before")
    call._channel._send(arguments["kind"], arguments["fields"], arguments.get("payload", "").encode())
    if "size" in arguments:
        os.write(_responses(call), arguments["size"].to_bytes(4, "big"))
    call.sleep(60)


def _responses(call):
    return call._channel._responses._descriptor


def limits(arguments, call):
    """Report more than is allowed, and return what was refused."""
    refused = []
    for report in (
        lambda: call.partial("x" * (1 << 20)),
        lambda: call.checkpoint("x" * (5 << 20)),
        lambda: call.progress(percent=float("nan")),
        lambda: call.log("x", severity="loud"),
        lambda: call.partial({1, 2}),
    ):
        try:
            report()
        except (ValueError, TypeError):
            refused.append(True)
    call.checkpoint("x" * (512 << 10))
    call.progress(percent=1e14, step=2**60, message="a\x1b[2Jb" + "c" * 5000)
    child = os.fork()
    if child == 0:
        call.progress(message="from a child")
        os._exit(0)
    os.waitpid(child, 0)
    return {"refused": len(refused)}
