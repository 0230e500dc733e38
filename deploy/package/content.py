"""The files of a package, and what all kinds of packages share: their modes, one fixed time, archives, processors.

Files are a dictionary from the place below a prefix such as /usr to bytes or Link.
"""

import collections
import gzip
import io
import os
import re
import struct
import tarfile

# 2020-01-01. Any fixed time will do, but tar takes 1970 for a mistake.
MODIFIED = 1577836800
MODIFIED_TEXT = "2020-01-01T00:00:00Z"

# machine: as Linux, .rpm and wheels name it. debian: as Debian and OCI do.
Processor = collections.namedtuple("Processor", "machine debian loader")

# By ELF e_machine.
PROCESSORS = {
    62: Processor("x86_64", "amd64", "ld-linux-x86-64.so.2"),
    183: Processor("aarch64", "arm64", "ld-linux-aarch64.so.1"),
}


class Link:
    """A symbolic link in a package."""

    def __init__(self, target):
        self.target = target


def processor_of(program):
    """Returns the Processor that an ELF file is for."""
    if program[:6] != b"\x7fELF\x02\x01":
        raise SystemExit("make_package: bin/pulse is no 64-bit little-endian ELF file")
    machine = struct.unpack_from("<H", program, 18)[0]
    if machine not in PROCESSORS:
        raise SystemExit("make_package: bin/pulse is for the unknown machine %d" % machine)
    return PROCESSORS[machine]


def mode(path, content):
    """Returns the mode of a file. Programs and scripts can be run; a library need not be, but the loader is a program."""
    if re.search(r"(^|/)(bin/|ld-linux)", path) or content[:2] == b"#!":
        return 0o755
    return 0o644


def folders_of(paths):
    """Returns all folders above `paths`."""
    folders = set()
    for path in paths:
        while os.path.dirname(path):
            path = os.path.dirname(path)
            folders.add(path)
    return folders


def compressed(data):
    """Returns `data` as gzip, without a time."""
    return gzip.compress(data, compresslevel=6, mtime=0)


def tar_of(files, start=""):
    """Returns the bytes of an archive of `files`, with all their folders, each name behind `start`."""
    folders = folders_of(files)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(folders | set(files)):
            info = tarfile.TarInfo(start + path)
            info.mtime = MODIFIED
            info.uname = info.gname = "root"
            content = files.get(path)
            if path in folders:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
            elif isinstance(content, Link):
                info.type, info.mode, info.linkname = tarfile.SYMTYPE, 0o777, content.target
                tar.addfile(info)
            else:
                info.mode, info.size = mode(path, content), len(content)
                tar.addfile(info, io.BytesIO(content))
    return archive.getvalue()


def tar_gz(files):
    """Returns a compressed archive, as dpkg has them."""
    return compressed(tar_of(files, "./"))
