"""What is packaged serves with TLS and passwords when asked to: a program of --config=demo is refused."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")

def _needs_tls(ctx):
    if not ctx.attr._with_tls[BuildSettingInfo].value:
        fail("a package has TLS and passwords, which --config=demo leaves out: build it without --config=demo " +
             "(or --//exporter/web:with_tls=false)")
    return [DefaultInfo()]

# A source of every package; no file.
needs_tls = rule(
    implementation = _needs_tls,
    attrs = {"_with_tls": attr.label(default = "//exporter/web:with_tls")},
)
