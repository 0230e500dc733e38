#!/usr/bin/env python3
"""Injects hangs and stragglers into a job whose ranks are several nodes to NCCL and to NCCL Pulse, and
checks whom `pulse diagnose` names over all endpoints, and when.

    inject_nodes.py --library libnccl-profiler-pulse.so --program inject_program --pulse pulse
                    --libraries FOLDERS --gpus 4 --nodes 2 --out FOLDER [--cases never,kernel]

The ranks are divided evenly, in their order. Each node has a NCCL_HOSTID, a name and an endpoint of its
own, `pulse agent`; NCCL takes the network between the nodes (sockets over the loopback interface).
The cases are those of inject_cases.py, `straggler` besides: after 10 s in which nobody is late, one rank is late by
20 ms. Every --scrape seconds `pulse diagnose --json` is asked, from the fault on, until
it names somebody; the first that it names must be the right one. Jobs run --parallel at a time.

Prints "RESULT OK|WRONG|NOT RUN|LEFT OUT ..." lines, writes OUT/results.jsonl and one folder of logs for
each job. Exit status: 0 when all cases were run and right; 1 else. Python 3.9's standard library alone.
"""

import argparse
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# Beside this file.
import inject_cases  # noqa: E402
import inject_options  # noqa: E402
from inject import inject, notes_of  # noqa: E402
from inject_job import Endpoint, Failure, Job, Process, wait_until  # noqa: E402
from inject_results import Results  # noqa: E402
from inject_stragglers import Control  # noqa: E402

STRAGGLER = "straggler"
CASES = ("never", "size", "kernel", "stopped", "killed", "crossed", "broadcast-root", "run-ahead", STRAGGLER)
BALANCED_S = 10
DELAY_MS = 20  # of the straggler


class NodesJob(Job):
    """Ranks on several nodes, each with an agent."""

    def __init__(self, options, name, arguments):
        super().__init__(options, name, os.path.abspath(options.program), True, arguments)
        self.endpoints = [Endpoint(options.ports.take()) for _ in range(options.nodes)]
        self.agents = []
        self.diagnosed = 0
        self.job_id = "inject-%s-%d" % (name, options.nodes)

    def node(self, rank):
        return rank * self.options.nodes // self.options.gpus

    def _start_agent(self):
        for i, endpoint in enumerate(self.endpoints):
            environment = dict(os.environ, NCCL_PULSE_NODE_NAME="node-%d" % i)
            self.agents.append(Process(
                "agent%d" % i, [self.options.pulse, "agent", "--listen=" + endpoint.address,
                                "--hang-after=%gs" % self.options.hang_after] + self.capture_flags(),
                self.folder, environment))
        wait_until(lambda: all(endpoint.get("/healthz") is not None for endpoint in self.endpoints), 20, "the agents")

    def rank_environment(self, rank):
        node = self.node(rank)
        return dict(super().rank_environment(rank),
                    NCCL_PULSE_LISTEN=self.endpoints[node].address,
                    NCCL_PULSE_NODE_NAME="node-%d" % node, SLURM_JOB_ID=self.job_id, NCCL_HOSTID="pulse-node-%d" % node,
                    NCCL_IB_DISABLE="1", NCCL_SOCKET_IFNAME="lo")

    def __exit__(self, kind, value, trace):
        super().__exit__(kind, value, trace)
        for agent in self.agents:
            agent.kill()

    def diagnose(self):
        """(exit status, answer) of `pulse diagnose`"""
        done = subprocess.run(
            [self.options.pulse, "diagnose", "--json", "--hang-after=%gs" % self.options.hang_after] +
            ["--endpoint=" + endpoint.address for endpoint in self.endpoints],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=30)
        self.diagnosed += 1
        self.keep("diagnose-%d.json" % self.diagnosed, done.stdout + done.stderr)
        try:
            return done.returncode, json.loads(done.stdout)
        except ValueError:
            raise Failure("pulse diagnose: exit status %d: %s" % (done.returncode, done.stderr.strip())) from None

    def communicators(self):
        return [comm for endpoint in self.endpoints for comm in endpoint.communicators() or ()]

    def all_seen(self, name):
        """Whether the endpoints show all ranks of the communicator."""
        return sum(len(comm["ranks"]) for comm in self.communicators() if comm["name"] == name) == self.options.gpus


def named(roots):
    """The ranks of what is named first; of a rank that nobody sees, it stands in "perhaps"."""
    root = roots[0]
    return sorted({rank["rank"] for rank in root["ranks"] or root["perhaps"]})


