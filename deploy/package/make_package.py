"""Writes the tar.gz and the Debian package: the same files, the same bytes whenever they are built.

Owner root, fixed times, sorted entries; modes come from what a file is, not from the machine that
built it. Version and architecture are read from exporter/base/version.h and from the program itself.
"""

import argparse
import gzip
import hashlib
import io
import os
import re
import struct
import tarfile

# 2020-01-01. Any fixed time will do, but tar takes 1970 for a mistake.
MODIFIED = 1577836800

# ELF e_machine: Debian's name of the architecture, and its folder below /usr/lib.
ARCHITECTURES = {
    62: ("amd64", "x86_64-linux-gnu"),
    183: ("arm64", "aarch64-linux-gnu"),
}

LIBRARY = "libnccl-profiler-pulse.so"
RCCL_LIBRARY = "librccl-profiler-pulse.so"

CONTROL = """\
Package: nccl-pulse
Version: %(version)s
Architecture: %(architecture)s
Maintainer: %(maintainer)s
Installed-Size: %(installed_kib)d
Depends: libc6 (>= 2.34), libgcc-s1
Suggests: python3
Section: admin
Priority: optional
Homepage: https://docs.example.com/nccl-pulse
Description: Prometheus metrics of every NCCL operation of a job
 A profiler plugin that NCCL loads with NCCL_PROFILER_PLUGIN=pulse, and RCCL
 with its own name for it: calls, bytes, algorithms, latency histograms, work
 in flight. With it come the program pulse (status, diagnose, watch, capture,
 trace, set, agent, demo), recording rules, alerts and dashboards.
 .
 The examples in /usr/share/nccl-pulse/deploy/on-hang are Python programs.
 .
 The systemd units nccl-pulse-agent.service and nccl-pulse-watch.service are
 installed and not enabled.
"""

MAINTAINER = "NCCL Pulse maintainers <maintainers@docs.example.com>"

CHANGELOG = """\
nccl-pulse (%s) unstable; urgency=medium

  * See /usr/share/doc/nccl-pulse/CHANGELOG.md.

 -- %s  Wed, 01 Jan 2020 00:00:00 +0000
"""

# Findings of lintian that stay, for these reasons.
OVERRIDES = """\
# Crash reports and profilers of jobs need the names of functions.
nccl-pulse: unstripped-binary-or-object
# NCCL loads the library by this name. Nobody links with it.
nccl-pulse: package-name-doesnt-match-sonames
nccl-pulse: shared-library-lacks-version
# Examples: nothing else in the package needs Python.
nccl-pulse: python3-script-but-no-python3-dep
"""


class Link:
    """A symbolic link in a package."""

    def __init__(self, target):
        self.target = target


def read(path):
    with open(path, "rb") as file:
        return file.read()


def version(header):
    match = re.search(r'\bkVersion\[\]\s*=\s*"([0-9][0-9A-Za-z.+~-]*)"', header)
    if not match:
        raise SystemExit("make_package: there is no kVersion in the version header")
    return match.group(1)


def architecture(program):
    if program[:6] != b"\x7fELF\x02\x01":
        raise SystemExit("make_package: bin/pulse is no 64-bit little-endian ELF file")
    machine = struct.unpack_from("<H", program, 18)[0]
    if machine not in ARCHITECTURES:
        raise SystemExit("make_package: bin/pulse is for the unknown machine %d" % machine)
    return ARCHITECTURES[machine]


def mode(path, content):
    """Of a path in the package. Programs and scripts can be run; a library need not be."""
    if re.search(r"(^|/)bin/", path) or content[:2] == b"#!":
        return 0o755
    return 0o644


