"""A program that follows its command-line arguments."""

import json
import os
import sys
import time
from pathlib import Path

given = json.load(sys.stdin)
order, rest = sys.argv[1], sys.argv[2:]
if order == "echo":
    print(json.dumps({"given": given, "rest": rest, "environment": dict(os.environ)}))  # noqa: T201
elif order == "say":
    sys.stdout.write(rest[0])
elif order == "exit":
    sys.stderr.write("secret of the program")
    sys.exit(int(rest[0]))
elif order == "flood":
    while True:
        sys.stdout.write("x" * 65536)
elif order == "wait":
    Path("/tmp/marker").touch()
    os.execv("/usr/bin/sleep", ["sleep", rest[0]])  # noqa: S606
elif order == "kill":
    os.kill(os.getpid(), int(rest[0]))
    time.sleep(60)
elif order == "write":
    (Path("/volumes") / rest[0]).write_text(rest[1])
    print(json.dumps({"preview": os.environ["TOOLMESH_PREVIEW"]}))  # noqa: T201
