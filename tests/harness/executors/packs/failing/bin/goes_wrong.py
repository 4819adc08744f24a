"""A program that goes wrong as its one argument says."""

import os
import sys
from pathlib import Path

way = sys.argv[1]
if way == "exit":
    sys.exit(3)
elif way == "signal":
    os.abort()
elif way == "processes":
    for _ in range(50):
        os.fork()
elif way == "file_size":
    Path("/tmp/much").write_bytes(bytes(64 << 20))
elif way == "memory":
    taken = [bytearray(b"x" * (4 << 20)) for _ in range(1000)]
elif way == "words":
    sys.stdout.write("this is no JSON")
