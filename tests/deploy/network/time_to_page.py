"""How long after a job hangs Alertmanager tells of it: with the rules, routes and waits as they stand in deploy/prometheus.

  bazel run //tests/deploy/network:time_to_page -- --interval=5 --jobs=8

The nodes are those of network_paging_test. Takes ten minutes before anything goes wrong: so long ranks have to run before a
warning comes early. In all jobs but one a rank does not call; in that one it is killed. They go wrong at moments that are
spread over an interval. Prints the seconds until the webhook had the first message.
"""

import argparse
import contextlib
import datetime
import time

from tests.deploy.network.cluster_job import Job
from tests.deploy.network.watched_cluster import WatchedCluster

NODES = 4  # of a job
CULPRIT = 5
RUN_S = 610
PATIENCE_S = 120


class Stack(contextlib.ExitStack):
    """What WatchedCluster needs of a test."""

    addCleanup = contextlib.ExitStack.callback  # pylint: disable=invalid-name

    @staticmethod
    def fail(text):
        raise RuntimeError(text)


def measure(interval_s, count):
    """{job: (when it went wrong, [(when it was told of, what)])}"""
    with Stack() as stack:
        cluster = WatchedCluster(stack, 8, as_shipped=True, interval_s=interval_s)
        jobs = {}
        for index in range(count):
            name = "killed" if index == count - 1 else "silent%d" % index
            first = index % 5
            jobs[name] = Job(name, cluster.nodes[first:first + NODES], cluster.folder,
                             {} if name == "killed" else {CULPRIT: "silent"})
            stack.callback(jobs[name].end)
        print("%s  %d jobs run" % (datetime.datetime.now().strftime("%H:%M:%S"), count), flush=True)
        time.sleep(RUN_S)
        wrong, told = {}, {name: [] for name in jobs}
        begin = time.monotonic()
        pending = list(jobs)
        while time.monotonic() < begin + PATIENCE_S and not (
                not pending and all(any(host for _, (_, _, _, host, _) in each) for each in told.values())):
            if pending and time.monotonic() >= begin + len(wrong) * (interval_s + interval_s / count):
                name = pending.pop(0)
                wrong[name] = time.monotonic()
                if name == "killed":
                    jobs[name].ranks[CULPRIT].kill()
                else:
                    jobs[name].go_wrong()
            for each in cluster.sent():
                if each[2] in told and each not in [what for _, what in told[each[2]]]:
                    told[each[2]].append((time.monotonic(), each))
            time.sleep(0.05)
        return {name: (wrong[name], told[name]) for name in jobs}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interval", type=int, default=5, help="seconds between scrapes, and between evaluations")
    parser.add_argument("--jobs", type=int, default=8)
    arguments = parser.parse_args()
    for name, (begin, told) in measure(arguments.interval, arguments.jobs).items():
        for when, (path, alert, _, host, rank) in told:
            print("%-8s %5.1f s  %s %s: %s" % (
                name, when - begin, path, alert, "rank %s on %s" % (rank, host) if host else "nobody is named"))


if __name__ == "__main__":
    main()
