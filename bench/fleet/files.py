"""Where things are in the runfiles, the same for `bazel run` and in a test."""

import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENDPOINTS = os.path.join(ROOT, "bench/fleet/endpoints")
RULES = os.path.join(ROOT, "deploy/prometheus")
# Prometheus 3, as the tests have it; it may be missing.
NEWER_PROMETHEUS = os.path.join(os.path.dirname(ROOT), "debian_servers/root/usr/bin/prometheus")
FLEET_PAGE = os.path.join(ROOT, "docs/scale.md")
