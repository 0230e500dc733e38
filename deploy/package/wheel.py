"""The Python wheel: no Python in it, but the files that pip puts below the prefix of an environment.

bin/pulse finds the library in ../lib, as everywhere.
"""

import base64
import hashlib
import io
import re
import time
import zipfile

from deploy.package import content, project

METADATA = """\
Metadata-Version: 2.1
Name: %(name)s
Version: %(version)s
Summary: %(summary)s
Home-page: %(homepage)s
Maintainer: %(maintainer)s
Maintainer-email: %(email)s
License: %(licence)s
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Description-Content-Type: text/plain

%(description)s"""

WHEEL = """\
Wheel-Version: 1.0
Generator: make_package (%s)
Root-Is-Purelib: false
Tag: %s
"""

# Documents are in the other packages, and units of systemd are nothing for an environment.
LEFT_OUT = re.compile("lib/systemd/|share/doc/|share/(bash-completion|zsh|fish)/")
LICENCES = re.compile("share/doc/nccl-pulse/(LICENSE$|copyright$|licences/)")


def placed(files, version):
    """Returns the regular files by their place in the archive."""
    stem = "nccl_pulse-%s" % version
    result = {}
    for path, data in files.items():
        if isinstance(data, content.Link):
            continue
        if LICENCES.match(path):
            result["%s.dist-info/licenses/%s" % (stem, path[len("share/doc/nccl-pulse/"):])] = data
        elif path.startswith("bin/"):
            result["%s.data/scripts/%s" % (stem, path[len("bin/"):])] = data
        elif not LEFT_OUT.match(path):
            result["%s.data/data/%s" % (stem, path)] = data
    return stem, result


def package(files, processor, version):
    """Returns the name and the bytes of the wheel."""
    tag = "py3-none-manylinux_%d_%d_%s" % (*project.GLIBC, processor.machine)
    stem, members = placed(files, version)
    information = stem + ".dist-info/"
    members[information + "METADATA"] = (METADATA % {
        "name": project.NAME, "version": version, "summary": project.SUMMARY, "homepage": project.HOMEPAGE,
        "maintainer": project.MAINTAINER, "email": project.EMAIL, "licence": project.LICENCE,
        "description": project.DESCRIPTION}).encode()
    members[information + "WHEEL"] = (WHEEL % (version, tag)).encode()
    record = "".join("%s,sha256=%s,%d\n" % (
        path, base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("="), len(data))
                     for path, data in sorted(members.items()))
    members[information + "RECORD"] = (record + information + "RECORD,,\n").encode()

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as wheel:
        # What describes the archive comes last, so that it can be replaced in place.
        for path in sorted(members, key=lambda path: (path.startswith(information), path)):
            info = zipfile.ZipInfo(path, time.gmtime(content.MODIFIED)[:6])
            info.create_system = 3  # Unix, whose modes these are
            programs = content.mode(path, members[path]) == 0o755 or ".data/scripts/" in path
            info.external_attr = (0o100755 if programs else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(info, members[path])
    return "%s-%s.whl" % (stem, tag), archive.getvalue()
