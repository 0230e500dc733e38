"""Servers that only tests run, newer than this Debian release has: @debian_servers//:NAME.

`./bazelw` puts the packages into its cache folder (tools/fetch_servers). Where they are not, the repository
is empty but for a file that says so, and the tests that need a server are skipped. Once the packages are there,
`./bazelw sync --only=debian_servers` looks again.
"""

load("//third_party:pinned_source.bzl", "cache_folder")

_SUMS = Label("//third_party:debian_servers.sha256")

# 160 MB that no test runs.
_UNUSED = ["vmauth", "vmbackup", "vmctl", "vmrestore"]

def _debian_servers_impl(ctx):
    folder = cache_folder(ctx)
    missing = []
    for line in ctx.read(_SUMS).splitlines():
        sha256, _, package = line.partition("  ")
        cached = ctx.path(folder + "/" + package) if folder else None
        if not cached or not cached.exists:
            missing.append(package)
            continue
        ctx.download(url = "file://" + str(cached), sha256 = sha256, output = "package.deb")
        result = ctx.execute(["dpkg-deb", "--extract", "package.deb", "root"])
        if result.return_code != 0:
            fail("%s: %s" % (package, result.stderr))
        ctx.delete("package.deb")
    for program in _UNUSED:
        ctx.delete("root/usr/bin/" + program)
    ctx.file("missing", "\n".join(missing), executable = False)
    ctx.file("BUILD.bazel", """filegroup(
    name = "servers",
    srcs = ["missing"] + glob([
        "root/usr/bin/*",
        # Kubernetes' own types: tests/deploy/kubernetes_types.py.
        "root/usr/share/gocode/src/k8s.io/client-go/applyconfigurations/internal/internal.go",
        "root/usr/share/prometheus/alertmanager/*.tmpl",
    ]),
    visibility = ["//visibility:public"],
)
""", executable = False)

debian_servers = repository_rule(
    implementation = _debian_servers_impl,
    doc = "Unpacks the packages of debian_servers.sha256 from the cache folder.",
    environ = ["NCCL_PULSE_SOURCES", "XDG_CACHE_HOME", "HOME"],
)
