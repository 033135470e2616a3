#!/usr/bin/env python3
"""Compares the results of gpu_suite.sh with the cost model, and with those of another run, such as one on the fake
driver or on another GPU.

Usage: compare.py RESULTS.json [OTHER.json]

Prints what failed or missed its goal; kernels that take more than three times as long as the cost model predicts, or
less than a third; and, with OTHER, rows that only one of the runs has, rows with different results, and kernels with
other launches, flops or bytes. Exits 0 if there was nothing to print, 1 if there was, 2 for wrong usage.
"""

import json
import re
import sys

FACTOR = 3  # by which a prediction may be off
WORK = re.compile(r"(\d+) launches, (\d+) flops, (\d+) bytes")


def rows_of(path):
    """The rows of a file by shard and name."""
    try:
        with open(path, encoding="utf-8") as file:
            return {(row["shard"], row["name"]): row for row in json.load(file)["rows"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"compare.py: {path}: is not the results of gpu_suite.sh: {error}", file=sys.stderr)
        sys.exit(2)


def findings_of(rows):
    for (shard, name), row in rows.items():
        if row["result"] in ("FAILED", "MISSED"):
            yield f"{shard}: {name}: {row['result']}: {row['detail']}"
        elif shard == "profile" and not 1 / FACTOR <= row["ratio"] <= FACTOR:
            yield f"{name}: takes {row['figure']} us, {1 / max(row['ratio'], 1e-9):.2g} times what is predicted"


def differences_of(rows, others):
    for key in sorted(rows.keys() ^ others.keys()):
        yield f"{key[0]}: {key[1]}: only in the {'first' if key in rows else 'second'} run"
    for key in sorted(rows.keys() & others.keys()):
        row, other = rows[key], others[key]
        measured = {"measured", "reached", "MISSED"}
        if row["result"] != other["result"] and not {row["result"], other["result"]} <= measured:
            yield f"{key[0]}: {key[1]}: {row['result']} and {other['result']}"
        work, others_work = WORK.search(row["detail"]), WORK.search(other["detail"])
        if work and others_work and work[0] != others_work[0]:
            yield f"{key[0]}: {key[1]}: {work[0]} and {others_work[0]}"


def main():
    if sys.argv[1:] in (["--help"], ["-h"]):
        print(__doc__.strip())
        return 0
    if len(sys.argv) not in (2, 3):
        print("compare.py: expected RESULTS.json [OTHER.json]; see --help", file=sys.stderr)
        return 2
    rows = rows_of(sys.argv[1])
    lines = list(findings_of(rows))
    if len(sys.argv) == 3:
        lines += differences_of(rows, rows_of(sys.argv[2]))
    print("\n".join(lines) if lines else "nothing to report", flush=True)
    return 1 if lines else 0


sys.exit(main())
