"""py_test with what each of ours has: its file, and what all tests that are written in Python end with."""

def py_test(name, srcs = None, size = "medium", deps = [], **kwargs):
    native.py_test(name = name, size = size, srcs = srcs or [name + ".py"], deps = deps + ["//tests:running"], **kwargs)
