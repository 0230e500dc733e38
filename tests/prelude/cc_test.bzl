"""cc_test with what each of ours has: its file, and a main of gtest.

gtest's header is given before the first line, translated already: half a second less for each.
"""

load("//tools:in_one_piece.bzl", "in_one_piece")

def cc_test(name, srcs = None, size = "small", deps = [], copts = [], optimised = False, gtest_first = True, **kwargs):
    """A test of one or more files, which are compiled as one.

    optimised: where the compiler's orders are under test (threads side by side), where stack, time or calls of the
        optimised code are measured, and what computes a lot. The others are compiled in two thirds of the time.
    gtest_first: whether the test may see gtest's header, and what that includes, before its own includes.
    """
    srcs = srcs or [name + ".cc"]
    deps = deps + ["@com_google_googletest//:gtest_main"]
    if len([file for file in srcs if file.endswith(".cc") and not file.startswith("//")]) > 1:
        in_one_piece(name = name + "_in_one_piece", testonly = True, srcs = srcs)
        srcs = [":%s_in_one_piece" % name]
        deps = deps + srcs
    if not optimised:
        copts = copts + ["-O0", "-U_FORTIFY_SOURCE"]
    if gtest_first:
        deps = deps + ["//tests/prelude:gtest"]
        copts = copts + ["-include", "tests/prelude/gtest.h"]
    native.cc_test(name = name, size = size, srcs = srcs, copts = copts, deps = deps, **kwargs)

def cc_tests(tests, **kwargs):
    """Tests that share their dependencies: the name of each, and its sources; none: NAME.cc."""
    for name, srcs in tests.items():
        cc_test(name = name, srcs = srcs, **kwargs)
