"""A /metrics page in text format as samples: {(name, frozenset of (label, value)): float}."""

import functools
import re

_SERIES = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?$')
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


@functools.lru_cache(maxsize=2**17)
def _key(series):
    """Of a sample's name and labels, as they stand on the page; pages that follow each other repeat most of them."""
    match = _SERIES.match(series)
    if match is None:
        raise ValueError("not a sample: " + series)
    name, labels = match.groups()
    return name, frozenset(_LABEL.findall(labels or ""))


def parse(text):
    """Returns (samples, types): types maps a family's name to counter, gauge, histogram ..."""
    samples, types = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ", 3)
            types[name] = kind
        if not line or line.startswith("#"):
            continue
        series, _, value = line.rpartition(" ")
        key = _key(series)
        if key in samples:
            raise ValueError("twice on the page: " + line)
        samples[key] = float(value)
    return samples, types


def family_of(name, types):
    """The family that a sample's name belongs to."""
    if name in types:
        return name
    for suffix in ("_bucket", "_sum", "_count"):
        if name.endswith(suffix) and name[:-len(suffix)] in types:
            return name[:-len(suffix)]
    raise ValueError("sample without TYPE: " + name)


def monotonic(name, types):
    """Whether a sample may only grow."""
    kind = types[family_of(name, types)]
    return kind in ("counter", "histogram", "summary")
