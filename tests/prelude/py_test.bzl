"""py_test with what each of ours has: its file, and what all tests that are written in Python end with."""

def py_test(name, srcs = None, size = "medium", deps = [], **kwargs):
    native.py_test(name = name, size = size, srcs = srcs or [name + ".py"], deps = deps + ["//tests:running"], **kwargs)

def py_tests(tests, **kwargs):
    """Tests that share what they need: the name of each, and its sources beside NAME.py."""
    for name, more in tests.items():
        py_test(name = name, srcs = [name + ".py"] + more, **kwargs)
