#!/usr/bin/env python3
"""Compares two builds row by row: does one fall behind the other?

Each row of bench.py is measured in both builds in alternating turns; rows that count, which come out the same in each
turn, in one. The ratio is the median of the pairs: how fast BUILD is for the speed of OTHER, so a value below 1 means
slower. Exits 1 where a ratio is below --least, or where a row has no result.

Usage: compare.py BUILD OTHER [--pairs N] [--least RATIO] [NAME...]
"""

import argparse
import os
import signal
import statistics
import sys

import bench

RATES = {"GB/s", "requests/s", "a second"}  # units of which more is better
COUNTS = ("_launches", "_flops", "second_run")  # how the names of rows that count end
NOT_OF_A_BUILD = {"build"}  # measures the tree


def speed_ratio(ours, theirs, unit):
    """How fast `ours` is for the speed of `theirs`; counts compare as times do."""
    if ours == theirs:
        return 1.0
    above, below = (ours, theirs) if unit in RATES else (theirs, ours)
    return above / below if below else float("inf")


def measure(row, new, old, pairs):
    """The medians of both builds and of the ratios."""
    results = []
    for turn in range(pairs):
        first, second = (new, old) if turn % 2 == 0 else (old, new)
        measured = {id(build): row.telegrad(build) for build in (first, second)}
        ours, theirs = measured[id(new)], measured[id(old)]
        results.append((ours, theirs, speed_ratio(ours, theirs, row.unit)))
        print(f"{row.name}: pair {turn + 1} of {pairs}: {bench.show(ours)} against {bench.show(theirs)} {row.unit}",
              file=sys.stderr, flush=True)
    return [statistics.median(column) for column in zip(*results)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", metavar="BUILD", help="folder of the build in question")
    parser.add_argument("other", metavar="OTHER", help="folder of the build that it is compared with")
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows of bench.py (default: all)")
    parser.add_argument("--pairs", type=int, default=15, metavar="N",
                        help="number of pairs of turns for each row (default: 15)")
    parser.add_argument("--least", type=float, default=0.97, metavar="RATIO",
                        help="fail where a ratio is lower (default: 0.97)")
    arguments = parser.parse_args()
    if arguments.pairs < 1:
        parser.error("--pairs: at least 1")
    for folder in (arguments.build, arguments.other):
        if not os.access(os.path.join(folder, bench.TELEGRADD), os.X_OK):
            parser.error(f"{folder}: no build there: it lacks {bench.TELEGRADD}")
    rows = {row.name: row for row in bench.ROWS if row.name not in NOT_OF_A_BUILD}
    unknown = [name for name in arguments.names if name not in rows]
    if unknown:
        parser.error(f"no row is called {', '.join(unknown)}; there are: {', '.join(rows)}")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    new, old = bench.Bench(arguments.build), bench.Bench(arguments.other)
    failed = False
    lines = ["| name | build | other | speed | met |", "|---|---|---|---|---|"]
    try:
        for name in arguments.names or rows:
            row = rows[name]
            try:
                ours, theirs, ratio = measure(row, new, old, 1 if name.endswith(COUNTS) else arguments.pairs)
            except (bench.Absent, bench.Broken) as error:
                print(f"{name}: {error}", file=sys.stderr)
                lines.append(f"| {name} | - | - | - | no |")
                failed = True
                continue
            met = ratio >= arguments.least
            failed = failed or not met
            lines.append(f"| {name} | {bench.show(ours)} {row.unit} | {bench.show(theirs)} {row.unit} "
                         f"| {ratio:.3f}x | {'yes' if met else 'no'} |")
    finally:
        new.close()
        old.close()
        print("\n".join(lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
