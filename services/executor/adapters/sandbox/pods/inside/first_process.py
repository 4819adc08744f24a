"""The first process of a container: it reaps orphans, and ends when no agent came in time or the agent has ended.

It is passed as source on the command line, with the seconds and a mark by which the agent knows that it is in a pod.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_DUMPABLE, _LOOK_SECONDS = 4, 0.2


def main() -> None:
    """Wait for an agent and for its end."""
    # The tool has the same user: it must not write into this process's memory.
    ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Blocked signals reach a first process too, which ignores others of its own namespace.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    began = signal.sigtimedwait({signal.SIGTERM, signal.SIGUSR1}, float(sys.argv[1]))
    if began is None or began.si_signo == signal.SIGTERM:
        return
    # The runtime kills the agent when the executor's connection breaks. With this process everything ends.
    while signal.sigtimedwait({signal.SIGTERM}, _LOOK_SECONDS) is None:
        try:
            os.kill(began.si_pid, 0)
        except ProcessLookupError:
            return


if __name__ == "__main__":
    main()
