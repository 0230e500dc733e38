"""Servers that are newer than this system's: of @debian_servers, see third_party/debian_servers.bzl."""

import os
import unittest

# Runfiles of a test: its working directory is this workspace, beside the others.
FOLDER = os.path.join(os.getcwd(), "../debian_servers")


def path(name, folder="usr/bin"):
    """Of the program, or of another file of a package; None where it is not to be had."""
    found = os.path.join(FOLDER, "root", folder, name)
    return found if os.path.exists(found) else None


def path_or_skip(name, folder="usr/bin"):
    """The same; where it is not to be had the test is skipped."""
    found = path(name, folder)
    if found is not None:
        return found
    with open(os.path.join(FOLDER, "missing"), encoding="utf-8") as file:
        raise unittest.SkipTest("not to be had here: " + ", ".join(file.read().split()))
