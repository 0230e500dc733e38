"""Checks what documents and comments point to.

    python3 tools/check_documents.py        all files that git knows; tools/lint runs it

In every *.md: relative links lead to a file, and their anchors to a heading of it; a file of this tree,
a Bazel label or an NCCL_PULSE_ variable that is named `like this` exists. In every other text file: a page
that is cited by its path below docs/ exists, and so does the heading behind its #. Pages for users
also keep two rules of style: no sentence of more than MOST_WORDS words, and none of the words in WORSE_WORDS.
All pages for users together, and all for contributors, keep within BUDGETS.
"""

import fnmatch
import os
import re
import subprocess
import sys

FENCE = re.compile(r"^ {0,3}(```|~~~)")
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
LINK_TEXT = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^()\s]+\)")
CODE = re.compile(r"`([^`\n]+)`")
CITED = re.compile(r"(?<![\w/.])docs/[\w/-]+\.md(?:#[\w-]+)?")
TREE = re.compile(r"^(?:plugin|metrics|exporter|simulation|bench|tests|deploy|tools|docs|third_party)/[\w./*+-]+$")
LABEL = re.compile(r"(?<![\w:/.@])//([\w/.-]*)(?::([\w.+-]+))?")
VARIABLE = re.compile(r"\bNCCL_PULSE_[A-Z_]*[A-Z]\b")

# Pages that keep two rules of style: README.md and docs/*.md but for these, which are lists of fields, or for
# contributors.
OTHER_PAGES = {
    "docs/architecture.md",
    "docs/benchmarks.md",
    "docs/http-api.md",
    "docs/metrics.md",
    "docs/nccl-profiler-api.md",
}
MOST_WORDS = 25
CONTRIBUTORS_PAGES = {"CONTRIBUTING.md", "docs/architecture.md", "docs/benchmarks.md", "docs/nccl-profiler-api.md"}
# {who reads them: (their pages, the most words of all together)}; code and tables also count.
BUDGETS = {
    "users": (lambda path: path not in CONTRIBUTORS_PAGES and re.match(r"README\.md$|docs/[\w-]+\.md$", path), 32000),
    "contributors": (lambda path: path in CONTRIBUTORS_PAGES, 7000),
}
# A word that reads as translated, and what to write.
WORSE_WORDS = {
    r", too\b(?! \w)": "also",
    r"\blikewise\b": "repeat the verb",
    r"\b(?:an)?alike\b": "the same",
    r"\bany more\b": "no longer",
    r"\b(?:hold|holds|held|holding) up\b": "block",
    r"\b(?:go|goes|went|going) on\b": "resume",
    r"\bdear(?:er|est)?\b": "expensive",
    r"\bmade-up\b": "simulated",
    r"\bwithout anybody\b": "automatically",
    r"\b(?:give|gives|gave) way\b": "be evicted",
    r"\b(?:nobody|anybody|somebody)\b": "a noun",
    r"\bof which nothing\b": "not reported by NCCL",
    r"\bfor people\b": "human-readable",
    r"\bfor programs\b": "machine-readable",
}
SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z*\"(])")
MARKUP = re.compile(r"^\s*(?:[-*>]|\d+\.|#+)\s+")


def outside_fences(text):
    lines, fenced = [], False
    for line in text.split("\n"):
        if FENCE.match(line):
            fenced = not fenced
            line = ""
        lines.append("" if fenced else line)
    return "\n".join(lines)


def without_code(text):
    """The text outside of fences, with what stands between `backticks` left out."""
    return CODE.sub("", outside_fences(text))


def anchors(text):
    """The anchors that GitHub gives the headings of a document."""
    found, fenced = set(), False
    for line in text.split("\n"):
        if FENCE.match(line):
            fenced = not fenced
        match = None if fenced else re.match(r"^#{1,6} +(.*?)(?: +#+)?$", line)
        if not match:
            continue
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match.group(1))
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        name, number = slug, 0
        while name in found:
            number += 1
            name = "%s-%d" % (slug, number)
        found.add(name)
    return found


def is_plain(path):
    return path == "README.md" or (fnmatch.fnmatch(path, "docs/*.md") and path not in OTHER_PAGES)


def count_words(text):
    """What has a letter or a digit between blanks: a table's bars are no words."""
    return sum(1 for word in text.split() if any(map(str.isalnum, word)))


def passages(text):
    """Yields (line number, text) of each paragraph, heading, list item and table cell."""
    number, first, lines = 0, 0, []
    for number, line in enumerate(CODE.sub("X", outside_fences(text)).split("\n") + [""], 1):
        line = LINK_TEXT.sub(r"\1", line).strip()
        if lines and (not line or line.startswith("|") or MARKUP.match(line)):
            yield first, " ".join(lines)
            lines = []
        if line.startswith("|"):
            yield from ((number, cell.strip()) for cell in line.strip("|").split("|"))
        elif line:
            first = number if not lines else first
            lines.append(MARKUP.sub("", line))


