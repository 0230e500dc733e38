"""A library that is linked, but whose headers and include folders its users do not see.

So what uses `//exporter/web:guard` is compiled by the same commands with TLS and without: the demo's objects serve the
tests, and the other way round.
"""

def _linked_impl(ctx):
    return [CcInfo(linking_context = ctx.attr.library[CcInfo].linking_context)]

linked = rule(
    implementation = _linked_impl,
    attrs = {"library": attr.label(mandatory = True, providers = [CcInfo])},
)
