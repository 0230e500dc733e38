"""cc_test, to which gtest's header is given before the first line, translated already: half a second less for each."""

_GTEST = "@com_google_googletest//:gtest_main"

def cc_test(name, deps = [], copts = [], gtest_first = True, **kwargs):
    """gtest_first: whether the test may see gtest's header, and what that includes, before its own includes."""
    if gtest_first and _GTEST in deps:
        deps = deps + ["//tests/prelude:gtest"]
        copts = copts + ["-include", "tests/prelude/gtest.h"]
    native.cc_test(name = name, copts = copts, deps = deps, **kwargs)
