#!/usr/bin/env python3
"""Runs an NCCL program with the plugin and holds /metrics against the calls that it made.

    check.py --library libnccl-profiler-pulse.so --program nccl_program --ranks 2 --gpus 2
             --mode nvlink --timing auto --out FOLDER

The ranks stop after each phase and say what they have called so far; then their pages are compared,
series by series, in both directions: a series too many is a difference, too. Beside that the pages
are read five times a second all the time, must always parse, and no counter may step back.

Modes  nvlink      one GPU for each rank, and whatever NCCL chooses
       network     one GPU for each rank, and everything through sockets, so that there are ProxyOps
       shared-gpu  several ranks on a GPU: each claims to be a node of its own; sockets, too

The program is nccl_program or a Python file that talks in the same way (ddp.py). Exit status: 0 all
equal; 1 a difference, a crash, or a rank that does not answer. Python 3.9's standard library alone.
"""

import argparse
import collections
import functools
import http.client
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_activity  # noqa: E402  (beside this file)
import nccl_versions  # noqa: E402

PROGRAM_PHASES = "collectives,p2p,group,split,recreate,nonblocking,graph,threads,broadcast,exit"
PYTHON_PHASES = "explicit,ddp,fsdp,destroy"

COLLECTIVES = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce")
SIZE_CLASSES = ((4 << 10, "le_4KiB"), (16 << 10, "le_16KiB"), (64 << 10, "le_64KiB"),
                (256 << 10, "le_256KiB"), (1 << 20, "le_1MiB"), (4 << 20, "le_4MiB"),
                (16 << 20, "le_16MiB"), (64 << 20, "le_64MiB"), (256 << 20, "le_256MiB"),
                (1 << 30, "le_1GiB"))

# The op of launches that carry a group, and why an operation has no duration with stream timing.
GROUPED = "Grouped"
STREAM_REASONS = {"not_sampled", "not_timed", "grouped", "captured", "lost"}

SCRAPE_PERIOD_S = 0.2
# The last operations are settled a second after their last sign of life, and pages are rendered
# four times a second.
SETTLE_S = 60  # for a broken build to end; a slow machine is no failure
SETTLE_KERNEL_S = 3  # what is still open then may have lost its events
EXIT_S = 60
ANSWER_S = 30  # of the endpoint

# NCCL 2.28 loses KernelCh events (stops without a start): so few operations may still be open.
KERNEL_TOLERANCE = 0.02


class Failure(Exception):
    """What ends the run."""


# ---- pages ---------------------------------------------------------------------------------------

_SERIES = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?$')
_LABELS = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


class Page:
    """A /metrics page in the text format; ValueError when it is not one."""

    def __init__(self, text):
        self.samples = {}  # (name, frozenset of (label, value)) -> float
        self.types = {}
        self._families = {}
        self._by_name = None  # made when first needed
        if not text.endswith("\n"):
            raise ValueError("the page ends within a line")
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                if name in self.types:
                    raise ValueError("second TYPE of " + name)
                self.types[name] = kind
            elif line and not line.startswith("#"):
                self._add(line)
        self._check_histograms()

    _keys = {}  # what stands before a value -> key; the next page has nearly the same lines

    def _add(self, line):
        text, _, value = line.rpartition(" ")
        key = self._keys.get(text)
        if key is None:
            key = self._keys[text] = self._key(text)
        if key in self.samples:
            raise ValueError("twice on the page: " + line)
        self.family(key[0])
        self.samples[key] = float(value)

    @staticmethod
    def _key(text):
        match = _SERIES.match(text)
        if match is None:
            raise ValueError("not a sample: " + text)
        labels = _LABELS.findall(match.group(2) or "")
        # Nothing may stand between the labels that were found.
        if ",".join('%s="%s"' % label for label in labels) != (match.group(2) or ""):
            raise ValueError("bad labels: " + text)
        return match.group(1), frozenset(labels)

    def family(self, name):
        family = self._families.get(name)
        if family is None:
            for suffix in ("", "_bucket", "_sum", "_count"):
                base = name[:-len(suffix)] if suffix else name
                if name.endswith(suffix) and base in self.types:
                    family = self._families[name] = base
                    break
            else:
                raise ValueError("no TYPE before " + name)
        return family

    def _check_histograms(self):
        buckets = collections.defaultdict(list)
        for (name, labels), value in self.samples.items():
            if name.endswith("_bucket") and self.types[self.family(name)] == "histogram":
                series, bound = self._bucket(name, labels)
                buckets[series].append((bound, value))
        for (name, labels), counts in buckets.items():
            values = [value for _, value in sorted(counts)]
            if values != sorted(values) or self.samples.get((name, labels)) != values[-1]:
                raise ValueError("inconsistent buckets of %s%s" % (name, sorted(labels)))

    @staticmethod
    @functools.lru_cache(maxsize=None)
    def _bucket(name, labels):
        """(key of the count that it belongs to, upper bound)."""
        count = name[:-len("bucket")] + "count"
        return ((count, frozenset(label for label in labels if label[0] != "le")),
                float(dict(labels)["le"]))

    def only_grows(self, name):
        return self.types[self.family(name)] in ("counter", "histogram", "summary")

    def select(self, name, **fixed):
        """[(labels as dict, value)] of the samples with these labels."""
        if self._by_name is None:
            self._by_name = collections.defaultdict(list)
            for (found, labels), value in self.samples.items():
                if not found.endswith("_bucket"):
                    self._by_name[found].append((dict(labels), value))
        return [(labels, value) for labels, value in self._by_name[name]
                if fixed.items() <= labels.items()]

    def sums(self, name, by, **fixed):
        """{values of the labels `by`: sum}; zeros left out."""
        result = collections.Counter()
        for labels, value in self.select(name, **fixed):
            result[tuple(labels.get(label, "") for label in by)] += value
        return {key: value for key, value in result.items() if value}


