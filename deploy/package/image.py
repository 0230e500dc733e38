"""The container image: an OCI layout in a tar archive, which `docker load` and `podman load` also take.

It has no base: below the program lie glibc and libgcc_s of the compiler that built it, and nothing else.
"""

import hashlib
import json
import os
import subprocess

from deploy.package import content, project

# What the program needs, and a driver's libnvidia-ml.so.1, which a container's run time adds: empty since glibc 2.34.
LIBRARIES = ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0", "librt.so.1"]

# Debian's packages of these libraries; of a cross compiler with the processor's name behind.
PACKAGES = ["libc6", "libgcc-s1"]

BASE = {
    # One folder for libraries under all names that a dynamic linker has for it.
    "lib": content.Link("usr/lib"),
    "lib64": content.Link("usr/lib"),
    "usr/lib64": content.Link("lib"),
    "etc/passwd": b"root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n",
    "etc/group": b"root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": b"hosts: files dns\n",
}


def ask(compiler, question):
    """Returns a compiler's answer."""
    return subprocess.run([compiler, question], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout.strip()


def runtime(compiler, processor):
    """Returns the libraries that the compiler's programs need, below the root, and their licences."""
    files = {}
    for name in LIBRARIES + [processor.loader]:
        path = ask(compiler, "-print-file-name=" + name)
        if not os.path.isabs(path):
            raise SystemExit("make_package: %s has no %s" % (compiler, name))
        with open(path, "rb") as file:
            files["usr/lib/" + name] = file.read()
    is_native = "/usr/%s-linux-gnu/" % processor.machine not in os.path.realpath(path)
    for name in PACKAGES:
        place = "usr/share/doc/%s%s/copyright" % (name, "" if is_native else "-%s-cross" % processor.debian)
        if os.path.exists("/" + place):  # of Debian's compiler
            with open("/" + place, "rb") as file:
                files[place] = file.read()
    return files


def package(files, processor, version, libraries):
    """Returns the name and the bytes of the archive. `libraries` are those of runtime()."""
    root = dict(BASE, **libraries)
    root.update({"opt/nccl-pulse/" + path: data for path, data in files.items()})
    layer = content.tar_of(root)
    blobs = {}

    def blob(data, kind):
        digest = hashlib.sha256(data).hexdigest()
        blobs["blobs/sha256/" + digest] = data
        return {"mediaType": "application/vnd.oci.image." + kind, "digest": "sha256:" + digest, "size": len(data)}

    def json_blob(value, kind):
        return blob(json.dumps(value, sort_keys=True).encode(), kind)

    layer_blob = blob(content.compressed(layer), "layer.v1.tar+gzip")
    configuration = json_blob({
        "architecture": processor.debian,
        "os": "linux",
        "created": content.MODIFIED_TEXT,
        "config": {
            # A number, so that runAsNonRoot can be checked. Manifests set the user that it really runs as.
            "User": "65534:65534",
            "ExposedPorts": {"9410/tcp": {}},
            "Env": ["PATH=/opt/nccl-pulse/bin"],
            "Entrypoint": ["/opt/nccl-pulse/bin/pulse"],
            "Cmd": ["agent"],
            "Labels": {
                "org.opencontainers.image.title": project.NAME,
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": project.LICENCE,
                "org.opencontainers.image.url": project.HOMEPAGE,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
        "history": [{"created": content.MODIFIED_TEXT, "created_by": "make_package"}],
    }, "config.v1+json")
    manifest = json_blob({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                          "config": configuration, "layers": [layer_blob]}, "manifest.v1+json")
    manifest["annotations"] = {"org.opencontainers.image.ref.name": version}

    def place(described):
        return "blobs/sha256/" + described["digest"][len("sha256:"):]

    archive = dict(blobs, **{
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode(),
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [manifest]}, sort_keys=True).encode(),
        # Of `docker load`.
        "manifest.json": json.dumps([{"Config": place(configuration), "RepoTags": ["%s:%s" % (project.NAME, version)],
                                      "Layers": [place(layer_blob)]}]).encode(),
    })
    return "%s-%s-image-%s.tar" % (project.NAME, version, processor.machine), content.tar_of(archive)
