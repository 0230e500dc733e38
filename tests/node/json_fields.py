"""Compares the fields that docs/http-api.md has with those of an answer, both ways."""

import os
import re

from tests.node import cluster

DOCUMENT = os.path.join(cluster.RUNFILES, "docs/http-api.md")
# What stands in a row beside fields: values of a field, and fields of the same name elsewhere.
NOT_FIELDS = {"live", "duration", "completion", "off", "no_room", "not_read", "replays"}


def tables(text):
    """By the heading of the first column, or of the section where that is "field": {field: names in its row}."""
    found, section, table = {}, "", None
    for line in text.splitlines():
        if line.startswith("|---"):
            continue
        if line.startswith("## "):
            section = line[3:]
        cells = re.match(r"\| (.*?) \| (.*) \|$", line)
        if not cells:
            table = None
        elif cells.group(2) == "meaning":
            heading = cells.group(1)
            table = found.setdefault(section if heading == "field" else heading.replace("`", ""), {})
        elif table is not None:
            fields = re.findall(r"`(\w+)`", cells.group(1))
            for field in fields:
                # A row of one field has the fields within it; a row of several has theirs, not to be told apart.
                table[field] = set(re.findall(r"`(\w+)`", cells.group(2))) if len(fields) == 1 else None
    return found


def keys_within(value):
    if isinstance(value, list):
        return set().union(*map(keys_within, value))
    if isinstance(value, dict):
        return set(value).union(*map(keys_within, value.values()))
    return set()


def problems(table, objects, inner=()):
    """What differs. `objects`: all of a kind; `inner`: fields whose inside is told in the row."""
    said = []
    for each in objects:
        said += ["not documented: " + field for field in set(each) - set(table)]
        said += ["not there: " + field for field in set(table) - set(each)]
        for field in inner:
            if each.get(field) in (None, []):
                continue
            there, told = keys_within(each[field]), table[field]
            said += ["not documented: %s.%s" % (field, name) for name in there - told]
            said += ["not there: %s.%s" % (field, name) for name in told - there - NOT_FIELDS]
    return sorted(set(said))


def of_page(page):
    with open(DOCUMENT, encoding="utf-8") as file:
        found = tables(file.read())
    communicators = page["communicators"]
    ranks = [rank for comm in communicators for rank in comm["ranks"]]
    return (problems(found["The page"], [page]) + problems(found["field of health"], [page["health"]]) +
            problems(found["A communicator"], communicators, ["straggler"]) +
            problems(found["A rank"], ranks, ["process", "gpu", "launches", "last_call", "last_timed_operation",
                                              "longest_waits", "operations"]))


def of_calls(page):
    with open(DOCUMENT, encoding="utf-8") as file:
        found = tables(file.read())
    calls = [call for rank in page["ranks"] for call in rank["calls"]]
    ranks = [dict(rank, calls=None) for rank in page["ranks"]]
    return (problems(found["The last calls"], [dict(page, ranks=ranks)], ["ranks"]) +
            problems(found["field of a call"], calls))
