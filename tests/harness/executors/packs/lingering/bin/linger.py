"""The same as a program."""

import json
import runpy
import sys
from pathlib import Path

pack = runpy.run_path(str(Path(__file__).resolve().parent.parent / "scatter.py"))
pack["linger"](json.load(sys.stdin)["marker"])
