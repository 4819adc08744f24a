"""Measure what the mesh costs, in one run on one machine. Absolute figures mean little; ratios do."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bench import rows
from bench.generator import program
from bench.stage import stage
from bench.suites import SUITES

RESULTS = Path(__file__).parent / "results" / "latest.json"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help=f"which to run: {', '.join(SUITES)}; all if none is named"
    )
    wanted = parser.parse_args().suites or list(SUITES)
    unknown = [name for name in wanted if name not in SUITES]
    if unknown:
        parser.error(f"no such suite: {', '.join(unknown)}; there are {', '.join(SUITES)}")
    program()
    found: list[rows.Row] = []
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder)) as standing:
        for name in wanted:
            print(f"\n{name}", flush=True)
            begun = len(found)
            for row in SUITES[name](standing):
                found.append(row)
                print(f"  measured {row.case}" + (f" at {row.concurrency}" if row.concurrency else ""), flush=True)
            print("\n" + "\n".join(rows.table(found[begun:])), flush=True)
            rows.write(found, RESULTS)


if __name__ == "__main__":
    main()
