#!/usr/bin/env python3
"""Draw docs/speed.svg, the chart of the README, from bench/results/speed.csv.

    python3 bench/chart.py             write docs/speed.svg
    python3 bench/chart.py --check     compare it with the file; exit code 1 if it differs

One bar for each row: lace's speed as a multiple of llama.cpp's. Only the standard library is used, and the same CSV
always gives the same bytes.
"""

import csv
import os
import sys
from xml.sax.saxutils import escape

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
SOURCE = os.path.join(ROOT, "bench", "results", "speed.csv")
TARGET = os.path.join(ROOT, "docs", "speed.svg")

WIDTH = 760
LEFT, RIGHT = 270, 590  # the bars, from 0 to MOST times
MOST = 5
ROW, HEAD, TOP = 26, 34, 70

STYLE = (
    ".page{fill:#fbfaf8}text{fill:#1d2129}.soft{fill:#667080}.grid{stroke:#e3e1dc}"
    ".one{stroke:#8a919c;stroke-dasharray:4 4}.lace{fill:#0b7a75}"
)


def read_rows():
    with open(SOURCE, encoding="utf-8", newline="") as f:
        return list(csv.DictReader(line for line in f if not line.startswith("#")))


def x_of(ratio):
    return LEFT + (RIGHT - LEFT) * ratio / MOST


def speed(text):
    value = float(text)
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def bar(row, y):
    ratio = float(row["ratio"])
    figures = f'{speed(row["lace"])} and {speed(row["llama_cpp"])} tok/s'
    return [
        f'<text x="{LEFT - 10}" y="{y + 15}" text-anchor="end">{escape(row["label"])}</text>',
        f'<rect class="lace" x="{LEFT}" y="{y + 3}" width="{x_of(ratio) - LEFT:.1f}" height="17"/>',
        f'<text x="{x_of(ratio) + 6:.1f}" y="{y + 16}" font-weight="600">{ratio:.1f}x</text>',
        f'<text class="soft" x="{WIDTH - 16}" y="{y + 16}" text-anchor="end">{figures}</text>',
    ]


def draw(rows):
    lines, y, machine = [], TOP, None
    for row in rows:
        if row["machine"] != machine:
            machine = row["machine"]
            lines.append(f'<text x="16" y="{y + 22}" font-weight="600">{escape(machine)}</text>')
            y += HEAD
        lines += bar(row, y)
        y += ROW
    bottom, height = y + 4, y + 30
    grid = []
    for i in range(MOST + 1):
        kind = "one" if i == 1 else "grid"
        name = "llama.cpp" if i == 1 else f"{i}x"
        grid.append(f'<path class="{kind}" d="M{x_of(i):.1f} {TOP}V{bottom}"/>')
        grid.append(f'<text class="soft" x="{x_of(i):.1f}" y="{bottom + 16}" text-anchor="middle">{name}</text>')
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12">',
        "<title>Speed of lace as a multiple of llama.cpp's</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        '<text x="16" y="30" font-size="16" font-weight="600">How many times as fast as llama.cpp</text>',
        '<text class="soft" x="16" y="50">the same files on the same machines; on the right, the speed of lace '
        "and of llama.cpp</text>",
    ]
    return "\n".join(head + grid + lines + ["</svg>", ""])


def main():
    svg = draw(read_rows())
    if sys.argv[1:] == ["--check"]:
        with open(TARGET, encoding="utf-8") as f:
            if f.read() == svg:
                return 0
        print("docs/speed.svg is not what bench/chart.py makes of bench/results/speed.csv", file=sys.stderr)
        return 1
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    with open(TARGET, "w", encoding="utf-8") as f:
        f.write(svg)
    return 0


if __name__ == "__main__":
    sys.exit(main())
