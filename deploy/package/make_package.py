"""Writes packages of all kinds: the same files, the same bytes whenever they are built.

Owner root, fixed times, sorted entries; modes come from what a file is, not from the machine that
built it. Version and processor are read from exporter/base/version.h and from the program itself.
"""

import argparse
import os
import re

from deploy.package import content, debian, image, project, rpm, sbom, wheel

# What the files of the source tree have for project.HOMEPAGE.
PLACEHOLDER = b"https://docs.example.com/nccl-pulse"


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    if path.endswith((".json", ".md", ".yaml")):
        data = data.replace(PLACEHOLDER, project.HOMEPAGE.encode())
    return data


def version(header):
    match = re.search(r'\bkVersion\[\]\s*=\s*"([0-9][0-9A-Za-z.+~]*)"', header)
    if not match:
        raise SystemExit("make_package: there is no kVersion in the version header")
    return match.group(1)


def collect(options):
    """Returns the files by their place below a prefix such as /usr."""
    files = {}

    def add(path, data):
        if files.setdefault(path, data) != data:
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
        files[path] = content.Link(target)
    return files


def tar(files, processor, release):
    """Returns the name and the bytes of the tar.gz for any other place: tar -C /opt -xzf."""
    return "%s-%s-linux-%s.tar.gz" % (project.NAME, release, processor.machine), content.tar_gz(
        {"nccl-pulse/" + path: data for path, data in files.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version_header", required=True)
    parser.add_argument("--out", required=True, help="the folder to write to, which exists")
    parser.add_argument("--compiler", required=True, help="GCC, beside whose libraries the programs run")
    parser.add_argument("--dependencies", required=True, help="third_party/dependencies.bzl")
    parser.add_argument("--debian_sums", required=True, help="third_party/debian_archives.sha256")
    several = {"nargs": "+", "action": "append", "default": []}
    parser.add_argument("--install", metavar="WORD", help="FOLDER FILE...", **several)
    parser.add_argument("--tree", metavar="WORD", help="FOLDER START FILE...: keeps what follows START",
                        **several)
    parser.add_argument("--licences", metavar="WORD", help="FOLDER FILE...: of @name//licences",
                        **several)
    parser.add_argument("--link", nargs=2, metavar=("PATH", "TARGET"), action="append", default=[])
    options = parser.parse_args()

    files = collect(options)
    processor = content.processor_of(files["bin/pulse"])
    release = version(read(options.version_header).decode())
    libraries = image.runtime(options.compiler, processor)
    shipped = sorted({path.split("/licences/")[1].split("/")[0] for path in files if "/licences/" in path})
    components = [
        *sbom.sources(read(options.dependencies).decode(), read(options.debian_sums).decode(), shipped),
        *sbom.run_time(image.ask(options.compiler, "-dumpfullversion"), libraries["usr/lib/libc.so.6"])]
    for name, data in [
            debian.package(files, processor, release),
            sbom.package(files, processor, release, components),
            tar(files, processor, release),
            image.package(files, processor, release, libraries),
            rpm.package(files, processor, release),
            wheel.package(files, processor, release),
    ]:
        with open(os.path.join(options.out, name), "wb") as file:
            file.write(data)


if __name__ == "__main__":
    main()