class Scraper(threading.Thread):
    """Reads one rank's page all the time, from when the rank's log says where."""

    def __init__(self, log):
        super().__init__(daemon=True)
        self.log = log
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.url = None
        self.connection = None
        self.last = None
        self.text = ""
        self.pages = 0
        self.slowest_s = 0.0
        self.problems = []
        self.start()

    def _find(self):
        try:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                match = re.search(r"NCCL Pulse: .*(http://\S+/metrics)", log.read())
        except FileNotFoundError:
            return False
        if match:
            self.url = match.group(1)
            parts = urllib.parse.urlsplit(self.url)
            self.connection = http.client.HTTPConnection(parts.hostname, parts.port,
                                                         timeout=ANSWER_S)
        return self.url is not None

    def _get(self):
        self.connection.request("GET", "/metrics")
        response = self.connection.getresponse()
        return response.status, response.read().decode()

    def scrape(self):
        """The page now; None when there is no endpoint yet."""
        with self.lock:
            if self.url is None and not self._find():
                return None
            begin = time.monotonic()
            kept = self.connection.sock is not None
            try:
                status, text = self._get()
            except (http.client.HTTPException, OSError) as error:
                self.connection.close()
                # The server ends connections that were idle, as ours are when this machine is busy:
                # whoever keeps one has to try again with a new one (RFC 9112, section 9.3.1).
                if not kept or not isinstance(error, ConnectionError):
                    raise
                status, text = self._get()
            self.slowest_s = max(self.slowest_s, time.monotonic() - begin)
            if status != 200:
                raise ValueError("status %d" % status)
            page = Page(text)
            for key, before in (self.last.samples if self.last else {}).items():
                if not self.last.only_grows(key[0]):
                    continue
                after = page.samples.get(key)
                if after is None or after < before:
                    self.problems.append("%s%s: %s, then %s" %
                                         (key[0], sorted(key[1]), before, after))
            self.pages += 1
            self.last, self.text = page, text
            return page

    def run(self):
        took_s = 0.0
        # A slow machine has other things to do than to read pages.
        while not self.stop.wait(max(SCRAPE_PERIOD_S, 4 * took_s)):
            begin = time.monotonic()
            try:
                self.scrape()
            except Exception as error:  # any: it is reported, not handled
                # A process that ends closes its endpoint: the driver says stop before that.
                if not self.stop.is_set():
                    self.problems.append("scrape failed: %r" % error)
            took_s = time.monotonic() - begin


# ---- ranks ---------------------------------------------------------------------------------------