class Tree:
    """`files`: {path: text, or None for what is no text}"""

    def __init__(self, files):
        self.files = files
        self.folders = {""}
        for path in files:
            while "/" in path:
                path = path.rsplit("/", 1)[0]
                self.folders.add(path)
        self.anchors = {path: anchors(text) for path, text in files.items()
                        if path.endswith(".md") and text is not None}
        self.names = {os.path.dirname(path): set(re.findall(r'"([^"\n]+)"', text or ""))
                      for path, text in files.items() if os.path.basename(path) == "BUILD.bazel"}
        self.variables = {name for path, text in files.items() if not path.endswith(".md")
                          for name in VARIABLE.findall(text or "")}

    def exists(self, path):
        path = path.rstrip("/")
        return path in self.files or path in self.folders

    def names_something(self, path):
        """A file or folder, one without its ending (`bench/callbacks`), or a pattern."""
        path = path.rstrip("/.")
        return self.exists(path) or any(
            name.startswith(path + ".") or fnmatch.fnmatchcase(name, path) for name in self.files)

    def has_anchor(self, path, anchor):
        return not anchor or path not in self.anchors or anchor in self.anchors[path]

    def problem_of_link(self, document, link):
        if re.match(r"^[a-z][a-z0-9+.-]*:", link):
            return None  # elsewhere
        path, _, anchor = link.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(document), path)) if path else document
        if not self.exists(path):
            return "there is no %s" % path
        return None if self.has_anchor(path, anchor) else "%s has no heading #%s" % (path, anchor)

    def problem_of_label(self, package, target):
        if "..." in package:
            return None
        if package not in self.names:
            return "there is no package //%s" % package
        target = target or package.rsplit("/", 1)[-1]
        known = target in self.names[package] or "%s/%s" % (package, target) in self.files
        return None if known else "//%s has no target %s" % (package, target)

    def problems(self):
        """[(path, line number, what is wrong)]"""
        found = []
        for path, text in sorted(self.files.items()):
            if text is None:
                continue
            kinds = (self._links, self._names) if path.endswith(".md") else (self._citations,)
            kinds += (self._style,) if is_plain(path) else ()
            found += [(path, *problem) for kind in kinds for problem in kind(path, text)]
        for who, (is_one, most) in BUDGETS.items():
            words = sum(count_words(text) for path, text in self.files.items() if text is not None and is_one(path))
            if words > most:
                found.append(("docs", 1, "%d words for %s, at most %d" % (words, who, most)))
        return found

    def broken_links(self):
        """Those of `problems` that need no other file than documents and what they link to."""
        return [(path, *problem) for path, text in sorted(self.files.items())
                if path.endswith(".md") and text is not None for problem in self._links(path, text)]

    def _links(self, path, text):
        for number, line in enumerate(without_code(text).split("\n"), 1):
            for link in LINK.findall(line):
                yield from self._note(number, link, self.problem_of_link(path, link))

    def _names(self, _, text):
        for number, line in enumerate(text.split("\n"), 1):
            for code in CODE.findall(line):
                if TREE.match(code) and not self.names_something(code):
                    yield number, "there is no `%s`" % code
            for package, target in LABEL.findall(line):
                if "bazelw" in line or "`//" in line:
                    label = "//%s%s" % (package, ":" + target if target else "")
                    yield from self._note(number, label, self.problem_of_label(package, target))
            for name in VARIABLE.findall(line):
                if name not in self.variables:
                    yield number, "nothing knows %s" % name

    def _citations(self, _, text):
        for number, line in enumerate(text.split("\n"), 1):
            for cited in CITED.findall(line):
                page, _, anchor = cited.partition("#")
                if page not in self.files:
                    yield number, "there is no %s" % page
                elif not self.has_anchor(page, anchor):
                    yield number, "%s has no heading #%s" % (page, anchor)

    @staticmethod
    def _style(_, text):
        for number, passage in passages(text):
            for sentence in SENTENCE_END.split(passage):
                words = count_words(sentence)
                if words > MOST_WORDS:
                    yield number, "%d words in a sentence, at most %d: %s ..." % (words, MOST_WORDS, sentence[:60])
            for word, better in WORSE_WORDS.items():
                for found in re.findall(word, passage, re.IGNORECASE):
                    yield number, "\"%s\": write \"%s\"" % (found.strip(", "), better)

    @staticmethod
    def _note(number, what, problem):
        if problem:
            yield number, "%s: %s" % (what, problem)


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (UnicodeDecodeError, IsADirectoryError):
        return None


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    paths = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True).stdout.split("\0")
    tree = Tree({path: read(path) for path in paths if path and os.path.exists(path)})
    wrong = ["%s:%d: %s" % problem for problem in tree.problems()]
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
