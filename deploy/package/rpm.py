"""The .rpm, for RHEL 9 and its relatives: format 4, written by hand as the Debian package is.

The format is described in the manual of rpm (docs/manual/format_*.md, rpm 4.19).
"""

import hashlib
import os
import re
import stat
import struct

from deploy.package import content, project

# Types of values.
INT16, INT32, STRING, BINARY, STRINGS, TRANSLATED = 3, 4, 6, 7, 8, 9

# What begins each of both headers.
IMMUTABLE, SIGNATURES = 63, 62

LESS_EQUAL_RPMLIB = 2 | 8 | 1 << 24
EQUAL = 8
DOCUMENT, LICENCE = 2, 128


def placed(files):
    """Returns `files` below the root, where Red Hat's relatives have them."""
    result = {}
    for path, data in files.items():
        path = re.sub(r"^lib/(?=[^/]+\.so$)", "lib64/", path)
        result["usr/" + path.replace("zsh/vendor-completions", "zsh/site-functions")] = data
    return result


def header(region, values):
    """Returns the bytes of a header of {tag: (type, value)}, covered by a region as rpm 4 wants it."""
    index, store = b"", b""
    for tag, (kind, value) in sorted(values.items()):
        values_of = value if isinstance(value, (list, tuple)) else [value]
        count = len(values_of)
        if kind in (INT16, INT32):
            letter, size = {INT16: ("H", 2), INT32: ("I", 4)}[kind]
            store += bytes(-len(store) % size)
            data = struct.pack(">%d%s" % (count, letter), *values_of)
        elif kind == BINARY:
            data, count = value, len(value)
        else:
            data = b"".join(each.encode() + b"\0" for each in values_of)
        index += struct.pack(">4I", tag, kind, len(store), count)
        store += data
    entries = len(values) + 1
    # The region's own entry is the first, its end the last of the store.
    index = struct.pack(">4I", region, BINARY, len(store), 16) + index
    store += struct.pack(">2IiI", region, BINARY, -16 * entries, 16)
    return b"\x8e\xad\xe8\x01\0\0\0\0" + struct.pack(">2I", entries, len(store)) + index + store


def cpio(entries):
    """Returns the bytes of an archive of [(path, mode, bytes)] in the format "newc"."""
    archive = b""
    for inode, (path, file_mode, data) in enumerate(entries + [("TRAILER!!!", 0, b"")], 1):
        name = ("./" + path if file_mode else path).encode() + b"\0"
        fields = [inode, file_mode, 0, 0, 1, content.MODIFIED if file_mode else 0, len(data), 0, 0, 0, 0, len(name), 0]
        archive += b"070701" + b"".join(b"%08x" % field for field in fields) + name
        archive += bytes(-len(archive) % 4) + data
        archive += bytes(-len(archive) % 4)
    return archive


def entries_of(files):
    """Returns [(path, mode, bytes)], sorted: the files, and the folders that are ours alone."""
    ours = {path for path in content.folders_of(files) if project.NAME in path.split("/")}
    entries = [(path, stat.S_IFDIR | 0o755, b"") for path in ours]
    for path, data in files.items():
        if isinstance(data, content.Link):
            entries.append((path, stat.S_IFLNK | 0o777, data.target.encode()))
        else:
            entries.append((path, stat.S_IFREG | content.mode(path, data), data))
    return sorted(entries)


def flags_of(path):
    """Returns whether a file is a document or a licence, which `rpm --nodocs` and others ask for."""
    if re.match("usr/share/doc/nccl-pulse/(LICENSE$|licences/)", path):
        return LICENCE
    return DOCUMENT if path.startswith(("usr/share/doc/", "usr/share/man/")) else 0