class Rank:
    """One process of the run."""

    def __init__(self, options, rank, work):
        self.rank = rank
        self.gpu = rank % options.gpus
        self.log = os.path.join(options.out, "nccl-rank%d.log" % rank)
        self.error_path = os.path.join(options.out, "stderr-rank%d.log" % rank)
        environment = dict(
            os.environ,
            NCCL_PROFILER_PLUGIN=os.path.abspath(options.library),
            NCCL_PULSE_LISTEN=options.listen,
            NCCL_PULSE_TIMING=options.timing,
            NCCL_DEBUG="INFO",
            NCCL_DEBUG_SUBSYS="INIT,ENV,PROFILE",
            NCCL_DEBUG_FILE=self.log,
            # Multicast can put shared machines' GPUs out of order, and nothing here needs it.
            NCCL_NVLS_ENABLE="0",
            RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(options.ranks))
        environment.update(getattr(options, "environment", {}))  # prove.py's
        if options.mode == "network":
            environment.update(NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1", NCCL_IB_DISABLE="1",
                               NCCL_SOCKET_IFNAME="lo")
        elif options.mode == "shared-gpu":
            environment.update(NCCL_HOSTID="pulse-check-%d" % rank, NCCL_IB_DISABLE="1",
                               NCCL_SOCKET_IFNAME="lo")
        command = [os.path.abspath(options.program), "--rank=%d" % rank,
                   "--nranks=%d" % options.ranks, "--gpu=%d" % self.gpu, "--exchange=" + work,
                   "--phases=" + options.phases] + list(getattr(options, "arguments", ()))
        if options.program.endswith(".py"):
            command.insert(0, sys.executable)
            nccl_versions.preload(environment)
        elif options.libraries:
            command.append("--library-path=" + options.libraries)
        with open(self.error_path, "wb") as errors:
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=errors, text=True,
                                            start_new_session=True)
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.scraper = Scraper(self.log)

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)

    def report(self, phase):
        """The rank's report of this phase if it has come."""
        while True:
            try:
                line = self.lines.get_nowait()
            except queue.Empty:
                return None
            if not line.startswith("{"):
                continue  # something that a library printed
            report = json.loads(line)
            if report["phase"] != phase:
                raise Failure("rank %d reports %s, not %s" % (self.rank, report["phase"], phase))
            return report

    def go_on(self):
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended; whoever waits for it will say so

    def kill(self):
        self.scraper.stop.set()
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.scraper.join(timeout=ANSWER_S)

    def tails(self):
        for path in (self.error_path, self.log):
            try:
                with open(path, encoding="utf-8", errors="replace") as log:
                    lines = log.read().splitlines()[-20:]
            except FileNotFoundError:
                lines = ["(no such file)"]
            yield "--- end of %s\n%s" % (os.path.basename(path), "\n".join(lines))


# ---- what must be on the page --------------------------------------------------------------------


def size_class(size):
    for bound, name in SIZE_CLASSES:
        if size <= bound:
            return name
    return "gt_1GiB"


class Comparison:
    """One metric of one rank's communicator. Unequal values pass if accept(expected, found) says
    so; if still_open(expected, found) does, as operations whose end was not seen yet."""

    def __init__(self, metric, where, expected, found, accept=None, still_open=None):
        self.metric, self.where = metric, where
        self.expected, self.found = expected, found
        self.wrong = []
        self.open = 0
        for key in sorted(expected.keys() | found.keys(), key=str):
            wanted, got = expected.get(key, 0), found.get(key, 0)
            if wanted == got:
                continue
            if accept is not None and accept(wanted, got):
                continue
            if still_open is not None and still_open(wanted, got):
                self.open += abs(wanted - got)
                continue
            self.wrong.append("%s %s %s: expected %s, found %s" %
                              (metric, where, key, show(wanted), show(got)))

    @staticmethod
    def total(values):
        return sum(v for v in values.values() if isinstance(v, (int, float)))


def show(value):
    return "%d" % value if isinstance(value, float) and value == int(value) else str(value)


def within_launches(wanted, got):
    return wanted[0] <= got <= wanted[1]


def few_open(wanted, got):
    return got <= wanted and wanted - got <= max(2, KERNEL_TOLERANCE * wanted)


def gpus_of_machine():
    """[{UUID, pci_bus_id}] by index; empty without a driver."""
    try:
        command = ["nvidia-smi", "--query-gpu=uuid,pci.bus_id", "--format=csv,noheader"]
        text = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              check=True, timeout=30, text=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [dict(zip(("UUID", "pci_bus_id"), map(str.strip, line.split(","))))
            for line in text.splitlines()]


def expected_of(communicator, options, unreported):
    """What a communicator's calls must come to, by metric, when of the operations in `unreported`
    nothing is seen but the calls."""
    traffic = options.mode != "nvlink" and communicator["nranks"] > 1
    sees_replays = traffic or options.timing == "kernel"
    result = {name: collections.Counter() for name in (
        "operations", "bytes", "algorithms", "untimed", "events", "completions",
        "kernel_completions", "unreported")}
    for call in communicator["calls"]:
        op, calls, size = call["op"], call["calls"], size_class(call["bytes"])
        captured = call["captured"]
        # Coll and P2p events. A captured call's come with each replay, or once at capture.
        events = call["replays"] if captured and sees_replays else calls
        if op in unreported:
            events = 0
            result["unreported"][op,] += calls
        result["operations"][op, size, call["datatype"], "true" if captured else "false"] += calls
        result["bytes"][op, size] += calls * call["bytes"]
        result["events"][op] += events
        result["untimed"][op, "captured" if captured else "not_timed"] += events
        if op in COLLECTIVES:
            result["algorithms"][op,] += events
        if traffic and options.timing != "off":
            result["completions"][op,] += events - call["to_self"]
        elif options.timing == "kernel":
            result["kernel_completions"][op,] += events - call["to_self"]
    return {name: {key: value for key, value in counts.items() if value}
            for name, counts in result.items()}


