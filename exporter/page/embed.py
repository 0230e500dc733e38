"""Puts the page, its style and its scripts into one C++ source.

    embed.py status_page.html status_page.css words.js ... > status_page.cc

One response: no second request may meet another server, or another version. The policy names style and
script by their hashes, so nothing else can run on the page, whatever names a process gives its
communicators.
"""

import base64
import hashlib
import sys

# No literal longer than what every compiler must take.
CHUNK = 4000


def source(text):
    digest = hashlib.sha256(text.encode()).digest()
    return "'sha256-%s'" % base64.b64encode(digest).decode()


def literal(text):
    chunks = [text[at:at + CHUNK] for at in range(0, len(text), CHUNK)]
    return "\n".join('    R"page(%s)page"' % chunk for chunk in chunks)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def main():
    html, style, *scripts = [read(path) for path in sys.argv[1:]]
    script = "(() => {\n'use strict';\n%s})();\n" % "".join(scripts)
    for inlined in (style, script):
        assert "</s" not in inlined.lower() and ')page"' not in inlined
    for mark in ("@STYLE@", "@SCRIPT@"):
        assert html.count(mark) == 1, mark
    page = html.replace("@STYLE@", style).replace("@SCRIPT@", script)
    policy = "; ".join([
        "default-src 'none'",
        "script-src " + source(script),
        "style-src " + source(style),
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ])
    headers = [
        "Content-Security-Policy: " + policy,
        "X-Content-Type-Options: nosniff",
        "Referrer-Policy: no-referrer",
        "Cache-Control: no-cache",
    ]
    print("// Made by exporter/page/embed.py.")
    print('#include "exporter/page/status_page.h"\n')
    print("namespace nccl_pulse {\n")
    print("std::string_view StatusPage() {\n  return\n%s;\n}\n" % literal(page))
    print("std::string_view StatusPageHeaders() {\n  return\n%s;\n}\n" %
          "\n".join('      "%s\\r\\n"' % header for header in headers))
    print("}  // namespace nccl_pulse")


if __name__ == "__main__":
    main()
