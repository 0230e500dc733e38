"""The Debian package."""

import gzip
import hashlib
import re

from deploy.package import content, project

CONTROL = """\
Package: %(name)s
Version: %(version)s
Architecture: %(architecture)s
Maintainer: %(maintainer)s
Installed-Size: %(installed_kib)d
Depends: libc6 (>= %(glibc)s), libgcc-s1
Suggests: python3
Section: admin
Priority: optional
Homepage: %(homepage)s
Description: %(summary)s
%(description)s .
 The examples in /usr/share/nccl-pulse/deploy/on-hang are Python programs.
 .
 The systemd units nccl-pulse-agent.service and nccl-pulse-watch.service are
 installed and not enabled.
"""

MAINTAINER = "%s <%s>" % (project.MAINTAINER, project.EMAIL)

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


def ar(members):
    """Returns the bytes of an ar archive of (name, bytes), as dpkg reads it."""
    archive = b"!<arch>\n"
    for name, data in members:
        archive += b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (
            name.encode(), content.MODIFIED, 0, 0, b"100644", len(data))
        archive += data + b"\n" * (len(data) % 2)
    return archive


def placed(files, processor, version):
    """Returns `files` below the root, where Debian wants them, and Debian's own."""
    # Where the dynamic linker looks, so that a library is found by its name alone.
    libraries = "usr/lib/%s-linux-gnu/" % processor.machine
    result = {re.sub(r"^usr/lib/(?=[^/]+\.so$)", libraries, "usr/" + path): data for path, data in files.items()}
    result["usr/share/doc/nccl-pulse/changelog.gz"] = gzip.compress(
        (CHANGELOG % (version, MAINTAINER)).encode(), mtime=0)  # as small as lintian wants it
    result["usr/share/lintian/overrides/nccl-pulse"] = OVERRIDES.encode()
    return result


def package(files, processor, version):
    """Returns the name and the bytes of the package."""
    data = placed(files, processor, version)
    regular = {path: each for path, each in data.items() if not isinstance(each, content.Link)}
    control = {
        "control": CONTROL % {
            "name": project.NAME,
            "version": version,
            "maintainer": MAINTAINER,
            "architecture": processor.debian,
            "glibc": "%d.%d" % project.GLIBC,
            "homepage": project.HOMEPAGE,
            "summary": project.SUMMARY,
            "description": re.sub("^", " ", project.DESCRIPTION.rstrip("\n"), flags=re.MULTILINE) + "\n",
            "installed_kib": sum((len(each) + 1023) // 1024 for each in regular.values()),
        },
        "md5sums": "".join("%s  %s\n" % (hashlib.md5(each).hexdigest(), path)
                           for path, each in sorted(regular.items())),
        # The dynamic linker's cache is rebuilt.
        "triggers": "activate-noawait ldconfig\n",
    }
    return "%s_%s_%s.deb" % (project.NAME, version, processor.debian), ar([
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", content.tar_gz({path: text.encode() for path, text in control.items()})),
        ("data.tar.gz", content.tar_gz(data)),
    ])
