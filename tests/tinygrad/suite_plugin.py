"""What suite.py adds to pytest: the device TELEGRAD, a line for each outcome, a limit for each test.

Outcomes are written as they come, so that a file which is stopped has some. $SUITE_REPORT is the file, $SUITE_LIMIT
the seconds that one test may take.
"""

import json
import os
import signal

import pytest

import telegrad.tinygrad  # noqa: F401: what telegrad.pth does where the package is installed


class TooLong(BaseException):
  """Not an Exception: a test that catches those must not go on."""


def _reason(report):
  if isinstance(report.longrepr, tuple): return str(report.longrepr[-1])  # a skip: file, line, reason
  crash = getattr(report.longrepr, "reprcrash", None)
  lines = (crash.message if crash is not None else str(report.longrepr or "")).strip().splitlines()
  return " ".join(line.strip() for line in lines[:8])[:600]


def pytest_runtest_logreport(report):
  if report.when != "call" and report.outcome == "passed": return
  row = {"test": report.nodeid, "outcome": "failed" if report.failed else report.outcome, "why": _reason(report),
         "seconds": round(report.duration, 3), "expected": hasattr(report, "wasxfail")}
  with open(os.environ["SUITE_REPORT"], "a", encoding="utf-8") as file: file.write(json.dumps(row) + "\n")


def pytest_collectreport(report):
  if report.failed:
    with open(os.environ["SUITE_REPORT"], "a", encoding="utf-8") as file:
      file.write(json.dumps({"test": report.nodeid, "outcome": "failed", "why": _reason(report), "seconds": 0}) + "\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
  limit = float(os.environ["SUITE_LIMIT"])

  def stop(number, frame): raise TooLong(f"{item.nodeid} took more than {limit:g} seconds")

  before = signal.signal(signal.SIGALRM, stop)
  signal.setitimer(signal.ITIMER_REAL, limit)
  try: return (yield)
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