def until_named(options, job, begin, what):
    """(seconds, first answer of `pulse diagnose` that has some of `what`); None: none in time"""
    number = 0
    while True:
        at = begin + number * options.scrape
        if at > begin + options.patience or at > options.limit.end - 3:
            return None
        options.limit.sleep(at - time.monotonic())
        number = int((time.monotonic() - begin) // options.scrape) + 1
        status, answer = job.diagnose()
        if answer[what]:
            return time.monotonic() - begin, status, answer


def expected_ranks(case, rank, gpus):
    # Of two ranks that differ either may be wrong; of more, the one that differs is named.
    return [rank] if case.named == inject_cases.RANK or gpus > 2 else [0, 1]


def judge(case, rank, gpus, status, roots):
    """What is wrong; "": nothing."""
    wrong = []
    ranks = named(roots)
    expected = expected_ranks(case, rank, gpus)
    if ranks != expected:
        wrong.append("it names %s instead of %s" % (ranks, expected))
    if roots[0]["verdict"] != case.verdict:
        wrong.append("verdict %s instead of %s" % (roots[0]["verdict"], case.verdict))
    if len(roots) > 1:
        wrong.append("%d others are named, too" % (len(roots) - 1))
    if status != 3:
        wrong.append("exit status %d" % status)
    return "; ".join(wrong)


def begin_hang(options, job):
    job.wait_running("running")
    wait_until(lambda: job.all_seen("train"), 20, "all ranks are on the pages")
    options.limit.sleep(options.run_in)


def run_hang(options, job, case, rank, record):
    """(what is wrong, what was said)"""
    begin_hang(options, job)
    begin = time.monotonic()
    inject(job, case, rank)
    first = until_named(options, job, begin, "roots")
    record["notes"] = notes_of(job, case, rank, argparse.Namespace(silent=0))
    if case.named == inject_cases.NOBODY:
        return ("" if first is None else "a hang is reported: " + first[2]["sentence"],
                "watched for %.0f s" % (time.monotonic() - begin))
    if first is None:
        return "nobody is named", "nothing is said"
    seconds, status, answer = first
    root = answer["roots"][0]
    record.update(seconds=round(seconds, 2), verdict=root["verdict"], suspects=named(answer["roots"]),
                  sentence=answer["sentence"])
    wrong = judge(case, rank, options.gpus, status, answer["roots"])
    said = "%s, names %s, after %.1f s" % (root["verdict"], named(answer["roots"]), seconds)
    return wrong, said


def run_straggler(options, job, control, rank, record):
    # One communicator from the start: for 30 s, the few calls of another would count as the job's rounds (rounds.h).
    control.write(0, -1, 0)
    job.wait_running("case", case=0)
    options.limit.sleep(BALANCED_S)
    before = job.diagnose()[1]["stragglers"]
    if before:
        return "named before anybody is late: %s" % before[0]["text"], "named early"
    begin = time.monotonic()
    control.write(0, rank, DELAY_MS)
    first = until_named(options, job, begin, "stragglers")
    if first is None:
        return "nobody is named", "nothing is said"
    seconds, _, answer = first
    ranks = sorted({each["rank"] for each in answer["stragglers"][0]["ranks"]})
    record.update(seconds=round(seconds, 2), suspects=ranks, sentence=answer["sentence"])
    wrong = "" if ranks == [rank] and len(answer["stragglers"]) == 1 else "not rank %d alone" % rank
    return wrong, "names %s, after %.1f s" % (ranks, seconds)


def run_case(options, results, name, wanted):
    record = {"kind": "nodes", "case": name, "nodes": options.nodes, "gpus": options.gpus}
    case = inject_cases.CASES.get(name)
    what = "%s, %d ranks on %d nodes" % (name, options.gpus, options.nodes)
    if case and options.gpus < case.gpus:
        results.add("NOT RUN", "%s: it needs %d GPUs" % (what, case.gpus), **record)
        return
    if options.limit.left() < options.hang_after + 20:
        results.add("LEFT OUT", what + ": no time", **record)
        return
    arguments = list(case.arguments) if case else []
    control = None
    if name == STRAGGLER:
        control = Control(options)
        arguments = ["--control=" + control.path]
    with results.of(what, record):
        with NodesJob(options, name, arguments) as job:
            rank = inject_cases.victim(case, wanted, None, options.gpus) if case else wanted
            record["rank"] = rank
            if case:
                wrong, said = run_hang(options, job, case, rank, record)
            else:
                wrong, said = run_straggler(options, job, control, rank, record)
        results.add("WRONG" if wrong else "OK", "%s, rank %d: %s%s" % (
            what, rank, said, "; " + wrong if wrong else ""), record.get("sentence", ""), wrong=wrong, **record)


def parse_options():
    parser = inject_options.make_parser(__doc__.split("\n", 1)[0])
    parser.add_argument("--nodes", type=int, default=2, help="at most as many as GPUs")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--scrape", type=float, default=2, help="seconds between two questions")
    parser.add_argument("--patience", type=float, default=35, help="seconds until somebody is named")
    options = inject_options.parse(parser, CASES)
    if not 1 <= options.nodes <= options.gpus:
        parser.error("--nodes=%d with --gpus=%d" % (options.nodes, options.gpus))
    return options


def main():
    options = parse_options()
    results = Results(options)
    inject_options.for_each(options, [(options, results, name, i % options.gpus)
                                      for i, name in enumerate(options.cases)], run_case)
    return results.status()


if __name__ == "__main__":
    sys.exit(main())
