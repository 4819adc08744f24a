"""The chart: how many calls each way answers, as a share of what the bare echo of the same run answers. An SVG of our
own making, for light
and dark pages alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from bench.report.measurement import Row

FLOOR = "bare grpc.aio echo"
CONCURRENCIES = (1, 16, 64)
WIDTH, LEFT, RIGHT = 920, 316, 64
TOP, BAR, GAP, BETWEEN = 104, 13, 3, 20
# A case is drawn in its kind's colours, the darker the more calls there are at once.
SHADES = {
    "floor": ("#b8c0ca", "#8c96a3", "#69737f"),
    "ours": ("#8fd0bb", "#3fae8f", "#1f7d65"),
    "peer": ("#f2c28f", "#e2954a", "#b96c22"),
}
KINDS = {"floor": "without governance", "ours": "governed and audited", "peer": "peers, as their documents tune them"}
# Greys that are readable on light and dark pages.
STYLE = """
text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif;
  fill: #7d8590; font-size: 13px; }
.title { font-size: 18px; font-weight: 600; }
.value { font-size: 11px; }
.grid { stroke: #8c959f; stroke-opacity: 0.35; stroke-width: 1; }
@media (prefers-color-scheme: light) { text { fill: #57606a; } .title, .case { fill: #24292f; } }
@media (prefers-color-scheme: dark) { text { fill: #9da7b1; } .title, .case { fill: #e6edf3; } }
"""


@dataclass(frozen=True)
class Group:
    """One case: its bars, from few calls at once to many."""

    case: str
    kind: str
    shares: tuple[tuple[int, float], ...]


def groups(rows: Iterable[Row], kinds: dict[str, str]) -> list[Group]:
    """Return what there is to draw of the named cases, the fastest first; of a case measured twice, the last."""
    found = {(row.case, row.concurrency): row for row in rows if row.rps and not row.more.get("offered_rps")}
    floors = {at: row.rps for (case, at), row in found.items() if case == FLOOR}
    made = []
    for case, kind in kinds.items():
        shares = [
            (at, found[case, at].rps / floors[at]) for at in CONCURRENCIES if at in floors and (case, at) in found
        ]
        if shares:
            made.append(Group(case, kind, tuple(shares)))
    return sorted(made, key=lambda group: -max(share for _, share in group.shares))


def svg(drawn: Sequence[Group]) -> str:
    """Return the chart."""
    heights = [len(group.shares) * (BAR + GAP) + BETWEEN for group in drawn]
    height = TOP + sum(heights) + 24
    most = max([1.0, *(share for group in drawn for _, share in group.shares)])
    scale = (WIDTH - LEFT - RIGHT) / most
    parts = [*_head(height), *_grid(most, scale, TOP + sum(heights))]
    y = float(TOP)
    for group, taken in zip(drawn, heights, strict=True):
        parts += _group(group, y, scale)
        y += taken
    return "\n".join([*parts, "</svg>"]) + "\n"


def _head(height: int) -> list[str]:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img">',
        f"<title>Calls answered, relative to the bare echo</title><style>{STYLE}</style>",
        '<text class="title" x="16" y="30">Calls answered, relative to a bare grpc.aio echo of the same run</text>',
    ]
    x = 16
    for kind, words in KINDS.items():
        for shade in SHADES[kind]:
            parts.append(f'<rect x="{x}" y="46" width="12" height="12" rx="2" fill="{shade}"/>')
            x += 14
        parts.append(f'<text x="{x + 4}" y="57">{escape(words)}</text>')
        x += 28 + 7 * len(words)
    at = ", ".join(str(number) for number in CONCURRENCIES)
    return [*parts, f'<text class="value" x="16" y="80">from light to dark: {at} calls at once</text>']


def _grid(most: float, scale: float, bottom: float) -> list[str]:
    parts, step = [], 0.25 if most <= 2 else 0.5
    for number in range(int(most / step) + 1):
        x = LEFT + number * step * scale
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{bottom:.1f}"/>')
        parts.append(
            f'<text class="value" x="{x:.1f}" y="{bottom + 14:.1f}" text-anchor="middle">{number * step:g}×</text>'
        )
    return parts


def _group(group: Group, y: float, scale: float) -> list[str]:
    middle = y + len(group.shares) * (BAR + GAP) / 2
    parts = [f'<text class="case" x="{LEFT - 12}" y="{middle + 3:.1f}" text-anchor="end">{escape(group.case)}</text>']
    for at, share in group.shares:
        shade = SHADES[group.kind][CONCURRENCIES.index(at)]
        width = max(1.0, share * scale)
        parts.append(
            f'<rect x="{LEFT}" y="{y:.1f}" width="{width:.1f}" height="{BAR}" rx="2" fill="{shade}">'
            f"<title>{at} at once: {share:.3f}</title></rect>"
        )
        parts.append(f'<text class="value" x="{LEFT + width + 5:.1f}" y="{y + BAR - 2.5:.1f}">{_told(share)}</text>')
        y += BAR + GAP
    return parts


def _told(share: float) -> str:
    return f"{share:.2f}" if share >= 0.1 else f"{share:.3f}"
