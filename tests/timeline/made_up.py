"""Pages of a made-up job, as /api/v1/communicators/ID/calls and /api/v1/communicators have them, and captures of them."""

import io
import json
import os
import tarfile

COMM = "00ab12cd34ef5678"
START = 1760000000


def call(number, launched, op="AllReduce", collective=None, **more):
    """`launched`: seconds since START; None: not known."""
    return dict({"number": number, "collective": number if collective is None else collective or None, "op": op,
                 "datatype": "ncclFloat32", "bytes": 4096, "group": number, "stream": "9f31", "captured": False,
                 "launched": None if launched is None else START + launched, "state": "completed", "begun": None,
                 "seconds": None, "timed_by": None}, **more)


def rank(number, calls, host="node-1", missing=None):
    return {"rank": number, "pid": 100 + number, "hostname": host, "global_rank": str(number), "gpu": str(number),
            "kept": 256 if calls is not None else 0, "missing": missing, "calls": calls}


def calls_page(time, *ranks, comm=COMM, name="dp", nranks=None, verdict=None, suspects=()):
    return {"time": START + time, "comm": comm, "name": name, "nranks": nranks or len(ranks), "verdict": verdict,
            "suspects": list(suspects), "ranks": list(ranks)}


def communicators_page(time, ranks, comm=COMM, hang=None, straggler=None):
    return {"time": START + time, "health": {"status": "ok"},
            "communicators": [{"comm": comm, "name": "dp", "nranks": ranks, "hang": hang, "straggler": straggler,
                               "ranks": [{"rank": i} for i in range(ranks)]}]}


def hang(since, suspects, waiting, verdict="rank_not_called"):
    return {"verdict": verdict, "since": START + since, "op": "AllReduce", "suspects": suspects, "waiting": waiting,
            "text": "Rank %d has not called." % suspects[0]}


def files(*endpoints, verdict=None):
    """Of a capture; an endpoint: (pages of calls, page of communicators or None, clock or None)"""
    content = {"missing.txt": "Nothing is missing.\n"}
    if verdict is not None:
        content["verdict.json"] = json.dumps(verdict)
    for i, (pages, communicators, clock) in enumerate(endpoints):
        folder = "endpoints/%04d-node-%d_9410/" % (i + 1, i + 1)
        for page in pages:
            content[folder + "calls/%s.json" % page["comm"]] = json.dumps(page)
        if communicators is not None:
            content[folder + "communicators.json"] = json.dumps(communicators)
        if clock is not None:
            content[folder + "clock.json"] = json.dumps({"ahead_at_least_ns": clock[0], "ahead_at_most_ns": clock[1]})
    return content


def write_folder(path, content):
    for name, text in content.items():
        os.makedirs(os.path.dirname(os.path.join(path, name)), exist_ok=True)
        with open(os.path.join(path, name), "w", encoding="utf-8") as file:
            file.write(text)
    return path


def write_archive(path, content):
    with tarfile.open(path, "w:gz", format=tarfile.USTAR_FORMAT) as archive:
        for name, text in content.items():
            info = tarfile.TarInfo("capture/" + name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path