def launches_of(communicator, unreported, follows):
    """(least, most) launches that are seen: a group makes one at least, and no more than it has
    calls; some of nothing but unreported calls are not followed either, or none are. Those before
    it is learned that NCCL hides the operation are not."""
    if "Broadcast" not in unreported:
        return communicator["launches_min"], communicator["launches_max"]
    unseen = communicator["unseen_launches" if follows else "broadcast_launches"]
    return (communicator["launches_min"] - communicator["broadcast_launches"],
            communicator["launches_max"] - unseen)


def untold_of(communicator, options, unreported, follows):
    """{(op,): calls} that must have the reason for operations that nothing tells of."""
    if not follows:
        return {}  # nobody knows which calls have a launch
    calls = {(call["op"],): 0 for call in communicator["calls"] if call["op"] in unreported}
    for call in communicator["calls"]:
        if call["op"] in unreported:
            calls[call["op"],] += call["calls"]
    if options.timing == "auto" and calls:
        calls = {("Broadcast",): communicator["untold_broadcasts"]}
    return {key: value for key, value in calls.items() if value}


def split_unreported(untimed):
    """`untimed` without what nothing tells of, and that by operation."""
    found = {key[:1]: value for key, value in untimed.items()
             if key[1] == nccl_versions.UNREPORTED_REASON}
    rest = {key: value for key, value in untimed.items()
            if key[1] != nccl_versions.UNREPORTED_REASON}
    return rest, found


def find_communicator(page, communicator, pid):
    """Its `comm` label; a string that says what is wrong when it is not there once."""
    name = communicator["name"]
    found = [labels for labels, value in page.select("nccl_communicator_info")
             if value == 1 and labels.get("comm_name", "") == name and labels["pid"] == str(pid)]
    if len(found) != 1:
        return None, "%d communicators are named '%s'" % (len(found), name)
    return found[0], ""


def compare_communicator(page, rank, report, communicator, options, gpus):
    unreported = nccl_versions.unreported(report["nccl"])
    where = "rank%d/%s" % (rank.rank, communicator["name"] or "(no name)")
    info, problem = find_communicator(page, communicator, report["pid"])
    if info is None:
        return [Comparison("nccl_communicator_info", where, {"": "one"}, {"": problem})]
    comm = dict(comm=info["comm"], rank=str(communicator["rank"]))
    expected = expected_of(communicator, options, unreported)
    kernel = options.timing == "kernel"
    destroyed = communicator["destroyed"]

    identity = {
        "rank": str(communicator["rank"]), "nranks": str(communicator["nranks"]),
        # Without peer access and shared memory NCCL takes each rank for a node of its own.
        "nnodes": str(1 if options.mode == "nvlink" else communicator["nranks"]),
        "global_rank": str(rank.rank), "local_rank": str(rank.rank)}
    if gpus:
        # Not `gpu`: the driver's number of a device need not be its place in this list.
        identity.update(gpus[rank.gpu])
    found_identity = {key: info.get(key, "") for key in identity}
    for values in (identity, found_identity):
        if "pci_bus_id" in values:
            values["pci_bus_id"] = values["pci_bus_id"].lower()

    # There are CUDA events behind the launches.
    follows = bool(page.select("nccl_launches_completed_total", **comm))

    def counts(name, by, **fixed):
        return page.sums(name, by, **dict(comm, **fixed))

    result = [
        Comparison("nccl_communicator_info", where, identity, found_identity),
        Comparison("nccl_communicator_finalized", where, {"": "1"} if destroyed else {},
                   {"": show(value)
                    for _, value in page.select("nccl_communicator_finalized", **comm)}),
        Comparison("nccl_operations_total", where, expected["operations"],
                   counts("nccl_operations_total", ("op", "size", "datatype", "captured"))),
        Comparison("nccl_operation_bytes_total", where, expected["bytes"],
                   counts("nccl_operation_bytes_total", ("op", "size"))),
        Comparison("nccl_algorithm_operations_total", where, expected["algorithms"],
                   counts("nccl_algorithm_operations_total", ("op",))),
        Comparison("nccl_launches_total", where,
                   {"": launches_of(communicator, unreported, follows)},
                   {"": sum(counts("nccl_launches_total", ()).values())}, accept=within_launches),
        Comparison("nccl_operation_completion_seconds proxy", where, expected["completions"],
                   counts("nccl_operation_completion_seconds_count", ("op",), source="proxy"),
                   still_open=few_open if kernel and not destroyed else None),
        Comparison("nccl_uncompleted_operations_total", where, {},
                   counts("nccl_uncompleted_operations_total", ("op",)),
                   still_open=(lambda wanted, got: got <= 3) if kernel else None),
    ]
    untimed, untold = split_unreported(counts("nccl_untimed_operations_total", ("op", "reason")))
    # Besides those that are called before it is learned that NCCL hides the operation; that each has
    # one reason or a duration is compared below. The last call may stand.
    hidden = sum(call["calls"] for call in communicator["calls"] if call["op"] in unreported)
    result.append(Comparison("nccl_untimed_operations_total " + nccl_versions.UNREPORTED_REASON,
                             where, untold_of(communicator, options, unreported, follows), untold,
                             accept=lambda wanted, got: hidden > 0 and
                             wanted - 1 <= got <= wanted + hidden))
    durations = counts("nccl_operation_duration_seconds_count", ("op",), timing="kernel")
    if kernel:
        accounted = collections.Counter()
        for key, value in list(untimed.items()) + list(durations.items()):
            accounted[key[0]] += value
        result.append(Comparison("durations + nccl_untimed_operations_total", where,
                                 expected["events"], accounted,
                                 still_open=None if destroyed else few_open))
        result.append(Comparison("nccl_operation_completion_seconds kernel", where,
                                 expected["kernel_completions"],
                                 counts("nccl_operation_completion_seconds_count", ("op",),
                                        source="kernel"), still_open=few_open))
    elif duration_source(page) == "stream":
        result += compare_stream(where, expected, communicator, untimed, untold, counts)
    else:
        result.append(Comparison("nccl_untimed_operations_total", where, expected["untimed"],
                                 untimed))
        result.append(Comparison("nccl_operation_duration_seconds", where, {}, durations))
    activity = (check_activity.KNOWN if destroyed
                else check_activity.of_communicator(communicator, unreported))
    result += compare_heartbeat(page, where, comm, activity)
    if activity == check_activity.UNKNOWN and duration_source(page) == "stream":
        result.append(Comparison("state in the JSON", where, {"": activity},
                                 {"": check_activity.state(rank.scraper.url, comm)}))
    return result


