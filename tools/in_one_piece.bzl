"""Files compiled as one: most of the time that they take to compile goes into headers and templates, which they share."""

def _in_one_piece(ctx):
    piece = ctx.actions.declare_file(ctx.label.name + ".cc")
    sources = [file.path for file in ctx.files.srcs if file.extension != "h"]
    ctx.actions.write(piece, "".join(["#include \"%s\"\n" % path for path in sources]))
    files = cc_common.create_compilation_context(headers = depset(ctx.files.srcs))
    return [DefaultInfo(files = depset([piece])), CcInfo(compilation_context = files)]

in_one_piece = rule(
    implementation = _in_one_piece,
    attrs = {"srcs": attr.label_list(allow_files = [".cc", ".cpp", ".h"])},
)
