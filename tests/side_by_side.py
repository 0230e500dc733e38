"""Runs functions in child processes, several at once: for tests that wait rather than compute.

Each in a process and a folder (TEST_TMPDIR) of its own, so that none sees what another one sets.
"""

import os
import pickle
import sys
import tempfile
import traceback


def _in_child(function, folder):
    """Does not return. The function's result lands in `folder`, as does what it prints."""
    status = 1
    try:
        with open(os.path.join(folder, "output"), "wb") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        own = os.path.join(folder, "t")
        os.mkdir(own)
        os.environ["TEST_TMPDIR"] = own
        result = function()
        with open(os.path.join(folder, "result"), "wb") as file:
            pickle.dump(result, file)
        status = 0
    except BaseException:  # pylint: disable=broad-except  # said as the end of its process
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)  # nothing of the parent's runs twice


def _end_of(folder, status):
    """(what the function returned, None if its process died; what was printed)"""
    with open(os.path.join(folder, "output"), "rb") as file:
        output = file.read().decode(errors="replace")
    path = os.path.join(folder, "result")
    if status or not os.path.exists(path):
        return None, output
    with open(path, "rb") as file:
        return pickle.load(file), output


def run(functions, at_once):
    """Yields (index, result, output) of each as it ends. Result None: its process died before it returned.

    functions: {name: function}. The names of those that begin are shown: where Bazel ends a test that takes too long,
    they say which one.
    """
    waiting = list(enumerate(functions.items()))[::-1]
    running = {}  # pid: (index, folder)
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryDirectory(prefix="s", dir=os.environ.get("TEST_TMPDIR")) as base:
        while waiting or running:
            while waiting and len(running) < at_once:
                index, (name, function) = waiting.pop()
                sys.stderr.write(name + " begins\n")
                sys.stderr.flush()
                folder = os.path.join(base, str(index))
                os.mkdir(folder)
                pid = os.fork()
                if pid == 0:
                    _in_child(function, folder)
                running[pid] = index, folder
            pid, status = os.wait()
            if pid in running:
                index, folder = running.pop(pid)
                yield (index, *_end_of(folder, status))
