"""Whose project this is, and what it needs: the facts that all packages state. A fork changes HOMEPAGE and MAINTAINER here."""

HOMEPAGE = "https://docs.example.com/nccl-pulse"
MAINTAINER = "NCCL Pulse maintainers"
EMAIL = "maintainers@docs.example.com"

NAME = "nccl-pulse"
LICENCE = "Apache-2.0"
SUMMARY = "Prometheus metrics of every NCCL operation of a job"
DESCRIPTION = """\
A profiler plugin that NCCL loads with NCCL_PROFILER_PLUGIN=pulse, and RCCL
with its own name for it: calls, bytes, algorithms, latency histograms, work
in flight. With it come the program pulse (status, diagnose, watch, capture,
trace, set, agent, demo), recording rules, alerts and dashboards.
"""

# The newest symbol version of glibc that a file of the packages needs.
GLIBC = (2, 34)
