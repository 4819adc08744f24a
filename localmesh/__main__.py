"""Runs a mesh in this process: `python -m localmesh`."""

import sys

from localmesh.runner import main

sys.exit(main())
