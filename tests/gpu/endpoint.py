"""The client of an endpoint on this host, a /metrics page, parsed strictly, and processes as /proc shows them."""

import collections
import contextlib
import functools
import http.client
import json
import os
import re
import urllib.request

_SERIES = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?$')
_LABELS = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


class Page:
    """A /metrics page in the text format; ValueError when it is not one."""

    def __init__(self, text):
        self.samples = {}  # (name, frozenset of (label, value)) -> float
        self.types = {}
        self._families = {}
        self._by_name = None  # made when first needed
        if not text.endswith("\n"):
            raise ValueError("the page ends within a line")
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                if name in self.types:
                    raise ValueError("second TYPE of " + name)
                self.types[name] = kind
            elif line and not line.startswith("#"):
                self._add(line)
        self._check_histograms()

    _keys = {}  # what stands before a value -> key; the next page has nearly the same lines

    def _add(self, line):
        text, _, value = line.rpartition(" ")
        key = self._keys.get(text)
        if key is None:
            key = self._keys[text] = self._key(text)
        if key in self.samples:
            raise ValueError("twice on the page: " + line)
        self.family(key[0])
        self.samples[key] = float(value)

    @staticmethod
    def _key(text):
        match = _SERIES.match(text)
        if match is None:
            raise ValueError("not a sample: " + text)
        labels = _LABELS.findall(match.group(2) or "")
        # Nothing may stand between the labels that were found.
        if ",".join('%s="%s"' % label for label in labels) != (match.group(2) or ""):
            raise ValueError("bad labels: " + text)
        return match.group(1), frozenset(labels)

    def family(self, name):
        family = self._families.get(name)
        if family is None:
            for suffix in ("", "_bucket", "_sum", "_count"):
                base = name[:-len(suffix)] if suffix else name
                if name.endswith(suffix) and base in self.types:
                    family = self._families[name] = base
                    break
            else:
                raise ValueError("no TYPE before " + name)
        return family

    def _check_histograms(self):
        buckets = collections.defaultdict(list)
        for (name, labels), value in self.samples.items():
            if name.endswith("_bucket") and self.types[self.family(name)] == "histogram":
                series, bound = self._bucket(name, labels)
                buckets[series].append((bound, value))
        for (name, labels), counts in buckets.items():
            values = [value for _, value in sorted(counts)]
            if values != sorted(values) or self.samples.get((name, labels)) != values[-1]:
                raise ValueError("inconsistent buckets of %s%s" % (name, sorted(labels)))

    @staticmethod
    @functools.lru_cache(maxsize=None)
    def _bucket(name, labels):
        """(key of the count that it belongs to, upper bound)."""
        count = name[:-len("bucket")] + "count"
        return ((count, frozenset(label for label in labels if label[0] != "le")), float(dict(labels)["le"]))

    def only_grows(self, name):
        return self.types[self.family(name)] in ("counter", "histogram", "summary")

    def fallen(self, last):
        """[(key, before, after)] of what only grows, but is less than on the page `last`, or gone."""
        return [(key, before, after) for key, before in last.samples.items() if last.only_grows(key[0])
                for after in [self.samples.get(key)] if after is None or after < before]

    def select(self, name, **fixed):
        """[(labels as dict, value)] of the samples with these labels."""
        if self._by_name is None:
            self._by_name = collections.defaultdict(list)
            for (found, labels), value in self.samples.items():
                if not found.endswith("_bucket"):
                    self._by_name[found].append((dict(labels), value))
        return [(labels, value) for labels, value in self._by_name[name] if fixed.items() <= labels.items()]

    def sums(self, name, by, **fixed):
        """{values of the labels `by`: sum}; zeros left out."""
        result = collections.Counter()
        for labels, value in self.select(name, **fixed):
            result[tuple(labels.get(label, "") for label in by)] += value
        return {key: value for key, value in result.items() if value}


def ask(port, path, timeout=10):
    """(headers, text) of a response. Raises OSError if there is none, or one that is not good."""
    try:
        with urllib.request.urlopen("http://127.0.0.1:%d%s" % (port, path), timeout=timeout) as response:
            return response.headers, response.read().decode()
    except http.client.HTTPException as error:
        raise OSError(repr(error)) from error


def get(port, path="/metrics", timeout=10):
    return ask(port, path, timeout)[1]


def metrics(port, timeout=10):
    return Page(get(port, "/metrics", timeout))


def communicators(port, timeout=10):
    return json.loads(get(port, "/api/v1/communicators", timeout))["communicators"]


def open_files(pid):
    """{number: target} of a process's descriptors, without any that it closes meanwhile."""
    folder = "/proc/%d/fd" % pid
    found = {}
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            found[int(name)] = os.readlink(os.path.join(folder, name))
    return found


def listens(pid, port):
    """Whether the process listens on this port, by the kernel's word."""
    sockets = (re.match(r"socket:\[(\d+)\]", target) for target in open_files(pid).values())
    inodes = {match.group(1) for match in sockets if match}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not os.path.exists(table):
            continue
        with open(table, encoding="ascii") as lines:
            for line in lines:
                fields = line.split()
                if fields[3] == "0A" and fields[1].endswith(":%04X" % port) and fields[9] in inodes:
                    return True
    return False



def thread_times(pid):
    """{name: seconds of processor time} of a process, threads of one name together; precise where
    the kernel has schedstat."""
    times = {}
    for task in os.listdir("/proc/%d/task" % pid):
        folder = "/proc/%d/task/%s/" % (pid, task)
        try:
            with open(folder + "comm", encoding="utf-8") as file:
                name = file.read().strip()
            try:
                with open(folder + "schedstat", encoding="ascii") as file:
                    seconds = int(file.read().split()[0]) / 1e9
            except FileNotFoundError:
                with open(folder + "stat", encoding="utf-8") as file:
                    fields = file.read().rsplit(")", 1)[1].split()
                seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (FileNotFoundError, ProcessLookupError):
            continue
        times[name] = times.get(name, 0) + seconds
    return times
