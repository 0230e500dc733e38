"""A process that has a file with the name of NCCL's library mapped, as one that has loaded NCCL."""

import os
import subprocess
import sys

from tests.kit import temporary_folder

PROGRAM = """
import mmap, sys, time
with open(sys.argv[1], "rb") as file:
    library = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("ready", flush=True)
time.sleep(3600)
"""


def start(test, rank, environment, **options):
    """Ends with the test. `options`: of Popen."""
    library = os.path.join(temporary_folder(test), "libnccl.so.2.28.9")
    with open(library, "wb") as file:
        file.write(b"x" * 4096)
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, library], env=dict(environment, RANK=str(rank)),
                               stdout=subprocess.PIPE, **options)
    test.addCleanup(process.wait)
    test.addCleanup(process.kill)
    test.addCleanup(process.stdout.close)
    process.stdout.readline()
    return process
