"""What a scraper sees of a job that hangs, or only seems to: for inject.py."""

import json
import random
import time

import endpoint
from inject_job import Failure

HANG = "nccl_hang_start_timestamp_seconds"


def communicator(job, name):
    return next((comm for comm in job.endpoint.communicators() or () if comm["name"] == name), None)


def hang_on_page(text, comm=None):
    """[(verdict, ranks, op)] of this communicator, else of all."""
    found = {}
    for labels, _ in endpoint.Page(text).select(HANG, **({"comm": comm} if comm else {})):
        ranks = found.setdefault((labels["verdict"], labels.get("op", "")), [])
        if labels.get("suspect_rank", ""):
            ranks.append(int(labels["suspect_rank"]))
    return [(verdict, sorted(ranks), op) for (verdict, op), ranks in found.items()]


class Scrapes:
    """As Prometheus: every so many seconds, from a random moment on."""

    def __init__(self, options, job, begin):
        self.options, self.job, self.begin = options, job, begin
        self.first = random.uniform(0, options.scrape)
        self.number = 0
        self.silent = 0  # that nobody answered

    def next(self, until):
        """(seconds since `begin`, page, communicators of the JSON) of the next scrape that is
        answered; None when that would be later than `until`."""
        while True:
            at = self.begin + self.first + self.number * self.options.scrape
            if at > until or at > self.options.limit.end - 2:
                return None
            self.options.limit.sleep(at - time.monotonic())
            self.number += 1
            page = self.job.endpoint.get("/metrics")
            comms = self.job.endpoint.communicators()
            seconds = time.monotonic() - self.begin
            self.job.keep("page-%d.txt" % self.number, page)
            self.job.keep("communicators-%d.json" % self.number, json.dumps(comms, indent=1))
            if page is not None and comms is not None:
                return seconds, page, comms
            self.silent += 1


def until_hang(options, scrapes, comm_ids, at_first=""):
    """(seconds, hang of the page, hang of the JSON) of the first scrape that shows a verdict on one of
    the communicators, neither of them what may be said at first; None: none does in time. The page is
    of an earlier moment than the JSON."""
    until = scrapes.begin + options.hang_after + 3 * options.scrape + options.late
    while True:
        scrape = scrapes.next(until)
        if scrape is None:
            return None
        seconds, page, comms = scrape
        for comm_id in comm_ids:
            found = hang_on_page(page, comm_id)
            hang = next((comm["hang"] for comm in comms if comm["comm"] == comm_id), None)
            if found and hang and at_first not in [hang["verdict"]] + [verdict for verdict, _, _ in found]:
                return seconds, found, hang


def has_not_begun(rank, seconds):
    """Whether work of this rank of the JSON has been in flight for so long, and its GPU is known not
    to have come to it."""
    since = rank.get("in_flight_since")
    return since is not None and time.time() - since >= seconds and rank.get("begun") is False


def while_queued(options, scrapes, comm_id):
    """What is wrong with the scrapes until all ranks' work has stood in its queue for longer than a
    hang would be suspected after, and two more; "": nothing, nobody is named in any. The second
    value: after how many seconds."""
    until = scrapes.begin + options.hang_after + 5 * options.scrape + options.late
    queued = 0
    while queued < 3:
        scrape = scrapes.next(until)
        if scrape is None:
            raise Failure("no rank's work was seen to stand in its queue for %g s" % options.hang_after)
        seconds, page, comms = scrape
        named = hang_on_page(page) + [comm["hang"] for comm in comms if comm["hang"]]
        if named:
            return "a hang is reported: %s" % named, seconds
        ranks = next((comm["ranks"] for comm in comms if comm["comm"] == comm_id), [])
        queued += len(ranks) == options.gpus and all(has_not_begun(rank, options.hang_after) for rank in ranks)
    return "", seconds
