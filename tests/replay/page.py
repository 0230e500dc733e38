"""A /metrics page in text format as samples: {(name, frozenset of (label, value)): float}; and who reads it all the time."""

import functools
import re
import threading

from tests.kit import get

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


class Scraper(threading.Thread):
    """Reads an endpoint all the time. What it answers may be nothing, never something wrong: a series that only grows must
    not vanish, step back or stand there twice."""

    def __init__(self, port, pause_s=0.01):
        super().__init__(daemon=True)
        self.port, self.pause_s = port, pause_s
        self.pages, self.last, self.problems = 0, {}, []
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self.start()

    def keeps(self, _):
        """Whether a series, as of the page before, has to stand there still."""
        return True

    def scrape(self):
        """The samples now; None when nobody answers."""
        with self.lock:
            answer = get(self.port)
            if answer is None:
                return None
            try:
                samples, types = parse(answer[1])
            except ValueError as error:
                self.problems.append(str(error))
                return None
            self.pages += 1
            for key, before in self.last.items():
                after = samples.get(key)
                if (after is None or after < before) and self.keeps(key):
                    self.problems.append("%s: %s, then %s" % (key, before, after))
            grows = {name: monotonic(name, types) for name in {name for name, _ in samples}}
            self.last = {key: value for key, value in samples.items() if grows[key[0]]}
            return samples

    def run(self):
        while not self.stopping.wait(self.pause_s):
            self.scrape()

    def stop(self):
        self.stopping.set()
        self.join()
