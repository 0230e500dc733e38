"""Perfetto's own reader: SQL over a trace, as ui.perfetto.dev has it."""

import os
import re
import shutil
import subprocess
import tempfile

VARIABLE = "NCCL_PULSE_TRACE_PROCESSOR"
# Tracks with the names of the two tracks above: of a rank, those are its process and its communicator.
PLACES = """(select track.id, track.name, middle.name as comm, outer_.name as process
             from track left join track middle on track.parent_id = middle.id
                        left join track outer_ on middle.parent_id = outer_.id)"""


def find():
    """The program, None: there is none."""
    named = os.environ.get(VARIABLE)
    return named or shutil.which("trace_processor_shell") or shutil.which("trace_processor")


def literal(text):
    """The value that SQLite's quote() has written."""
    if text == "NULL":
        return None
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    return float(text) if re.search(r"[.eI]", text) else int(text)


class TraceProcessor:

    def __init__(self, trace):
        self.trace = trace

    def rows(self, columns, query, module=""):
        """`module` of Perfetto's SQL is included. Each row as a tuple of its columns, exactly: the program prints six digits of a number, and quotes nothing."""
        line = " || ' ' || ".join("hex(quote(%s))" % column for column in columns.split())
        with tempfile.NamedTemporaryFile("w", suffix=".sql", dir=os.path.dirname(self.trace)) as file:
            if module:
                file.write("include perfetto module %s;\n" % module)
            file.write("select %s as line from (%s);\n" % (line, query))
            file.flush()
            done = subprocess.run([find(), "-q", file.name, self.trace], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, check=False)
        assert done.returncode == 0, "%s\n%s" % (query, done.stderr)
        header, *lines = done.stdout.split("\n")
        assert header == '"line"', done.stdout[:200]
        return [tuple(literal(bytes.fromhex(word).decode()) for word in each.strip('"').split(" "))
                for each in lines if each]

    def slices(self, where, more=""):
        """(process, comm, track, name, ts, dur, depth) and debug annotations `more` of slices, by time."""
        names = more.split()
        extra = "".join(", extract_arg(slice.arg_set_id, 'debug.%s') as %s_" % (name, name) for name in names)
        return self.rows("process comm track name ts dur depth " + " ".join(name + "_" for name in names), """
            select process, comm, place.name as track, slice.name, ts, dur, depth, slice.id as number%s
            from slice join %s place on place.id = slice.track_id
            where %s order by comm, track, ts, slice.id""" % (extra, PLACES, where))

    def counters(self, name):
        """(process, comm, track, ts, value) of the counters whose names end so, by time."""
        return self.rows("process comm track ts value", """
            select process, comm, place.name as track, ts, value
            from counter join %s place on place.id = counter.track_id
            where place.name like '%%%s' order by comm, track, ts, counter.id""" % (PLACES, name))

    def complaints(self):
        """What it could not import, lost or took for wrong."""
        return self.rows("name idx severity value",
                         "select name, idx, severity, value from stats where severity != 'info' and value != 0")