def file_tags(entries):
    """Returns the tags that describe the files."""
    folders = sorted({"/%s/" % os.path.dirname(path) for path, _, _ in entries})
    regular = [stat.S_ISREG(each) for _, each, _ in entries]
    count = len(entries)
    return {
        1028: (INT32, [0 if stat.S_ISDIR(each) else len(data) for _, each, data in entries]),  # sizes
        1030: (INT16, [each for _, each, _ in entries]),  # modes
        1033: (INT16, [0] * count),  # devices that the files are
        1034: (INT32, [content.MODIFIED] * count),
        1035: (STRINGS, [hashlib.sha256(data).hexdigest() if is_file else ""
                         for is_file, (_, _, data) in zip(regular, entries)]),
        1036: (STRINGS, [data.decode() if stat.S_ISLNK(each) else "" for _, each, data in entries]),  # link targets
        1037: (INT32, [flags_of(path) for path, _, _ in entries]),
        1039: (STRINGS, ["root"] * count),
        1040: (STRINGS, ["root"] * count),
        1045: (INT32, [0xffffffff] * count),  # all is verified
        1095: (INT32, [1] * count),  # devices that hold the files
        1096: (INT32, list(range(1, count + 1))),  # inodes
        1097: (STRINGS, [""] * count),  # languages
        1116: (INT32, [folders.index("/%s/" % os.path.dirname(path)) for path, _, _ in entries]),
        1117: (STRINGS, [os.path.basename(path) for path, _, _ in entries]),
        1118: (STRINGS, folders),
        5011: (INT32, 8),  # digests are SHA-256
    }


def package(files, processor, version):
    """Returns the name and the bytes of the package."""
    entries = entries_of(placed(files))
    archive = cpio(entries)
    payload = content.compressed(archive)
    full = version + "-1"
    provides = [(project.NAME, EQUAL, full),
                ("%s(%s)" % (project.NAME, processor.machine.replace("_", "-")), EQUAL, full)]
    requires = sorted([("libc.so.6(GLIBC_%d.%d)(64bit)" % project.GLIBC, 0, ""), ("libgcc_s.so.1()(64bit)", 0, ""),
                       ("libm.so.6()(64bit)", 0, ""),
                       ("rpmlib(CompressedFileNames)", LESS_EQUAL_RPMLIB, "3.0.4-1"),
                       ("rpmlib(FileDigests)", LESS_EQUAL_RPMLIB, "4.6.0-1"),
                       ("rpmlib(PayloadFilesHavePrefix)", LESS_EQUAL_RPMLIB, "4.0-1")])
    values = {
        100: (STRINGS, ["C"]),  # languages of the texts
        1000: (STRING, project.NAME),
        1001: (STRING, version),
        1002: (STRING, "1"),  # release
        1004: (TRANSLATED, project.SUMMARY),
        1005: (TRANSLATED, project.DESCRIPTION),
        1006: (INT32, content.MODIFIED),
        1007: (STRING, "localhost"),  # the machine that built it
        1009: (INT32, sum(len(data) for _, _, data in entries)),
        1011: (STRING, project.MAINTAINER),  # vendor
        1014: (STRING, project.LICENCE),
        1015: (STRING, "%s <%s>" % (project.MAINTAINER, project.EMAIL)),
        1016: (TRANSLATED, "System Environment/Base"),
        1020: (STRING, project.HOMEPAGE),
        1021: (STRING, "linux"),
        1022: (STRING, processor.machine),
        1044: (STRING, "%s-%s.src.rpm" % (project.NAME, full)),  # without it, this is a source package
        1064: (STRING, "4.16.1.3"),  # RHEL 9's, the oldest rpm that it is for
        1047: (STRINGS, [name for name, _, _ in provides]),
        1112: (INT32, [flags for _, flags, _ in provides]),
        1113: (STRINGS, [each for _, _, each in provides]),
        1049: (STRINGS, [name for name, _, _ in requires]),
        1048: (INT32, [flags for _, flags, _ in requires]),
        1050: (STRINGS, [each for _, _, each in requires]),
        1124: (STRING, "cpio"),
        1125: (STRING, "gzip"),
        1126: (STRING, "9"),
        5062: (STRING, "utf-8"),
        5092: (STRINGS, [hashlib.sha256(payload).hexdigest()]),
        5093: (INT32, 8),
    }
    values.update(file_tags(entries))
    main = header(IMMUTABLE, values)
    signature = header(SIGNATURES, {
        273: (STRING, hashlib.sha256(main).hexdigest()),
        1000: (INT32, len(main) + len(payload)),
        1007: (INT32, len(archive)),
    })
    name = "%s-%s" % (project.NAME, full)
    # Only its first bytes are still read.
    lead = struct.pack(">4s2B2H66s2H16x", b"\xed\xab\xee\xdb", 3, 0, 0, 1, name.encode(), 1, 5)
    return "%s.%s.rpm" % (name, processor.machine), b"".join(
        [lead, signature, bytes(-len(signature) % 8), main, payload])
