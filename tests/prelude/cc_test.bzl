"""cc_test with what each of ours has: its file, a main of gtest, and gtest's header.

The header is given before the first line, translated already: half a second less for each.
"""

def cc_test(name, srcs = None, size = "small", deps = [], copts = [], gtest_main = True, gtest_first = True, **kwargs):
    """gtest_first: whether the test may see gtest's header, and what that includes, before its own includes."""
    if gtest_main:
        deps = deps + ["@com_google_googletest//:gtest_main"]
        if gtest_first:
            deps = deps + ["//tests/prelude:gtest"]
            copts = copts + ["-include", "tests/prelude/gtest.h"]
    native.cc_test(name = name, size = size, srcs = srcs or [name + ".cc"], copts = copts, deps = deps, **kwargs)

def cc_tests(tests, **kwargs):
    """Tests that share their dependencies: the name of each, and its sources beside NAME.cc."""
    for name, more in tests.items():
        cc_test(name = name, srcs = [name + ".cc"] + more, **kwargs)
