"""The check of documents finds what is wrong, and finds nothing wrong in ours."""

import os
import unittest

from tests import running
from tools import check_documents
from tools.check_documents import Tree, anchors

PAGE = """# The page

## What it costs: a `callback`, 1 µs
## Same
## Same
```
# no heading
[no link](nowhere.md)
```
"""
TREE = {
    "manual/page.md": PAGE,
    "manual/images/a.png": None,
    "bench/BUILD.bazel": 'cc_binary(name = "callbacks")',
    "bench/callbacks.cc": 'getenv("NCCL_PULSE_TIMING")',
}


def problems(**changes):
    files = dict(TREE, **{path.replace("__", "/").replace("_md", ".md"): text for path, text in changes.items()})
    return ["%s:%d: %s" % problem for problem in Tree(files).problems()]


class CheckTest(unittest.TestCase):

    def test_headings_have_the_anchors_that_github_gives_them(self):
        self.assertEqual({"the-page", "what-it-costs-a-callback-1-µs", "same", "same-1"}, anchors(PAGE))

    def test_what_is_right_is_not_reported(self):
        self.assertEqual([], problems(README_md="""
[page](manual/page.md#same-1) ![picture](manual/images/a.png) [here](#below) [web](https://example.com/x.md)
`[code](nowhere.md)` `bench/callbacks` `bench/*.cc` `bench/` `NCCL_PULSE_TIMING`
    ./bazelw run //bench:callbacks && ./bazelw test //...
# Below
"""))

    def test_a_missing_file_a_missing_heading(self):
        self.assertEqual(["README.md:2: manual/pag.md: there is no manual/pag.md",
                          "README.md:3: manual/page.md#sam: manual/page.md has no heading #sam",
                          "README.md:4: #nowhere: README.md has no heading #nowhere"],
                         problems(README_md="\n[a](manual/pag.md)\n[b](manual/page.md#sam) [c](manual/page.md#same)\n"
                                            "[d](#nowhere)"))

    def test_links_are_relative_to_their_document(self):
        self.assertEqual(["manual/sub/other.md:1: page.md: there is no manual/sub/page.md"],
                         problems(manual__sub__other_md="[a](page.md) [b](../page.md) ![c](../images/a.png)"))

    def test_a_name_that_nothing_has(self):
        self.assertEqual(["README.md:1: there is no `bench/callback.h`"],
                         problems(README_md="`bench/callback.h` `bench/callbacks.cc`"))
        self.assertEqual(["README.md:1: //bench:scrape: //bench has no target scrape",
                          "README.md:2: //bensh:x: there is no package //bensh"],
                         problems(README_md="./bazelw run //bench:scrape\n`//bensh:x`"))
        self.assertEqual(["README.md:1: nothing knows NCCL_PULSE_TIMINGS"],
                         problems(README_md="NCCL_PULSE_TIMINGS=off"))

    def test_a_comment_that_cites(self):
        # Put together: the check reads this file, too.
        folder = "docs"
        files = {folder + "/page.md": PAGE,
                 "a.h": "// {0}/pages.md, {0}/page.md#same\n// {0}/page.md#other".format(folder)}
        self.assertEqual([("a.h", 1, "there is no %s/pages.md" % folder),
                          ("a.h", 2, "%s/page.md has no heading #other" % folder)], Tree(files).problems())


def style(text):
    return ["%s:%d: %s" % problem for problem in Tree({"README.md": text}).problems()]


class StyleTest(unittest.TestCase):

    def test_a_sentence_of_more_than_25_words(self):
        words = " ".join(["word"] * 25)
        self.assertEqual([], style("# Title\n\nOne %s.\nTwo %s.\n" % (words[5:], words[5:])))
        self.assertEqual(["README.md:3: 26 words in a sentence, at most 25: One %s ..." % words[:56]],
                         style("# Title\n\nOne\n%s.\n" % words))
        self.assertEqual(["README.md:1: 26 words in a sentence, at most 25: One %s ..." % words[:56]],
                         style("| a | One %s |" % words))

    def test_paragraphs_items_cells_and_code_are_no_sentence_together(self):
        words = " ".join(["word"] * 20)
        self.assertEqual([], style("{0}\n\n{0}\n- {0}\n- {0}\n1. {0}\n\n| {0} | {0} |\n|---|---|\n".format(words)))
        self.assertEqual([], style("```\n%s %s\n```\n`%s %s`" % (words, words, words, words)))

    def test_words_that_read_as_translated(self):
        self.assertEqual(['README.md:1: "too": write "also"', 'README.md:2: "Nobody": write "a noun"'],
                         style("It counts, too.\n- Nobody holds `goes on, too`."))
        self.assertEqual(['README.md:1: "held up": write "block"'], style("[A job is held up](https://x.org/goes-on)"))
        self.assertEqual([], style("It is empty, too large, or cut off.\n```\nit goes on, too\n```"))

    def test_all_pages_together_have_a_budget(self):
        self.assertEqual([], problems(docs__timing_md="| word |\n\n" * 32000, CONTRIBUTING_md="word\n\n" * 7000))
        self.assertEqual(["docs:1: 32001 words for users, at most 32000"],
                         problems(docs__timing_md="word\n\n" * 32000, README_md="word"))
        self.assertEqual(["docs:1: 7001 words for contributors, at most 7000"], problems(docs__benchmarks_md="word\n\n" * 7001))

    def test_other_pages_are_not_held_to_it(self):
        self.assertEqual([], problems(CONTRIBUTING_md="It counts, too."))


class OurDocumentsTest(unittest.TestCase):

    def test_every_link_leads_somewhere(self):
        root = os.path.dirname(os.path.dirname(os.path.abspath(check_documents.__file__)))
        files = {}
        for folder, _, names in os.walk(root, followlinks=True):
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), root)
                if not path.startswith(("bazel-", "external/")):
                    files[path] = check_documents.read(os.path.join(folder, name))
        documents = [path for path in files if path.endswith(".md")]
        self.assertIn("README.md", documents)
        self.assertIn(os.path.join("docs", "runbook.md"), documents)
        self.assertIn("tests/gpu/README.md", documents)
        self.assertEqual([], ["%s:%d: %s" % problem for problem in Tree(files).broken_links()])
        links = sum(len(check_documents.LINK.findall(check_documents.without_code(files[path]))) for path in documents)
        self.assertGreater(links, 100)


if __name__ == "__main__":
    running.main()
