"""What the cases of inject.py and inject_nodes.py came to, for people and for programs."""

import contextlib
import json
import os
import subprocess
import sys
import tarfile
import threading

from inject_job import Failure


class Results:
    """The facts, for people and for programs."""

    def __init__(self, options):
        self.options = options
        self.lock = threading.Lock()
        self.path = os.path.join(options.out, "results.jsonl")
        self.rows = []
        self.wrong = 0

    def add(self, state, text, details="", /, **record):
        with self.lock:
            self.wrong += state not in ("OK", "NOT RUN")
            print("RESULT %s %s" % (state, text), flush=True)
            for line in details.splitlines():
                print("    | " + line)
            sys.stdout.flush()
            record = dict(record, state=state)
            self.rows.append(record)
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    @contextlib.contextmanager
    def of(self, what, record):
        """A block whose failure is a result."""
        try:
            yield
        except (Failure, OSError, ValueError, KeyError, subprocess.SubprocessError, tarfile.TarError) as failure:
            self.add("WRONG", "%s: %s" % (what, failure), error=str(failure), **record)

    def status(self):
        """The script's exit status, which it says."""
        print("\n%d cases, %d not right" % (len(self.rows), self.wrong))
        return 1 if self.wrong or not self.rows else 0


def table(results):
    print("\n%-19s %-7s %4s  %-22s %-12s %7s  %s" % ("hang", "page by", "rank", "verdict", "names", "after s", ""))
    for row in results.rows:
        if row["kind"] == "hang":
            print("%-19s %-7s %4s  %-22s %-12s %7s  %s" % (
                row["case"], row["variant"], row.get("rank", ""), row.get("verdict") or "none",
                ",".join(map(str, row.get("suspects", ()))) or "nobody",
                row.get("seconds", ""), row["state"]))
    print("\n%-14s %4s %8s  %-12s %7s %7s  %s" % ("straggler", "rank", "late ms", "names", "after s", "ms", ""))
    for row in results.rows:
        if row["kind"] == "straggler" and "case" in row:
            straggler = row.get("straggler")
            print("%-14s %4s %8s  %-12s %7s %7s  %s" % (
                row["case"], "" if row["rank"] is None else row["rank"], row["delay_ms"],
                straggler["rank"] if straggler else "nobody", row.get("seconds") or "",
                "%.2f" % (straggler["mean_seconds"] * 1e3) if straggler else "", row["state"]))
    sys.stdout.flush()