def collect(options):
    """Returns the files by their place below a prefix such as /usr."""
    files = {}

    def add(path, content):
        if files.setdefault(path, content) != content:
            raise SystemExit("make_package: two different files are to be %s" % path)

    for destination, *sources in options.install:
        for source in sources:
            add(os.path.join(destination, os.path.basename(source)), read(source))
    for destination, start, *sources in options.tree:
        for source in sources:
            place = re.sub(r"^bazel-out/[^/]+/bin/", "", source)  # one that Bazel made
            if not place.startswith(start + "/"):
                raise SystemExit("make_package: %s is not below %s" % (source, start))
            add(os.path.join(destination, place[len(start) + 1:]), read(source))
    for destination, *sources in options.licences:
        for source in sources:
            match = re.search(r"(?:^|/)external/([^/]+)/licences/([^/]+)$", source)
            if not match:
                raise SystemExit("make_package: %s is no licence of a third_party source" % source)
            add(os.path.join(destination, *match.groups()), read(source))
    for link in options.link:
        path, target = link
        files[path] = Link(target)
    return files


def tar_gz(files, parents_of=""):
    """Returns the bytes of an archive of `files`, {path: bytes or Link}, with all their folders."""
    folders = {os.path.dirname(path) for path in files}
    for folder in list(folders):
        while folder and folder != parents_of:
            folders.add(folder)
            folder = os.path.dirname(folder)
    folders.discard("")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(folders | set(files)):
            info = tarfile.TarInfo("./" + path)
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
    return gzip.compress(archive.getvalue(), compresslevel=9, mtime=0)


def ar(members):
    """Returns the bytes of an ar archive of (name, bytes), as dpkg reads it."""
    archive = b"!<arch>\n"
    for name, content in members:
        archive += b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (
            name.encode(), MODIFIED, 0, 0, b"100644", len(content))
        archive += content + b"\n" * (len(content) % 2)
    return archive


def deb(files, release):
    """Returns the bytes of a Debian package of `files`, which lie below a prefix."""
    name, multiarch = architecture(files["bin/pulse"])
    placed = {}
    for path, content in files.items():
        # Where the dynamic linker looks, so that a library is found by its name alone.
        place = re.sub(r"^lib/(?=[^/]+\.so$)", "lib/%s/" % multiarch, path)
        placed["usr/" + place] = content
    regular = {path: content for path, content in placed.items() if not isinstance(content, Link)}
    control = {
        "control": CONTROL % {
            "version": release,
            "maintainer": MAINTAINER,
            "architecture": name,
            "installed_kib": sum((len(content) + 1023) // 1024 for content in regular.values()),
        },
        "md5sums": "".join("%s  %s\n" % (hashlib.md5(content).hexdigest(), path)
                           for path, content in sorted(regular.items())),
        # The dynamic linker's cache is rebuilt.
        "triggers": "activate-noawait ldconfig\n",
    }
    return ar([
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", tar_gz({path: text.encode() for path, text in control.items()})),
        ("data.tar.gz", tar_gz(placed)),
    ])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version_header", required=True)
    parser.add_argument("--deb", required=True, help="the Debian package to write")
    parser.add_argument("--tar", required=True, help="the tar.gz to write")
    several = {"nargs": "+", "action": "append", "default": []}
    parser.add_argument("--install", metavar="WORD", help="FOLDER FILE...", **several)
    parser.add_argument("--tree", metavar="WORD", help="FOLDER START FILE...: keeps what follows START",
                        **several)
    parser.add_argument("--licences", metavar="WORD", help="FOLDER FILE...: of @name//licences",
                        **several)
    parser.add_argument("--link", nargs=2, metavar=("PATH", "TARGET"), action="append", default=[])
    options = parser.parse_args()

    files = collect(options)
    release = version(read(options.version_header).decode())
    files["share/doc/nccl-pulse/changelog.gz"] = gzip.compress((CHANGELOG % (release, MAINTAINER)).encode(), mtime=0)
    files["share/lintian/overrides/nccl-pulse"] = OVERRIDES.encode()
    with open(options.deb, "wb") as file:
        file.write(deb(files, release))
    with open(options.tar, "wb") as file:
        file.write(tar_gz({"nccl-pulse/" + path: content for path, content in files.items()}))


if __name__ == "__main__":
    main()
