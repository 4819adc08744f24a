"""Measure what the mesh costs, in one run on one machine. Absolute figures mean little; ratios do."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable
from pathlib import Path

from bench.environment.machine import Ticks, ticks
from bench.environment.mesh import stage
from bench.load.generator import UnansweredError, program
from bench.report import measurement as rows
from bench.report.chart import groups, svg
from bench.report.markdown import machine, markdown
from bench.suites import CHARTED, ONLY_WHEN_NAMED, SUITES

RESULTS = Path(__file__).parent / "results"
JSON, REPORT, CHART = RESULTS / "latest.json", RESULTS / "latest.md", RESULTS / "latest.svg"


def main() -> None:
    """Run the suites that were named, or all that an ordinary run has, and write what they found after each."""
    wanted = _wanted()
    # Told to end, we end as if interrupted, and take with us what we started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    program()
    found: list[rows.Row] = []
    given_up: list[str] = []
    start, before = time.monotonic(), ticks()
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder)) as standing:
        for name in wanted:
            print(f"\n{name}", flush=True)
            begun, since, at_first = len(found), time.monotonic(), ticks()
            try:
                _measure(SUITES[name](standing), found)
            except Exception as error:
                # What was measured so far took minutes, and what follows does not rest on it.
                given_up.append(f"{name}: {str(error) or type(error).__name__}")
                if not isinstance(error, UnansweredError):
                    traceback.print_exc()
            print("\n" + "\n".join(rows.table(found[begun:])), flush=True)
            print(f"\n{name} took {_minutes(since)}{_disturbance(at_first)}", flush=True)
            _write(found, before)
    _conclude(found)
    print(f"all of it took {_minutes(start)}{_disturbance(before)}")
    if given_up:
        sys.exit("given up, " + "\ngiven up, ".join(given_up))


def _minutes(start: float) -> str:
    minutes, seconds = divmod(round(time.monotonic() - start), 60)
    return f"{minutes}:{seconds:02d} minutes"


def _disturbance(before: Ticks) -> str:
    """Say how much of the processor others had meanwhile, where that is enough to be seen in the figures."""
    share = ticks().stolen_since(before)
    return f"; others had {share:.0%} of this machine's processor meanwhile" if share >= 0.01 else ""


def _wanted() -> list[str]:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "suites",
        nargs="*",
        metavar="SUITE",
        help=f"which to run: {', '.join(SUITES)}; all that are short if none is named",
    )
    wanted: list[str] = parser.parse_args().suites or [name for name in SUITES if name not in ONLY_WHEN_NAMED]
    unknown = [name for name in wanted if name not in SUITES]
    if unknown:
        parser.error(f"no such suite: {', '.join(unknown)}; there are {', '.join(SUITES)}")
    return wanted


def _measure(suite: Iterable[rows.Row], found: list[rows.Row]) -> None:
    for row in suite:
        found.append(row)
        print(f"  measured {row.case}" + (f" at {row.concurrency}" if row.concurrency else ""), flush=True)


def _write(found: list[rows.Row], before: Ticks) -> None:
    """Write the JSON, the chart if there is something to draw, and the report. What was there before is replaced."""
    rows.write(found, JSON)
    drawn = groups(found, CHARTED)
    CHART.unlink(missing_ok=True)
    if drawn:
        CHART.write_text(svg(drawn))
    facts = {**machine(), "taken by the machine's host for others": f"{ticks().stolen_since(before):.0%}"}
    REPORT.write_text(markdown(found, facts, CHART.name if drawn else ""))


def _conclude(found: list[rows.Row]) -> None:
    aimed = rows.targets(found)
    missed = [row for row in aimed if row.ratio is not None and not row.ratio.met]
    written = ", ".join(str(file) for file in (JSON, REPORT, CHART) if file.exists())
    print(f"\n{len(aimed) - len(missed)} of {len(aimed)} targets met; see {written}")
    for row in missed:
        assert row.ratio is not None
        print(f"  missed: {row.case}" + (f" at {row.concurrency}" if row.concurrency else "") + f": {row.ratio.target}")


if __name__ == "__main__":
    main()