def compare_heartbeat(page, where, comm, activity):
    return check_activity.compare(Comparison, page, where, comm, activity,
                                  duration_source(page) == "stream")


def duration_source(page):
    """What times operations in the page's process: stream, kernel or none."""
    return next((labels["durations"] for labels, _ in page.select("nccl_pulse_build_info")), "")


def compare_stream(where, expected, communicator, untimed, untold, counts):
    """Every operation has a duration or a reason, also those that NCCL does not report; those of a
    group have a duration together."""
    durations = counts("nccl_operation_duration_seconds_count", ("op",), timing="stream")
    captured = {key: value for key, value in expected["untimed"].items() if key[1] == "captured"}
    events, accounted = collections.Counter(), collections.Counter()
    for (op,), value in expected["unreported"].items():
        events[op] += value
    for (op,), value in untold.items():
        accounted[op] += value
    for (op, _), value in expected["untimed"].items():
        events[op] += value
    for (op, _), value in untimed.items():
        accounted[op] += value
    for (op,), value in durations.items():
        if op != GROUPED:
            accounted[op] += value
    # NCCL may cut a group into more launches than it has calls, so no more is known of their number
    # than that there are none without groups.
    groups = communicator["launches_min"] < communicator["launches_max"]
    grouped = durations.get((GROUPED,), 0)
    with_reason = {key[1] for key in untimed}
    return [
        Comparison("nccl_untimed_operations_total captured", where, captured,
                   {key: value for key, value in untimed.items() if key[1] == "captured"}),
        # The last call may stand: whether NCCL reports it is not known until the next.
        Comparison("stream durations + nccl_untimed_operations_total", where, events, accounted,
                   accept=(lambda wanted, got: wanted - 1 <= got <= wanted)
                   if expected["unreported"] else None),
        Comparison("nccl_operation_duration_seconds Grouped", where, {},
                   {} if groups else {key: grouped for key in [GROUPED] if grouped}),
        Comparison("reasons of nccl_untimed_operations_total", where, {},
                   {reason: "found" for reason in with_reason - STREAM_REASONS}),
    ]


def compare_totals(page, rank, report):
    """For programs that know only part of their calls: sums over all communicators."""
    where = "rank%d" % rank.rank
    found = page.sums("nccl_operations_total", ("op", "size", "datatype", "captured"))
    exact, least = collections.Counter(), collections.Counter()
    for call in report["exact"]:
        exact[call["op"], size_class(call["bytes"]), call["datatype"], "false"] += call["calls"]
    types = {call["datatype"] for call in report["exact"]}
    result = [Comparison("nccl_operations_total", where, exact,
                         {key: value for key, value in found.items() if key[2] in types})]
    by_type = collections.Counter()
    for key, value in found.items():
        by_type[key[0], key[2]] += value
    for call in report["at_least"]:
        least[call["op"], call["datatype"]] += call["calls"]
    result.append(Comparison("nccl_operations_total at least", where, least,
                             {key: by_type[key] for key in least},
                             accept=lambda wanted, got: got >= wanted))
    return result


