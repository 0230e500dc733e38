"""A folder with the packages, since a package's name has its version and the processor in it."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")

def _packages(ctx):
    if not ctx.attr._with_tls[BuildSettingInfo].value:
        fail("a package has TLS and passwords, which --config=demo leaves out: build it without --config=demo " +
             "(or --//exporter/web:with_tls=false)")
    folder = ctx.actions.declare_directory(ctx.label.name)
    arguments = ctx.actions.args()
    arguments.add("--out", folder.path)
    arguments.add("--compiler", find_cpp_toolchain(ctx).compiler_executable)
    for each in ctx.attr.arguments:
        arguments.add_all(ctx.expand_location(each, ctx.attr.srcs).split(" "))
    ctx.actions.run(
        executable = ctx.executable._make_package,
        arguments = [arguments],
        inputs = ctx.files.srcs,
        outputs = [folder],
        mnemonic = "Packages",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([folder]), runfiles = ctx.runfiles([folder]))]

packages = rule(
    implementation = _packages,
    attrs = {
        "srcs": attr.label_list(allow_files = True),
        "arguments": attr.string_list(doc = "of make_package.py; $(execpath LABEL) is expanded"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_make_package": attr.label(default = "//deploy/package:make_package", executable = True, cfg = "host"),
        "_with_tls": attr.label(default = "//exporter/web:with_tls"),
    },
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
