"""A check of JSON-like values against a schema.

A schema is a function that raises ValueError, a dict {field: schema} whose required fields end in "!",
or a list of one schema for the elements of a list.
"""

import re


def fail(message):
    raise ValueError(message)


def matching(pattern, what):
    def check(value):
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            fail("%r is no %s" % (value, what))
    return check


def text(value):
    if not isinstance(value, str) or not value:
        fail("%r is no text" % (value,))


def yes_no(value):
    if not isinstance(value, bool):
        fail("%r is neither true nor false" % (value,))


def number(low, high=2**31 - 1):
    def check(value):
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            fail("%r is no number from %d to %d" % (value, low, high))
    return check


def one_of(*values):
    """True is not 1."""
    def check(value):
        if not any(type(value) is type(allowed) and value == allowed for allowed in values):
            fail("%r is none of %s" % (value, ", ".join(map(str, values))))
    return check


def either(*checks):
    def check(value):
        errors = []
        for one in checks:
            try:
                return one(value)
            except ValueError as error:
                errors.append(str(error))
        return fail(" and ".join(errors))
    return check


def mapping(key, value_check):
    def check(value):
        if not isinstance(value, dict):
            fail("%r is no mapping" % (value,))
        for name, item in value.items():
            key(name)
            value_check(item)
    return check


def check(value, schema, where):
    """Raises ValueError that says where `value` does not keep to `schema`."""
    if callable(schema):
        try:
            return schema(value)
        except ValueError as error:
            return fail("%s: %s" % (where, error))
    if isinstance(schema, list):
        if not isinstance(value, list):
            fail("%s: not a list" % where)
        for i, item in enumerate(value):
            check(item, schema[0], "%s[%d]" % (where, i))
        return None
    if not isinstance(value, dict):
        fail("%s: not a mapping" % where)
    fields = {name.rstrip("!"): part for name, part in schema.items()}
    for name in value:
        if name not in fields:
            fail("%s: unknown field %s" % (where, name))
        check(value[name], fields[name], "%s.%s" % (where, name))
    for name in schema:
        if name.endswith("!") and name[:-1] not in value:
            fail("%s: %s is missing" % (where, name[:-1]))
    return None