def compare_with_itself(page, rank, options, unreported):
    """Where the calls are not known: what must be consistent within a page."""
    traffic = options.mode != "nvlink"
    result = []
    for info, _ in page.select("nccl_communicator_info"):
        comm = dict(comm=info["comm"], rank=info["rank"])
        where = "rank%d/%s" % (rank.rank, info["comm"])
        calls = page.sums("nccl_operations_total", ("op",), **comm)
        reported = {key: value for key, value in calls.items() if key[0] not in unreported}
        collectives = {key: value for key, value in reported.items() if key[0] in COLLECTIVES}
        result.append(Comparison("nccl_algorithm_operations_total as calls", where, collectives,
                                 page.sums("nccl_algorithm_operations_total", ("op",), **comm)))
        launches = sum(page.sums("nccl_launches_total", (), **comm).values())
        result.append(Comparison("nccl_launches_total as calls", where,
                                 {"": (min(1, sum(reported.values())), sum(calls.values()))},
                                 {"": launches}, accept=within_launches))
        result += compare_heartbeat(page, where, comm, check_activity.of_totals(calls, unreported))
        if duration_source(page) == "stream":
            # An operation has a reason, or its launch is timed.
            accounted = collections.Counter()
            for (op, _), value in page.sums("nccl_untimed_operations_total", ("op", "reason"),
                                            **comm).items():
                accounted[op,] += value
            durations = page.sums("nccl_operation_duration_seconds_count", ("op",),
                                  timing="stream", **comm)
            # Those of a launch that is a composite stand beside the Send and Recv that it is made of.
            accounted.update({key: value for key, value in durations.items()
                              if key not in ((GROUPED,), ("AlltoAll",), ("Gather",), ("Scatter",)) or
                              key in reported})
            result.append(Comparison("stream durations + untimed as calls", where, reported,
                                     {key: value for key, value in accounted.items()
                                      if key in reported or key not in calls}))
            # The last call may stand: whether NCCL reports it is not known until the next.
            result.append(Comparison(
                "stream durations + untimed as calls, of what NCCL does not report", where,
                {key: value for key, value in calls.items() if key not in reported},
                {key: value for key, value in accounted.items()
                 if key in calls and key not in reported},
                accept=lambda wanted, got: wanted - 1 <= got <= wanted))
        if traffic and options.timing != "off":
            result.append(Comparison(
                "nccl_operation_completion_seconds as calls", where, collectives,
                {key: value for key, value in page.sums(
                    "nccl_operation_completion_seconds_count", ("op",), source="proxy",
                    **comm).items() if key[0] in COLLECTIVES},
                still_open=few_open if options.timing == "kernel" else None))
    return result


def compare_ranks(ranks, pages, reports):
    """What several ranks say must agree."""
    result = []
    ids = {}  # name -> comm label of the first rank that has it
    for rank, page, report in zip(ranks, pages, reports):
        for communicator in report.get("communicators", ()):
            info, _ = find_communicator(page, communicator, report["pid"])
            if info is None:
                continue
            first = ids.setdefault(communicator["name"], info["comm"])
            result.append(Comparison("comm of all ranks", "rank%d/%s" %
                                     (rank.rank, communicator["name"]), {"": first},
                                     {"": info["comm"]}))
    calls = {}
    for rank, page in zip(ranks, pages):
        for labels, value in page.select("nccl_operations_total"):
            if labels["op"] in COLLECTIVES:
                key = tuple(labels[name] for name in ("comm", "op", "size", "datatype", "captured"))
                calls.setdefault(key, {})[rank.rank] = value
    for key, by_rank in calls.items():
        some = next(iter(by_rank.values()))
        result.append(Comparison("collectives of all ranks", "/".join(key),
                                 {r: some for r in by_rank}, by_rank))
    return result


def compare(ranks, pages, reports, options, gpus):
    result = []
    for rank, page, report in zip(ranks, pages, reports):
        if page is None:
            return [Comparison("endpoint", "rank%d" % rank.rank, {"": "announced"},
                               {"": "not announced"})]
        if "communicators" in report:
            for communicator in report["communicators"]:
                result += compare_communicator(page, rank, report, communicator, options, gpus)
            result.append(Comparison(
                "number of communicators", "rank%d" % rank.rank,
                {"": len(report["communicators"])},
                {"": len(page.select("nccl_communicator_info"))}))
        else:
            result += compare_totals(page, rank, report)
            result += compare_with_itself(page, rank, options,
                                          nccl_versions.unreported(report["nccl"]))
        result.append(Comparison("results checked by the program", "rank%d" % rank.rank,
                                 {"wrong": 0}, {"wrong": report["wrong"]}))
        result.append(Comparison(
            "nccl_api_version", "rank%d" % rank.rank,
            {"": str(nccl_versions.profiler_api(report["nccl"], options.library))},
            {"": labels["nccl_api_version"]
             for labels, _ in page.select("nccl_pulse_build_info")}))
        lost = page.sums("nccl_pulse_overflowed_operations_total", ())
        result.append(Comparison("nccl_pulse_overflowed_operations_total", "rank%d" % rank.rank,
                                 {}, lost))
    return result + compare_ranks(ranks, pages, reports)


