"""A tool that prints in every way."""

import os
import sys
import threading
import time

TOKEN = os.urandom(16).hex()
KEPT = []
print("loaded")  # noqa: T201


def chats(arguments, call):
    """Print in every way, and as the arguments say leave something behind for the next call."""
    say, how = arguments["say"], arguments["how"]
    if how == "half":
        KEPT.append(sys.stdout)
        sys.stdout.write(f"half of {say}")
        return TOKEN
    print("out", say)  # noqa: T201
    if how == "print":
        print("err", say, file=sys.stderr)  # noqa: T201
        call.log(f"logged {say}")
        sys.stdout.buffer.write(f"raw {say}\n".encode())
        pid = os.fork()
        if not pid:
            print("from a fork of", say)  # noqa: T201
            os._exit(0)
        os.waitpid(pid, 0)
    elif how == "thread":
        threading.Thread(target=_chat_on, args=(say,), daemon=True).start()
    elif how == "flood":
        for _ in range(10_000):
            print("flood of", say)  # noqa: T201
    elif how == "hang":
        time.sleep(60)
    return TOKEN


def _chat_on(say):
    while True:
        print("thread of", say)  # noqa: T201
        time.sleep(0.001)
