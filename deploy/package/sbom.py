"""The bill of materials, SPDX 2.3 as JSON: what is linked into library and program, by the pins of third_party/dependencies.bzl."""

import hashlib
import json
import re

from deploy.package import content, project

# Of what is compiled into the packages; a source may have more licences for the rest of it.
LICENCES = {
    "boringssl": "OpenSSL AND ISC AND MIT",
    "com_github_jupp0r_prometheus_cpp": "MIT",
    "com_google_absl": "Apache-2.0",
    "libxcrypt": "LicenseRef-public-domain",
    "nlohmann_json": "MIT",
    "protozero": "BSD-2-Clause AND Apache-2.0",
    "yaml_cpp": "MIT",
    "zlib": "Zlib",
}


def pins(dependencies):
    """Returns {name: arguments} of the calls of pinned_source. The file is Starlark, which Python runs too."""
    found = {}
    scope = {"load": lambda *_: None, "pinned_source": lambda name, **arguments: found.update({name: arguments})}
    exec(dependencies, scope)  # pylint: disable=exec-used
    scope["source_repositories"]()
    return found


def version_of(pin):
    """Returns the release, or the commit, in the address of the archive."""
    stem = re.sub(r"\.tar\..*$", "", pin["urls"][0].rsplit("/", 1)[1])
    return re.sub(r"^\D*(?=\d+\.)", "", stem)


def component(name, version, licence, **more):
    return dict({
        "SPDXID": "SPDXRef-" + re.sub("[^A-Za-z0-9.]", "-", name), "name": name, "versionInfo": version, "filesAnalyzed": False,
        "downloadLocation": "NOASSERTION", "licenseConcluded": "NOASSERTION", "licenseDeclared": licence,
        "copyrightText": "NOASSERTION"}, **more)


def sources(dependencies, debian_sums, shipped):
    """Yields a component for each source that is linked."""
    all_pins = pins(dependencies)
    debian = dict(reversed(line.split()) for line in debian_sums.splitlines())
    for name in shipped:
        if name not in LICENCES:
            raise SystemExit("make_package: deploy/package/sbom.py has no licence of " + name)
        pin = all_pins[name]
        archive = pin["debian_archive"]
        yield component(name, version_of(pin), LICENCES[name], downloadLocation=pin["urls"][0],
                        checksums=[{"algorithm": "SHA256", "checksumValue": pin["sha256"]}],
                        sourceInfo="Built on Debian 12 from %s, SHA256 %s." % (archive, debian[archive]))


def run_time(compiler_version, c_library):
    """Yields what comes from the compiler's machine: linked statically, or a part of the image."""
    yield component("libstdc++", compiler_version, "GPL-3.0-or-later WITH GCC-exception-3.1")
    yield component("libgcc_s", compiler_version, "GPL-3.0-or-later WITH GCC-exception-3.1",
                    comment="Part of the container image; elsewhere the system's.")
    found = re.search(rb"GNU C Library \((?:\S+ GLIBC )?([^)]*)\)", c_library)
    yield component("glibc", found.group(1).decode() if found else "NOASSERTION", "LGPL-2.1-or-later",
                    comment="Part of the container image; elsewhere the system's.")


def package(files, processor, version, components):
    """Returns the name and the bytes of the document."""
    stem = "%s-%s-%s" % (project.NAME, version, processor.machine)
    ours = component(project.NAME, version, project.LICENCE, downloadLocation="NOASSERTION", homepage=project.HOMEPAGE,
                     supplier="Organization: " + project.MAINTAINER)
    described = "".join(hashlib.sha256(files[path]).hexdigest() for path in ("bin/pulse", "lib/libnccl-profiler-pulse.so"))
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", ours["SPDXID"])]
    relations += [(ours["SPDXID"], "DYNAMIC_LINK" if each["name"] in ("glibc", "libgcc_s") else "STATIC_LINK", each["SPDXID"])
                  for each in components]
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": stem,
        "documentNamespace": "%s/spdx/%s-%s" % (project.HOMEPAGE, stem, hashlib.sha256(described.encode()).hexdigest()),
        "creationInfo": {"created": content.MODIFIED_TEXT,
                         "creators": ["Organization: " + project.MAINTAINER, "Tool: make_package"]},
        "packages": [ours, *components],
        "relationships": [{"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": related}
                          for element, kind, related in relations],
        "hasExtractedLicensingInfos": [{
            "licenseId": "LicenseRef-public-domain", "name": "Public domain",
            "extractedText": "bcrypt alone is linked, which its author placed in the public domain."}],
    }
    return stem + ".spdx.json", (json.dumps(document, indent=1) + "\n").encode()
