"""What is kept of a hang that inject.py makes: the agent's own capture, and PyTorch's Flight Recorder files."""

import json
import os
import re
import subprocess
import tarfile
import time

CAPTURE_S = 25  # the agent looks every 5 s, and its capture takes a few more
TRACE_PREFIX = "nccl_trace_rank_"


def folder_of(job):
    return os.path.join(job.folder, "captures")


def _captures(job):
    folder = folder_of(job)
    return sorted(name for name in os.listdir(folder) if name.endswith(".tar.gz")) if os.path.isdir(folder) else []


def _is_of_a_hang(path):
    """A straggler may have been suspected before, of jobs that share their GPUs."""
    with tarfile.open(path) as archive:
        reason = next(member for member in archive.getmembers() if member.name.endswith("/reason.txt"))
        return b"hang of" in archive.extractfile(reason).read()


def _verdict(path):
    """verdict.json of a capture, the names of its files, and its missing.txt."""
    with tarfile.open(path) as archive:
        members = {member.name.split("/", 1)[-1]: member for member in archive.getmembers()}
        verdict = json.load(archive.extractfile(members["verdict.json"]))
        missing = archive.extractfile(members["missing.txt"]).read().decode() if "missing.txt" in members else ""
        return verdict, sorted(members), missing


def check_capture(options, job, case, rank, record):
    """What is wrong with the capture that the agent takes by itself; "": it names whom it should."""
    deadline = time.monotonic() + CAPTURE_S
    while True:
        paths = [os.path.join(folder_of(job), name) for name in _captures(job)]
        path = next(filter(_is_of_a_hang, paths), None)
        if path:
            break
        if time.monotonic() > deadline:
            return "the agent has taken no capture of the hang within %d s" % CAPTURE_S
        options.limit.sleep(0.2)
    verdict, names, missing = _verdict(path)
    roots = [(root["verdict"], sorted(each["rank"] for each in root["ranks"] or root["perhaps"]))
             for root in verdict["roots"]]
    record.update(capture={"roots": roots, "bytes": os.path.getsize(path), "files": len(names), "missing": missing})
    expected = [[rank]] if case.named == "rank" or options.gpus > 2 else [[rank], list(range(options.gpus))]
    wrong = [] if len(roots) == 1 and roots[0][0] == case.verdict and roots[0][1] in expected else [
        "the capture names %s" % roots]
    if not any("/calls/" in name for name in names):
        wrong.append("the capture has no last calls")
    return "; ".join(wrong)


def flight_recorder(options, job, record):
    """Writes the Flight Recorder's files, and keeps what PyTorch's own torchfrtrace says of them, where there is one."""
    folder = os.path.join(job.folder, "flight-recorder")
    done = subprocess.run(
        [options.pulse, "capture", "--endpoint=" + job.endpoint.address, "--format=flight-recorder", "--out=" + folder],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60)
    job.keep("flight-recorder.txt", done.stdout)
    if done.returncode not in (0, 3, 4):
        return "pulse capture --format=flight-recorder: exit status %d" % done.returncode
    try:
        done = subprocess.run(["torchfrtrace", "--prefix", TRACE_PREFIX, folder],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60)
    except FileNotFoundError:
        return ""
    job.keep("torchfrtrace.txt", done.stdout)
    # What it says of calls that do not match; the table of its database stands before.
    said = re.findall(r"^.*(?:Not all ranks|mismatch|Missing ranks|missing rank|No errors|culprit).*$", done.stdout, re.M)
    record.update(torchfrtrace={"status": done.returncode, "said": said[-6:]})
    return "" if done.returncode == 0 else "torchfrtrace: exit status %d" % done.returncode
