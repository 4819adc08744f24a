"""Well-behaved tools that return which process served them."""

import builtins
import faulthandler
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from toolmesh_tool import ToolFailure, previewed_by

# Unique per process: equal tokens mean the same worker.
TOKEN = os.urandom(16).hex()
KEPT = []


def who(arguments, call):
    """Return the process token and the argument."""
    return {"token": TOKEN, "said": arguments.get("say")}


def about(arguments, call):
    """Use every method of a call."""
    call.report_effect("orders/1", "update")
    call.cost("tokens", 7)
    call.undo({"order": 1})
    call.log("a line for the author")
    return {
        "id": call.invocation_id,
        "key": call.idempotency_key,
        "preview": call.preview,
        "in_time": 0 < call.remaining() <= arguments["seconds"],
    }


def repeats(arguments, call):
    """Repeat the argument in a log line, then as the arguments say: in an exception, or on standard error."""
    call.log(f"logged {arguments['secret']}")
    if arguments.get("dies"):
        os.write(2, arguments["secret"].encode())
        os._exit(3)
    raise ValueError(f"raised {arguments['secret']}")


def vendored(arguments, call):
    """Use a vendored package."""
    import third_party

    return third_party.ANSWER


def prints(arguments, call):
    """Write to standard output and read standard input."""
    print("x" * 100_000)  # noqa: T201
    os.write(1, b"\0\0\0\2{}" * 1000)
    subprocess.run(["/usr/bin/echo", "from a child"], check=True)
    return {"stdin": os.read(0, 10).decode()}


def fails(arguments, call):
    """Raise ToolFailure."""
    raise ToolFailure("the order is closed", partial=arguments.get("partial", False))


def stutters(arguments, call):
    """Report text with lone surrogates, as in file names that are not UTF-8."""
    name = os.fsdecode(b"caf\xe9")
    call.log(name)
    call.report_effect(name, "update")
    call.cost(name, 1)
    call.expect(name, True)
    call.impact(name)
    if arguments["fails"]:
        raise ToolFailure(name)
    return {}


def talks(arguments, call):
    """Report as much as a call may."""
    for nth in range(1000):
        call.report_effect(f"{nth:04}" + "\U0001f40d" * 508, "update")
        call.expect("\U0001f40d" * 512, True)
    return {}


def raises(arguments, call):
    """Raise an unexpected exception."""
    raise ValueError("secret of the tool")


def leaves(arguments, call):
    """Raise SystemExit."""
    raise SystemExit(3)


def returns(arguments, call):
    """Return a value without a JSON form."""
    found = {"object": object(), "nan": float("nan"), "surrogate": "\ud800", "wide": 2**70, "set": {1, 2}}
    return found[arguments["what"]]


def circular(arguments, call):
    """Return a value that contains itself."""
    found = []
    found.append(found)
    return found


def large(arguments, call):
    """Return a large value."""
    return "x" * arguments["size"]


def many(arguments, call):
    """Return many small values."""
    return [[] for _ in range(arguments["count"])]


def nested(arguments, call):
    """Return a deeply nested value."""
    found = 0
    for _ in range(arguments["depth"]):
        found = [found]
    return found


def parts(arguments, call):
    """Yield parts."""
    for nth in range(arguments["count"]):
        if nth == arguments.get("fails_at"):
            raise ValueError("secret of the stream")
        yield nth
    if "result" in arguments:
        return arguments["result"]


def litter(arguments, call):
    """Leave files, processes and state behind."""
    folder = Path("/tmp/closed/inner")
    folder.mkdir(parents=True)
    (folder / "file").write_text("left")
    folder.chmod(0)
    Path("/tmp/link").symlink_to("/tmp/closed")
    os.environ["LEFT"] = "1"
    signal.setitimer(signal.ITIMER_REAL, 1000)
    os.chdir("/")
    subprocess.Popen(["/usr/bin/sleep", "1000"], start_new_session=True)
    return {"token": TOKEN}


def found(arguments, call):
    """Return what an earlier call left behind."""
    processes = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    return {
        "token": TOKEN,
        "tmp": [each.name for each in Path("/tmp").iterdir()],
        "environment": "LEFT" in os.environ,
        "timer": signal.getitimer(signal.ITIMER_REAL)[0],
        "folder": str(Path.cwd()),
        "others": [each for each in processes if each not in (1, os.getpid())],
    }


def thread(arguments, call):
    """Leave a thread behind, which cannot be ended from outside."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return {"token": TOKEN}


def _alarm(number, frame):
    KEPT.append(number)


def _audit(event, arguments):
    if event == "tricks.audited":
        KEPT.append(event)


HOOKS = {
    "handler": lambda: signal.signal(signal.SIGUSR1, _alarm),
    "native handler": lambda: faulthandler.register(signal.SIGUSR2),
    "blocked": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]),
    "profile": lambda: sys.setprofile(lambda *_: None),
    "trace": lambda: sys.settrace(lambda *_: None),
    "thread profile": lambda: threading.setprofile(lambda *_: None),
    "collector": lambda: gc.callbacks.append(lambda *_: None),
    "builtin": lambda: setattr(builtins, "abs", lambda _: 0),
    "audit": lambda: sys.addaudithook(_audit),
}


def hooks(arguments, call):
    """Leave a hook behind, or return which of them are there."""
    if "leave" in arguments:
        HOOKS[arguments["leave"]]()
        return []
    KEPT.clear()
    sys.audit("tricks.audited")
    active = {
        "handler": signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL,
        "native handler": faulthandler.unregister(signal.SIGUSR2),
        "blocked": bool(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "profile": sys.getprofile() is not None,
        "trace": sys.gettrace() is not None,
        "thread profile": threading.getprofile() is not None,
        "collector": bool(gc.callbacks),
        "builtin": abs(1) != 1,
        "audit": bool(KEPT),
    }
    return [name for name, is_active in active.items() if is_active]


def mess(arguments, call):
    """Run one of these tools by name, so that one worker can serve several."""
    return {"litter": litter, "found": found, "thread": thread}[arguments["do"]](arguments, call)


def grows(arguments, call):
    """Keep memory in a module global."""
    KEPT.append(bytearray(arguments["bytes"]))
    return {"token": TOKEN}


def waits(arguments, call):
    """Never end, with children that ignore signals and carry a marker in their command line."""
    script = "trap '' TERM INT HUP; exec /usr/bin/sleep " + arguments["marker"]
    for _ in range(3):
        subprocess.Popen(["/bin/sh", "-c", script], start_new_session=True)
    while True:
        time.sleep(60)


def forecast(arguments, call):
    """Forecast the call."""
    call.report_effect("orders/2", "create")
    call.expect("the shop is open", False)
    call.impact("One order would be made.")
    return {"forecast": True}


@previewed_by(forecast)
def orders(arguments, call):
    """Run the call."""
    return {"forecast": False}
