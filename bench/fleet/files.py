"""Where things are in the runfiles, the same for `bazel run` and in a test."""

import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENDPOINTS = os.path.join(ROOT, "bench/fleet/endpoints")
RULES = os.path.join(ROOT, "deploy/prometheus")
FLEET_PAGE = os.path.join(ROOT, "docs/fleet.md")
