"""An endpoint that serves the real page with answers of the test's own making."""

from tests.kit import Server, reply

NOW = 1760000000.0


def buckets(middle, counts):
    """[upper bound, count] around a number of seconds."""
    first = -(len(counts) // 2)
    return [[float("%.4g" % (middle * 2 ** ((first + i) / 4))), each] for i, each in enumerate(counts) if each]


def latency(p50=0.0003, count=100, **more):
    return dict({"measure": "duration", "source": "stream", "count": count, "mean": p50, "p50": p50,
                 "p90": p50 * 1.2, "p99": p50 * 1.5, "max": p50 * 2, "bus_bytes_per_second": 9e9},
                **more)


def operation(op="AllReduce", size="le_1MiB", calls=400, **more):
    return dict({"op": op, "size": size, "calls": calls, "bytes": calls << 20, "latencies": [
        dict(latency(), buckets=buckets(0.0003, [1, 5, 40, 30, 16, 6, 1, 0, 1]))]}, **more)


def rank(number, calls=100, op="AllReduce", hostname="node-17", **more):
    return dict({
        "rank": number, "index": 0, "active": True, "state": "idle", "state_word": "idle",
        "state_since": NOW - 0.01, "in_flight_since": None,
        "process": {"pid": 24000 + number, "state": "live", "ended": None, "hostname": hostname,
                    "job_id": "4711", "last_poll": NOW},
        "gpu": {"index": str(number % 8)}, "captured": False,
        "launches": {"made": calls, "completed": calls, "in_flight": 0, "in_flight_since": None},
        "last_call": {"op": op, "size": "le_1MiB", "calls": calls}, "straggler_seconds": 0.0,
        "last_completion": NOW - 0.01,
        "operations": [{"op": op, "calls": calls, "bytes": calls << 20, "sequence": calls}],
        "latencies": [dict(latency(), op=op, size="le_1MiB")]}, **more)


def communicator(comm="00ab12cd34ef5678", name="dp", ranks=4, **more):
    members = [rank(i) for i in range(ranks)] if isinstance(ranks, int) else ranks
    return dict({"comm": comm, "name": name, "nranks": len(members), "nnodes": 1, "hang": None,
                 "straggler": None, "operations": [operation()], "ranks": members}, **more)


def health(status="ok", notes=(), summary="No hang and no straggler is suspected."):
    return {"status": status, "notes": list(notes), "summary": summary}


def health_of(communicators):
    comms = [each for each in communicators if isinstance(each, dict)]
    hangs = [each["hang"] for each in comms if isinstance(each.get("hang"), dict)]
    if hangs:
        return health("waiting" if all(hang.get("usual") for hang in hangs) else "hang", summary="")
    return health("straggler", summary="") if any(each.get("straggler") for each in comms) else health()


def page(*communicators, time=NOW, health=None, without_plugin=None):
    return {"time": time, "health": health or health_of(communicators), "communicators": list(communicators),
            "without_plugin": without_plugin}


def hang(since=NOW - 14, text="Rank 3 (pid 24003, GPU 3) has not called AllReduce.", **more):
    return dict({"verdict": "rank_not_called", "since": since, "op": "AllReduce", "suspects": [3],
                 "meaning": "a rank has not made a call that the others have made",
                 "first_step": "py-spy dump --pid 24003 on node-17",
                 "waiting": [0, 1, 2], "text": text}, **more)


def straggler(number=2, text="Rank 2 arrives last at 93 % of the calls."):
    return {"rank": number, "seconds_per_second": 0.2, "mean_seconds": 0.001, "late_share": 0.93,
            "matched_calls": 100, "text": text, "ranks": [],
            "first_step": "nvidia-smi -q -d PERFORMANCE on node-17"}


def calls(comm, op="AllReduce"):
    """The last calls of a communicator; rank 3 has not made the last one."""
    return {"time": NOW, "comm": comm, "suspects": [3], "ranks": [
        {"rank": rank, "missing": None, "calls": [
            {"number": number, "collective": number, "op": op, "bytes": 4096, "begun": None,
             "state": "in_flight" if number == 3 else "completed", "of_kind": number + 10,
             "state_word": "not done" if number == 3 else "done"}
            for number in range(1, 3 if rank == 3 else 4)]} for rank in range(4)]}


class Endpoint(Server):
    """Serves the page at `prefix`, and what `answer` is: JSON, or (status, text)."""

    def __init__(self, html, headers, answer, prefix="/", port=0):
        self.html, self.headers, self.prefix = html, headers, prefix
        self.says = answer
        self.asked = 0
        self.paths = []
        super().__init__(self.respond, port)
        self.url = "http://%s%s" % (self.name, prefix)

    def respond(self, handler):
        path = handler.path
        self.paths.append(path)
        if path == self.prefix:
            reply(handler, self.html, headers=self.headers.items())
        elif path == self.prefix + "api/v1/communicators":
            self.asked += 1
            if isinstance(self.says, tuple):
                reply(handler, self.says[1].encode(), self.says[0])
            else:
                reply(handler, self.says)
        elif path.startswith(self.prefix + "api/v1/communicators/"):
            # Text, whatever it says.
            reply(handler, calls(path.split("/")[-2], "<img src=x onerror='owned = 1'>"))
        else:
            reply(handler, status=404)
