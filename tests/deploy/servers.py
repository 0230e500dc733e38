"""Servers that are newer than this system's: of @debian_servers, see third_party/debian_servers.bzl."""

import os
import unittest

# Runfiles of a test: its working directory is this workspace, beside the others.
FOLDER = os.path.join(os.getcwd(), "../debian_servers")


def path_or_skip(name, folder="usr/bin"):
    """Of the program, or of another file of a package; where it is not to be had the test is skipped."""
    path = os.path.join(FOLDER, "root", folder, name)
    if os.path.exists(path):
        return path
    with open(os.path.join(FOLDER, "missing"), encoding="utf-8") as file:
        raise unittest.SkipTest("not to be had here: " + ", ".join(file.read().split()))