# ---- the run -------------------------------------------------------------------------------------


class Run:
    def __init__(self, options):
        self.options = options
        self.gpus = gpus_of_machine()
        self.rows = []
        self.differences = []
        self.last_notes = {}
        self.ranks = []

    def wait(self, what, seconds, done):
        """Until done() is true; a rank that ends meanwhile is a failure."""
        deadline = time.monotonic() + seconds
        while not done():
            for rank in self.ranks:
                status = rank.process.poll()
                # What it wrote just before its end may still be on its way.
                if status is not None and not rank.reader.is_alive() and not done():
                    raise Failure("%s: rank %d ended with status %d" % (what, rank.rank, status))
            if time.monotonic() > deadline:
                raise Failure("%s: no answer within %d s" % (what, seconds))
            time.sleep(0.02)

    def phase(self, phase):
        begin = time.monotonic()
        reports = [None] * len(self.ranks)

        def all_reported():
            for i, rank in enumerate(self.ranks):
                reports[i] = reports[i] or rank.report(phase)
            return all(reports)

        self.wait("phase " + phase, self.options.phase_timeout, all_reported)
        reported = time.monotonic()
        while True:
            try:
                pages = [rank.scraper.scrape() for rank in self.ranks]
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise Failure("phase %s: scrape failed: %r" % (phase, error)) from error
            comparisons = compare(self.ranks, pages, reports, self.options, self.gpus)
            settled = time.monotonic()
            wrong = [line for comparison in comparisons for line in comparison.wrong]
            # Once something differs it will differ in the phases that follow, too.
            patience = 2 if self.differences else self.options.settle
            still_open = any(comparison.open for comparison in comparisons)
            if not wrong and (not still_open or settled > reported + SETTLE_KERNEL_S):
                break
            if settled > reported + patience:
                break
            time.sleep(SCRAPE_PERIOD_S)
        self.keep(phase, comparisons, reported - begin, settled - reported)
        self.notes(phase, pages, reports)
        for rank in self.ranks:
            with open(os.path.join(self.options.out, "page-%s-rank%d.txt" % (phase, rank.rank)),
                      "w", encoding="utf-8") as file:
                file.write(rank.scraper.text)

    def keep(self, phase, comparisons, ran_s, settled_s):
        print("phase %s: ran %.1f s, pages as expected %.1f s later" % (phase, ran_s, settled_s))
        metrics = {}
        for comparison in comparisons:
            metrics.setdefault(comparison.metric, []).append(comparison)
        for metric, group in metrics.items():
            wrong = [line for comparison in group for line in comparison.wrong]
            series = sum(len(c.expected.keys() | c.found.keys()) for c in group)
            numbers = "%10s" % show(float(sum(c.total(c.found) for c in group)))
            still_open = sum(c.open for c in group)
            note = " (%d open)" % still_open if still_open else ""
            print("  %-46s %5d series, sum %s  %s%s" %
                  (metric, series, numbers, "DIFFERENT" if wrong else "OK", note))
            self.rows.append((phase, metric, series, not wrong))
            for line in wrong[:8]:
                print("      " + line)
            self.differences += ["%s: %s" % (phase, line) for line in wrong]
        sys.stdout.flush()

    def notes(self, phase, pages, reports):
        """What is not compared, but worth a look."""
        for rank, page, report in zip(self.ranks, pages, reports):
            if "note" in report:
                print("  note rank%d: %s" % (rank.rank, report["note"]))
            if page is None:
                continue
            ignored = page.sums("nccl_pulse_ignored_events_total", ("reason",))
            untrusted = page.sums("nccl_pulse_kernel_timing_untrusted", ("reason",))
            for what, counts in (("ignored events", ignored),
                                 ("communicators without trust in kernel timing", untrusted)):
                text = "%s: %s" % (what, {key[0]: int(value) for key, value in counts.items()})
                if counts and self.last_notes.get((rank.rank, what)) != text:
                    self.last_notes[rank.rank, what] = text
                    print("  note rank%d: %s" % (rank.rank, text))
        if phase == self.options.phases.split(",")[0]:
            print("  note rank0: NCCL %s, %s%s" % (
                nccl_versions.text(reports[0]["nccl"]),
                "torch %s, " % reports[0]["torch"] if "torch" in reports[0] else "",
                self.ranks[0].scraper.url))
            for rank, page in zip(self.ranks, pages):
                for info, _ in page.select("nccl_communicator_info")[:1] if page else ():
                    print("  note rank%d: CUDA device %d, %s" % (rank.rank, rank.gpu, " ".join(
                        "%s=%s" % (name, info.get(name, ""))
                        for name in ("Hostname", "gpu", "UUID", "pci_bus_id"))))

    def finish(self):
        """The end of the run: nobody may crash or hang in it."""
        for rank in self.ranks:
            rank.scraper.stop.set()
        for rank in self.ranks:
            rank.scraper.join(timeout=ANSWER_S)
            rank.go_on()

        def all_ended():
            return all(rank.process.poll() is not None for rank in self.ranks)

        deadline = time.monotonic() + EXIT_S
        while not all_ended():
            if time.monotonic() > deadline:
                hanging = [r.rank for r in self.ranks if r.process.poll() is None]
                raise Failure("ranks %s have not ended within %d s" % (hanging, EXIT_S))
            time.sleep(0.05)
        for rank in self.ranks:
            if rank.process.returncode != 0:
                raise Failure("rank %d ended with status %d" % (rank.rank, rank.process.returncode))

    def check_pages(self):
        for rank in self.ranks:
            scraper = rank.scraper
            print("rank%d: %d pages read, slowest %.0f ms, %d problems" %
                  (rank.rank, scraper.pages, scraper.slowest_s * 1000, len(scraper.problems)))
            self.differences += ["rank%d: %s" % (rank.rank, p) for p in scraper.problems]
            with open(rank.log, encoding="utf-8", errors="replace") as log:
                for line in log:
                    if "NCCL Pulse: " in line and " WARN " in line:
                        print("  note rank%d: %s" % (rank.rank, line.strip()))

    def run(self):
        phases = self.options.phases.split(",")
        with tempfile.TemporaryDirectory(prefix="pulse-check-") as work:
            try:
                for i in range(self.options.ranks):
                    self.ranks.append(Rank(self.options, i, work))
                for i, phase in enumerate(phases):
                    self.phase(phase)
                    if i + 1 < len(phases):
                        for rank in self.ranks:
                            rank.go_on()
                self.finish()
                self.check_pages()
            except Failure as failure:
                self.differences.append(str(failure))
                print("FAILED: %s" % failure)
                for rank in self.ranks:
                    print("rank%d: %s" % (rank.rank, "\n".join(rank.tails())))
            finally:
                for rank in self.ranks:
                    rank.kill()


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--library", required=True, help="the plugin")
    parser.add_argument("--program", required=True, help="nccl_program, or ddp.py")
    parser.add_argument("--libraries", default="",
                        help="folders of libnccl and libcudart, with colons between")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--mode", choices=("nvlink", "network", "shared-gpu"), default="nvlink")
    parser.add_argument("--timing", choices=("auto", "kernel", "off"), default="auto")
    parser.add_argument("--phases", default="", help="default: all of the program's")
    parser.add_argument("--phase-timeout", type=float, default=120, metavar="SECONDS")
    parser.add_argument("--settle", type=float, default=SETTLE_S, metavar="SECONDS",
                        help="how long pages may take to show what was called")
    parser.add_argument("--listen", default="127.0.0.1:0",
                        help="where each rank serves its page, or the next free port")
    parser.add_argument("--out", required=True, help="folder for logs and pages")
    options = parser.parse_args()
    if not options.phases:
        options.phases = PYTHON_PHASES if options.program.endswith(".py") else PROGRAM_PHASES
        if options.timing == "kernel":
            # From NCCL 2.29.2 on the kernel reads the work of a group of Broadcasts as a collective's
            # to see whether it is timed (device/common.h, profilerEnabled; 2.30.7).
            options.phases = options.phases.replace("broadcast,", "")
    if options.mode != "shared-gpu" and options.ranks > options.gpus:
        parser.error("more ranks than GPUs need --mode shared-gpu")
    return options


def main():
    options = parse_options()
    shutil.rmtree(options.out, ignore_errors=True)
    os.makedirs(options.out)
    # Ends the ranks, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("check.py: terminated"))
    begin = time.monotonic()
    run = Run(options)
    run.run()
    if run.differences:
        print("%d differences, the first of them:" % len(run.differences))
        for line in run.differences[:20]:
            print("  " + line)
    print("RESULT %s: %s, %d ranks, %s, timing %s: %d metrics in %d phases, %d series, %d pages, "
          "%.0f s" % (
              "DIFFERENT" if run.differences else "OK",
              os.path.basename(options.program), options.ranks, options.mode, options.timing,
              len(run.rows), len({row[0] for row in run.rows}), sum(row[2] for row in run.rows),
              sum(rank.scraper.pages for rank in run.ranks), time.monotonic() - begin))
    return 1 if run.differences else 0


if __name__ == "__main__":
    sys.exit(main())
