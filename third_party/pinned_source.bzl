"""A source archive with two origins, each pinned by its own sha256.

`./bazelw` fills a cache folder with Debian's source archives on a machine that has apt. A machine
without it downloads the upstream release instead. Both hold the same source files; for most of our
dependencies they are the same bytes. third_party/README.md says which, and how that was verified.
"""

_ARCHIVE_SUMS = Label("//third_party:debian_archives.sha256")

def cache_folder(ctx):
    env = ctx.os.environ
    if env.get("NCCL_PULSE_SOURCES"):
        return env["NCCL_PULSE_SOURCES"]
    if env.get("XDG_CACHE_HOME"):
        return env["XDG_CACHE_HOME"] + "/nccl-pulse"
    if env.get("HOME"):
        return env["HOME"] + "/.cache/nccl-pulse"
    return None

def _debian_sha256(ctx):
    for line in ctx.read(_ARCHIVE_SUMS).splitlines():
        if line.endswith("  " + ctx.attr.debian_archive):
            return line.split(" ")[0]
    fail("%s is not listed in %s" % (ctx.attr.debian_archive, _ARCHIVE_SUMS))

def _unpack_package(ctx, prefix):
    """Bazel knows no Debian packages; where one was fetched, dpkg-deb is at hand."""
    for command in [
        ["dpkg-deb", "--extract", "package.deb", "package"],
        ["cp", "-R", "package/" + prefix + "/.", "."],
        ["rm", "-r", "package", "package.deb"],
    ]:
        result = ctx.execute(command)
        if result.return_code != 0:
            fail("%s: %s" % (" ".join(command), result.stderr))

def _lay_out_licences(ctx, files):
    """Makes the package @name//licences: the texts that whoever ships this source has to ship too."""
    for path in files:
        text = ctx.path(path)
        if not text.exists:
            fail("%s: there is no licence %s in it" % (ctx.name, path))
        ctx.symlink(text, "licences/" + path.split("/")[-1])
    ctx.file("licences/BUILD.bazel", """filegroup(
    name = "licences",
    srcs = glob(["*"], exclude = ["BUILD.bazel"]),
    visibility = ["//visibility:public"],
)
""", executable = False)

def _pinned_source_impl(ctx):
    # Labels are resolved before anything is unpacked: a label that is not there yet restarts the rule.
    overlay = {path: ctx.path(label) for label, path in ctx.attr.overlay.items()}
    debian_sha256 = _debian_sha256(ctx)
    folder = cache_folder(ctx)
    cached = ctx.path(folder + "/" + ctx.attr.debian_archive) if folder else None

    if cached and cached.exists and ctx.attr.debian_archive.endswith(".deb"):
        ctx.download(url = "file://" + str(cached), sha256 = debian_sha256, output = "package.deb")
        _unpack_package(ctx, ctx.attr.debian_strip_prefix)
        licences = ctx.attr.debian_licences or ctx.attr.licences
    elif cached and cached.exists:
        ctx.download_and_extract(
            url = "file://" + str(cached),
            sha256 = debian_sha256,
            stripPrefix = ctx.attr.debian_strip_prefix or ctx.attr.strip_prefix,
        )
        licences = ctx.attr.debian_licences or ctx.attr.licences
    else:
        ctx.download_and_extract(
            url = ctx.attr.urls,
            sha256 = ctx.attr.sha256,
            stripPrefix = ctx.attr.strip_prefix,
        )
        licences = ctx.attr.licences
    _lay_out_licences(ctx, licences)

    for path, source in overlay.items():
        ctx.delete(path)
        ctx.symlink(source, path)

pinned_source = repository_rule(
    implementation = _pinned_source_impl,
    doc = "Unpacks Debian's archive (or package of headers) from the cache folder or, failing that, " +
          "the upstream release.",
    attrs = {
        "urls": attr.string_list(mandatory = True, doc = "The upstream release archive."),
        "sha256": attr.string(mandatory = True, doc = "Of the upstream archive."),
        "strip_prefix": attr.string(mandatory = True, doc = "Of the upstream archive."),
        "debian_archive": attr.string(
            mandatory = True,
            doc = "Name in the cache folder; its sha256 is in debian_archives.sha256.",
        ),
        "debian_strip_prefix": attr.string(doc = "Only where it differs from strip_prefix."),
        "licences": attr.string_list(
            mandatory = True,
            allow_empty = False,
            doc = "Files of the unpacked tree with licence and copyright; @name//licences has them.",
        ),
        "debian_licences": attr.string_list(doc = "Only where they differ in Debian's archive."),
        "overlay": attr.label_keyed_string_dict(
            allow_files = True,
            doc = "Our files that are laid over the source tree, each with its path in there.",
        ),
    },
    environ = ["NCCL_PULSE_SOURCES", "XDG_CACHE_HOME", "HOME"],
)
