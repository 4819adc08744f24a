"""A program that writes events to its job, as its command line says."""

import json
import os
import signal
import sys
import time


def send(event):
    EVENTS.write((event if isinstance(event, str) else json.dumps(event)) + "\n")
    EVENTS.flush()


def exchange(event):
    send(event)
    return json.loads(INPUT.readline())


def trapped(*_):
    # Not through the buffer, which the signal may have interrupted.
    os.write(EVENTS.fileno(), b'{"log": {"text": "trapped"}}\n')
    os._exit(3)


order = sys.argv[1]
if "TOOLMESH_EVENTS_FD" not in os.environ:
    sys.stdout.write(json.dumps({"job": False}))
    sys.exit()
EVENTS = open(int(os.environ["TOOLMESH_EVENTS_FD"]), "w")  # noqa: PTH123, SIM115
INPUT = open(int(os.environ["TOOLMESH_INPUT_FD"]))  # noqa: PTH123, SIM115
resumed = json.loads(INPUT.readline())["resume"]
if order == "steps":
    send({"progress": {"current_step": 1, "total_steps": 2, "message": "one"}})
    send({"log": {"text": "a line"}})
    send({"log": {"text": "a warning", "severity": "warning"}})
    send({"partial": {"part": 1}})
    saved = exchange({"checkpoint": {"state": {"step": 1}, "event": "step", "label": "first"}})
    answer = exchange({"ask": {"message": "go on?", "schema": {"type": "boolean"}, "number": 7}})
    sys.stdout.write(json.dumps({"resumed": resumed, "saved": saved, "answer": answer}))
elif order == "malformed":
    errors = [
        exchange(text)
        for text in ("{", "[]", '{"explode": {}}', json.dumps({"partial": "x" * 300_000}), "9" * (5 << 20))
    ]
    for _ in range(300):
        send("")
    send({"progress": {"message": "end"}})
    sys.stdout.write(json.dumps([list(error) for error in errors]))
else:
    if order == "ignores":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif order == "traps":
        signal.signal(signal.SIGTERM, trapped)
    send({"progress": {"message": "waiting"}})
    if order == "reads":
        send({"log": {"text": INPUT.readline().strip()}})
        sys.exit(2)
    while True:
        time.sleep(0.01)
