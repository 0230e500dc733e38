"""The page in a browser, on answers that no job gives at will. The page itself is a real agent's."""

import json
import time

from tests import running
from tests.node import cluster
from tests.page import made_up
from tests.page.contrast import COLORS, CONTRASTS, contrast, luminance
from tests.page.made_up import communicator, hang, operation, page, rank, straggler
from tests.page.page_case import PageCase

SECTION = "details.communicator"


def filter_by(shown, words):
    shown.evaluate("document.getElementById('filter').value = %s; document.getElementById('filter').dispatchEvent("
                   "new Event('input'))" % json.dumps(words))


class PageTest(PageCase):

    def test_size_and_policy(self):
        self.assertLess(len(self.html), 100000)
        policy = self.headers["Content-Security-Policy"]
        self.assertTrue(policy.startswith("default-src 'none'; script-src 'sha256-"), policy)
        self.assertNotIn("unsafe", policy)
        for foreign in (b"http://", b"https://"):
            self.assertEqual(self.html.replace(b"http://www.w3.org/2000/svg", b"").count(foreign), 0)

    def test_nobody_here(self):
        shown = self.look(page(health=made_up.health("unused", (), "No communicator is in use.")))
        self.assertEqual(shown.text("#verdict"), "No communicator is in use.")
        self.assertEqual(shown.text("#host"), "NCCL Pulse")
        self.assert_clean(shown)

    def test_on_a_phone(self):
        shown = self.look(page(communicator()), width=390, height=844)
        self.assertEqual(shown.evaluate(
            "[...document.querySelectorAll('#counts, .tools, .tools *')]"
            ".filter((each) => each.getBoundingClientRect().right > innerWidth).map((each) => each.outerHTML)"), [])
        # State and For are seen without scrolling sideways, below a heading of one line.
        head = "document.querySelector('.body table').tHead"
        self.assertLess(shown.wait(head + ".rows[0].cells[4].getBoundingClientRect().right"), 380)
        self.assertLess(shown.evaluate(head + ".getBoundingClientRect().height"), 40)
        self.picture(shown, "phone")
        self.assert_clean(shown)

    def test_processes_without_the_plugin(self):
        processes = [{"pid": 1018 + i, "user": 7, "global_rank": str(i), "gpus": [i], "nccl": "2.28.9",
                      "since": made_up.NOW - 600} for i in range(3)]
        processes[2]["stopped"] = "stopped by a signal (state T)"
        processes.append({"pid": 1021, "global_rank": "<img src=x>", "gpus": None, "nccl": None, "since": "x"})
        for width, height in ((1280, 720), (390, 844)):
            shown = self.look(page(communicator(), without_plugin=processes), width=width, height=height)
            rows = shown.evaluate("[...document.querySelectorAll('#without tbody tr')]"
                                  ".map((row) => [...row.cells].map((cell) => cell.innerText))")
            self.assertEqual(rows[0], ["1018", "0", "0", "2.28.9", "08:43:20 UTC (10 min 0 s)", "–"])
            self.assertEqual(rows[2][5], "stopped by a signal (state T)")
            self.assertEqual(rows[3], ["1021", "<img src=x>", "–", "–", "–", "–"])
            self.assertTrue(shown.evaluate("document.documentElement.scrollWidth <= innerWidth"))
            self.picture(shown, "without-the-plugin-%d" % width)
            self.assert_clean(shown)
        shown = self.look(page(communicator()))
        self.assertIsNone(shown.evaluate("document.querySelector('#without').offsetParent"))

    def test_rates_ages_and_columns(self):
        """By the endpoint's clock, which is years behind the browser's."""
        def answer(after, calls):
            members = [rank(i, calls=calls, straggler_seconds=10.0 * after) for i in range(2)]
            members[0].update(state="in_flight", state_word="in flight", in_flight_since=made_up.NOW - 7,
                              state_since=made_up.NOW - 7)
            return page(communicator(ranks=members, operations=[operation(calls=2 * calls)]), time=made_up.NOW + after)
        endpoint = self.serve(answer(0, 100))
        shown = self.open(endpoint)
        cells = ("[...document.querySelectorAll('.body table')[%d].rows[%d].cells]" ".map((cell) => cell.innerText)")
        shown.wait("document.querySelectorAll('.body table').length === 3")
        self.assertEqual(shown.evaluate(cells % (0, 1)),
                         ["0", "24000", "0", "in flight", "7 s", "AllReduce ≤1MiB #100", "100",
                          "–", "0", "–", "–", "300 µs", "450 µs", "9 GB/s"])
        endpoint.says = answer(5, 600)
        shown.wait(cells % (0, 1) + "[6] === '600'")
        row = shown.evaluate(cells % (0, 1))
        self.assertEqual((row[4], row[7], row[9]), ("12 s", "100", "100"))
        self.assertEqual(shown.evaluate(cells % (0, 2))[10], "–", "nobody is named, so nobody is blamed")
        row = shown.evaluate(cells % (1, 1))
        self.assertEqual(row[:11], ["AllReduce", "≤1MiB", "100 durations (stream)", "1200", "200",
                                    "210 MB/s", "300 µs", "360 µs", "450 µs", "600 µs", "9 GB/s"])
        self.assertIn("1 rank in flight, 12 s", shown.text(SECTION + " summary"))
        self.assertIn("200 calls/s", shown.text(SECTION + " summary"))
        # Other numbers began anew: no rate is better than a wrong one.
        endpoint.says = answer(10, 10)
        shown.wait(cells % (0, 1) + "[6] === '10'")
        self.assertEqual(shown.evaluate(cells % (0, 1))[7], "–")
        self.assert_clean(shown)

    def test_last_minute(self):
        def answer(after, fast, slow):
            latency = dict(made_up.latency(count=fast + slow, mean=0.001), buckets=[[0.0002348, fast], [0.01105, slow]])
            return page(communicator(operations=[operation(latencies=[latency])]), time=made_up.NOW + after)
        endpoint = self.serve(answer(0, 1000, 1))
        shown = self.open(endpoint)
        cells = ("[...document.querySelectorAll('.body table')[1].rows[1].cells]" ".map((cell) => cell.innerText)")
        shown.wait("document.querySelectorAll('.body table').length === 3")
        for i, after in enumerate((31, 62)):
            endpoint.says = answer(after, 1000, 2 + i)
            shown.wait("document.getElementById('counts').innerText.includes('%s')" %
                       time.strftime("%M:%S", time.gmtime(made_up.NOW + after)))
        self.assertEqual(shown.evaluate(cells)[6], "300 µs")
        shown.evaluate("document.getElementById('recent').click()")
        row = shown.evaluate(cells)
        # Since the second answer: one slow call.
        self.assertEqual(row[2], "1 duration (stream)")
        self.assertRegex(row[6], r"^10(\.\d)? ms$")
        self.assertEqual(row[9], "11 ms")
        self.assertEqual(shown.evaluate("document.querySelectorAll('.histogram g rect').length"), 2)
        shown.evaluate("document.getElementById('recent').click()")
        self.assertEqual(shown.evaluate(cells)[6], "300 µs")
        # Begun anew: all of it is recent.
        endpoint.says = answer(64, 5, 0)
        shown.wait(cells + "[2].startsWith('5 ')")
        shown.evaluate("document.getElementById('recent').click()")
        self.assertEqual(shown.evaluate(cells)[2], "5 durations (stream)")
        self.assert_clean(shown)

    def test_the_button_of_a_problem_is_on_its_first_line(self):
        hung = communicator("00000000000000bb", "a-long-name-of-a-communicator", hang=hang())
        for width in 1280, 390:
            shown = self.look(page(hung), width=width)
            badge, button = (shown.evaluate("document.querySelector('.lead %s').getBoundingClientRect().toJSON()" % part)
                             for part in (".badge", "button"))
            self.assertLess(button["top"], badge["bottom"])
            self.assertLess(badge["right"], button["left"])
            self.assertLess(button["right"], width)
            self.assert_clean(shown)

    def test_trouble_stands_first(self):
        calm = [communicator("%016x" % i, "tp-%d" % i) for i in range(6)]
        slow = communicator("00000000000000aa", "pp", straggler=straggler())
        hung = communicator("00000000000000bb", "dp", hang=hang())
        shown = self.look(page(*calm, slow, hung), color_scheme="dark")
        self.assertEqual(shown.evaluate("[...document.querySelectorAll('h3 .name')].slice(0, 3)"
                                        ".map((each) => each.textContent)"), ["dp", "pp", "tp-0"])
        self.assertEqual(shown.evaluate("document.querySelectorAll('%s[open]').length" % SECTION), 1)
        self.assertEqual(shown.evaluate("[...document.querySelectorAll('#verdict li')]"
                                        ".map((each) => each.querySelector('.badge').innerText)"),
                         ["■ HANG", "▲ SLOW"])
        self.assertIn("Rank 3 (pid 24003, GPU 3) has not called AllReduce.", shown.text("#verdict"))
        # The name that alerts have is in the tooltip only.
        self.assertNotIn("rank_not_called", shown.text("#verdict"))
        self.assertEqual(shown.evaluate("document.querySelector('#verdict li .badge').title"),
                         "rank_not_called in alerts and JSON: a rank has not made a call that the others have made")
        self.assertIn("Next: py-spy dump --pid 24003 on node-17.", shown.text("#verdict"))
        self.assertIn("Next: nvidia-smi -q -d PERFORMANCE on node-17.", shown.text("#verdict"))
        self.assertIn("waits for rank 2", shown.text("#verdict"))
        self.assertEqual(shown.evaluate("document.title"), "HANG node-17 - NCCL Pulse")
        self.assertEqual(self.look(page(*calm, slow)).evaluate("document.title"), "SLOW node-17 - NCCL Pulse")
        self.assertEqual(shown.evaluate("[...document.querySelectorAll('tr.suspect')].map((row) => "
                                        "row.cells[0].innerText)"),
                         ["▶▶ suspect 3"])
        shown.evaluate("document.querySelector('#verdict li:last-child button').click()")
        self.assertTrue(shown.wait("!!document.querySelector('tr.late')"))
        # Who holds up others is who the verdict names.
        self.assertEqual(shown.evaluate("[...document.querySelectorAll('tr.late, tr.suspect')].map((row) => "
                                        "row.cells[0].innerText + ': ' + row.cells[10].innerText)"), ["▶▶ suspect 3: –", "▶ late 2: 20 %"])
        self.assertEqual(shown.evaluate("document.activeElement.tagName"), "SUMMARY")
        self.picture(shown, "trouble-dark")
        self.assert_clean(shown)

    def test_something_unseen_beside_a_straggler(self):
        """As diagnose: the state is incomplete, and the late rank is named."""
        unseen = made_up.health("incomplete", ["1 rank of communicator 00000000000000aa is not seen here."],
                                "No hang is suspected, but 1 rank is not seen.")
        shown = self.look(page(communicator("00000000000000aa", "pp", straggler=straggler()), health=unseen))
        self.assertEqual(shown.evaluate("document.title"), "INCOMPLETE node-17 - NCCL Pulse")
        for words in ("No hang is suspected, but 1 rank is not seen.", "Rank 2 arrives last at 93 % of the calls."):
            self.assertIn(words, shown.text("#verdict"))
            self.assertIn(words, shown.text("#announcement"))
        self.assert_clean(shown)

    def test_cards_keep_their_order_and_trouble_has_its_time(self):
        def answer(*hung):
            comms = [communicator("%016x" % i, "tp-%d" % i, hang=hang() if i in hung else None) for i in range(3)]
            return page(*comms, *([communicator("0000", "new")] if 2 in hung else []))
        endpoint = self.serve(answer(1))
        shown = self.open(endpoint)
        names = "[...document.querySelectorAll('h3 .name')].map((each) => each.textContent).join()"
        self.assertEqual(shown.wait(names), "tp-1,tp-0,tp-2")
        begun = time.gmtime(made_up.NOW - 14)
        self.assertIn("has made no progress since %s (14 s)." % time.strftime("%H:%M:%S UTC", begun), shown.text("#verdict"))
        endpoint.says = answer(2)
        self.assertEqual(shown.wait("%s.includes('new') && %s" % (names, names)), "tp-1,tp-0,tp-2,new")
        # The page also says the day if it is another one.
        endpoint.says = page(communicator(hang=hang(since=made_up.NOW - 90000)))
        shown.wait("document.querySelector('#verdict').innerText.includes('since %s (25 h 0 min)')" %
                   time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(made_up.NOW - 90000)))
        self.assert_clean(shown)

    def test_tables_fit_a_small_screen(self):
        comms = [communicator("%016x" % i, hang=hang() if i == 0 else None, straggler=straggler() if i == 1 else None,
                              ranks=[rank(j, calls=12345, op="ReduceScatter") for j in range(4)],
                              operations=[operation("ReduceScatter", "le_16MiB", calls=123456)]) for i in range(3)]
        shown = self.look(page(*comms), width=1280, height=1000)
        shown.wait("document.querySelectorAll('.body table').length > 8")
        self.assertEqual(shown.evaluate("[...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > "
                                        "each.clientWidth).map((each) => each.innerText)"), [])

    def test_a_phone_shows_what_the_suspect_has_not_called(self):
        shown = self.look(page(communicator(hang=hang())), width=400, height=844)
        # The mark is in the cell of its rank, its word only for screen readers.
        self.assertEqual(shown.evaluate("document.querySelector('tr.suspect').cells[0].textContent"), "▶▶ suspect 3")
        self.assertEqual(shown.evaluate("document.querySelector('tr.suspect .word').offsetWidth"), 1)
        odd = "document.querySelector('.calls td.odd')"
        shown.wait("!!%s && %s.innerText.includes('not called')" % (odd, odd))
        self.assertLessEqual(shown.evaluate(odd + ".getBoundingClientRect().right"), 400)
        # One numbering: that of the verdict.
        self.assertEqual(shown.evaluate("document.querySelector('.calls thead tr').cells[0].innerText"), "call")
        # What each rank called last is seen without scrolling, and no column is empty.
        last = "document.querySelector('tr.suspect').cells[5].getBoundingClientRect().right"
        self.assertLessEqual(shown.evaluate(last), 400)
        self.assertEqual(shown.evaluate("[2, 10].map((i) => document.querySelector('tr.suspect').cells[i].offsetWidth > 0)"),
                         [True, False])
        self.picture(shown, "calls-phone")

    def test_a_verdict_of_a_newer_endpoint_keeps_its_name(self):
        shown = self.look(page(communicator(hang=hang(verdict="all_asleep", meaning=None, first_step=None))))
        self.assertIn("all_asleep", shown.evaluate("document.querySelector('#verdict li .badge').title"))
        self.assertNotIn("Next:", shown.text("#verdict"))

    def test_what_is_not_known_is_said(self):
        members = [rank(i) for i in range(4)]
        for each, word, why in ((members[0], "unknown", "NCCL does not report it"), (members[1], "in graphs", "graphs"),
                                (members[2], "unknown", "it stands")):
            each.update(state="unknown", state_word=word, state_since=None, unknown_because=why,
                        launches=dict(each["launches"], in_flight=None))
        members[0]["state_since"] = made_up.NOW - 9
        members[3].update(state="in_flight", state_word="queued", in_flight_since=made_up.NOW - 20,
                          state_since=made_up.NOW - 20)
        blind = communicator("00000000000000aa", "blind", [dict(members[0])])
        notes = ["1 process ended without finalizing: pid 7.",
                 "Whether work is in flight is not known for 4 of 5 ranks: <b>why</b>."]
        shown = self.look(page(communicator(ranks=members), blind, health=made_up.health(
            "incomplete", notes, "No hang and no straggler is suspected on 1 of 2.")))
        self.assertEqual(shown.evaluate("document.querySelector('#verdict').innerText.split(/\\n+/)"),
                         notes + ["No hang and no straggler is suspected on 1 of 2."])
        self.assertNotIn("✓", shown.text("#verdict"))
        self.assertIsNone(shown.evaluate("document.querySelector('#verdict .none').getAttribute('data-level')"))
        self.assertIn(notes[0], shown.text("#announcement"))
        cells = shown.evaluate("[...document.querySelector('%s tbody').rows].map((row) => "
                               "[row.cells[3].innerText, row.cells[4].innerText, "
                               "row.cells[3].title])" % SECTION)
        self.assertEqual([cell[:2] for cell in cells],
                         [["unknown", "9 s"], ["in graphs", "–"], ["unknown", "–"],
                          ["queued", "20 s"]])
        self.assertEqual(cells[0][2], "Whether it is idle is not known: NCCL does not report it.")
        self.assertEqual(shown.evaluate("[...document.querySelectorAll('.flight')].map((each) => "
                                        "each.innerText)"), ["1 rank in flight, 20 s", "1 unknown"])
        self.assertEqual(shown.evaluate("[...document.querySelectorAll('summary .badge')].map((each) "
                                        "=> each.innerText)"), ["ok", "unknown"])
        self.picture(shown, "unknown")
        self.assert_clean(shown)

    def test_a_wait_that_is_usual_is_no_hang(self):
        shown = self.look(page(communicator(hang=hang(usual=True, longest_wait_before=540.0)),
                               health=made_up.health("waiting", summary="")))
        self.assertEqual(shown.evaluate("[...document.querySelectorAll('#verdict li')].map((each) => "
                                        "each.innerText.split('\\n')[0] + each.dataset.level)"),
                         ["▲ WAITslow"])
        self.assertEqual(shown.evaluate("document.title"), "WAIT node-17 - NCCL Pulse")
        self.assertIn("WAIT", shown.text(SECTION + " summary"))
        self.assertNotIn("HANG", shown.text("body"))
        self.assert_clean(shown)

    def test_an_endpoint_that_does_not_say_what_it_sees(self):
        answer = page(communicator())
        del answer["health"]
        shown = self.look(answer)
        self.assertIn("does not report how much it sees", shown.text("#verdict"))
        self.assertNotIn("✓", shown.text("#verdict"))
        self.assert_clean(shown)

    def test_pids_of_containers(self):
        """Each counts from 1, and the number 1 of the host is its init."""
        def answer(**more):
            members = [rank(i) for i in range(4)]
            for i, member in enumerate(members):
                member["process"].update({"pid": 1, "pid_namespace": 4026532000 + i}, **more)
            return page(communicator(ranks=members, hang=hang()))
        cells = "[...document.querySelectorAll('.body table')[0].rows].slice(1).map((row) => row.cells[1].innerText)"
        shown = self.look(answer(seen_pid=None, host_pid=None))
        self.assertIn("1 communicator, 4 processes", shown.text("#counts"))
        self.assertIn("1@4026532003", shown.evaluate(cells))
        shown = self.look(answer(seen_pid=4711, host_pid=4711))
        self.assertIn("4711", shown.evaluate(cells))
        self.assert_clean(shown)

    def test_hostile_answers(self):
        evil = "<script>window.owned = 1</script><img src=x onerror='window.owned = 1'>"
        turned = "\u202eevil\u202d\u2066" + "\x1b[2J" + "x" * 100000
        members = [rank(0, op=evil, hostname=evil), rank(0, op=turned), rank(2)]
        members[1]["process"]["pid"] = members[0]["process"]["pid"]
        members[2] = {"rank": {"a": 1}, "active": True, "state": evil, "process": [], "gpu": "x",
                      "operations": 7, "latencies": [None], "last_call": True, "launches": None}
        members[0]["latencies"] = [dict(made_up.latency(), op=evil, size="le_1MiB", p50="x")]
        broken = operation(evil, turned)
        broken["latencies"][0]["buckets"] = [[None, 3], [0.001, -4], ["x", 9], 5, [1e-300, 1e300]]
        comms = [communicator(evil, turned, members, operations=[broken, operation(turned), {}],
                              hang=hang(text=evil + turned, verdict=evil),
                              straggler=straggler(evil, evil)),
                 communicator("00ab", evil, ranks=1, nranks=-5, nnodes=1e99, operations=None)]
        comms.append({"comm": None, "ranks": [{"active": True}]})
        shown = self.look(page(*comms))
        shown.evaluate("document.querySelectorAll('details').forEach((each) => {each.open = true})")
        shown.wait("document.querySelectorAll('.body table').length === 9")
        self.assertIn(evil, shown.text("#verdict"))
        self.assertIsNone(shown.evaluate("window.owned"))
        self.assertEqual(shown.evaluate("document.querySelectorAll('img, script').length"), 1)
        self.assertTrue(shown.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))
        for steers in "\x1b\u202e\u2066":
            self.assertNotIn(steers, shown.text("body"))
        self.picture(shown, "hostile")
        self.assert_clean(shown)

    def test_endpoint_goes_and_comes_back(self):
        endpoint = self.serve(page(communicator()))
        shown = self.open(endpoint)
        shown.wait("document.getElementById('connection').className === 'live'")
        endpoint.end()
        shown.wait("document.getElementById('connection').className === 'lost'")
        self.assertRegex(shown.text("#connection"), r"^no answer for \d+ s$")
        self.assertIn("The endpoint does not answer. The data shown is from 2025-10-", shown.text("#gone"))
        self.assertEqual(shown.evaluate("document.documentElement.className"), "stale")
        self.assertEqual(shown.text(SECTION + " .name"), "dp")
        # What was so is no all-clear.
        self.assertRegex(shown.text("#verdict"), r"^The present state is not known. At 2025-10-\d\d \d\d:\d\d:\d\d UTC: No hang")
        self.assertIsNone(shown.evaluate("document.querySelector('#verdict .none').getAttribute('data-level')"))
        self.assertEqual(shown.text(SECTION + " .badge"), "unknown")
        self.assertEqual(shown.evaluate("document.title"), "NO ANSWER node-17 - NCCL Pulse")
        since = shown.text("#connection")
        shown.wait("document.getElementById('connection').innerText !== %s" % json.dumps(since))
        self.picture(shown, "gone")
        # Others answer at its place, at first nonsense.
        endpoint = self.serve((503, "no"), port=endpoint.port)
        shown.wait("document.getElementById('gone').innerText.includes('status 503')")
        endpoint.says = (200, "hello")
        shown.wait("document.getElementById('gone').innerText.includes('is not from NCCL Pulse')")
        endpoint.says = (200, "null")
        asked = endpoint.asked
        cluster.wait_until(lambda: endpoint.asked > asked + 1, "it is asked again")
        self.assertIn("is not from NCCL Pulse", shown.text("#gone"))
        endpoint.says = page(communicator(name="again"), time=made_up.NOW - 1000)
        shown.wait("document.querySelector('%s .name').innerText === 'again'" % SECTION)
        self.assertEqual(shown.text("#connection"), "live")
        self.assertEqual(shown.evaluate("document.documentElement.className"), "")
        self.assert_clean(shown, network=("net::ERR_", "503"))

    def test_hidden_page_asks_nothing(self):
        endpoint = self.serve(page(communicator()))
        shown = self.open(endpoint)
        shown.wait("document.getElementById('connection').className === 'live'")
        shown.evaluate("""(() => {
            const original = fetch;
            window.asked = 0;
            window.fetch = (...all) => { window.asked += 1; return original(...all); };
            Object.defineProperty(document, 'hidden', {get: () => window.away});
            window.away = true;
            document.dispatchEvent(new Event('visibilitychange')); })()""")
        self.assertEqual(shown.text("#connection"), "paused")
        # Nothing to wait for: nothing is to happen in the time of two polls.
        time.sleep(0.5)
        self.assertEqual(shown.evaluate("window.asked"), 0)
        shown.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
        shown.wait("window.asked > 0 && document.getElementById('connection').className === 'live'")
        self.assert_clean(shown)

    def test_behind_a_proxy(self):
        endpoint = self.serve(page(communicator()), prefix="/nodes/17/")
        shown = self.open(endpoint)
        shown.wait("document.getElementById('connection').className === 'live'")
        self.assertEqual(set(endpoint.paths), {"/nodes/17/", "/nodes/17/api/v1/communicators"})
        self.assertEqual(shown.evaluate("[...document.links].map((each) => each.pathname)"),
                         ["/nodes/17/", "/nodes/17/metrics", "/nodes/17/api/v1/communicators",
                          "/nodes/17/healthz"])
        # With a password in the address, too, which fetch refuses.
        endpoint.url = endpoint.url.replace("127", "ann:secret@127")
        shown = self.open(endpoint)
        shown.wait("document.getElementById('connection').className === 'live'")
        self.assert_clean(shown)

    def test_keyboard(self):
        shown = self.look(page(*[communicator("%016x" % i, "tp-%d" % i) for i in range(5)]))
        focus = "(document.activeElement.id || document.activeElement.className.baseVal || " \
                "document.activeElement.className || document.activeElement.tagName)"
        order = []
        for _ in range(5):
            shown.press("Tab")
            order.append(shown.evaluate(focus))
        self.assertEqual(order, ["skip", "recent", "ended", "filter", "SUMMARY"])
        self.assertEqual(shown.evaluate("getComputedStyle(document.activeElement).outlineStyle"), "solid")
        shown.press("Enter")
        shown.wait("!!document.querySelector('%s[open] .histogram')" % SECTION)
        order = []
        while "histogram" not in order and len(order) < 9:
            shown.press("Tab")
            order.append(shown.evaluate(focus))
        self.assertEqual(order, ["scroll", "scroll", "histogram"])
        first = shown.text("#readout")
        self.assertRegex(first, r"^\S+ µs to \S+ µs: 40 of 100 \(40 %\)$")
        shown.press("ArrowRight")
        self.assertRegex(shown.text("#readout"), r": 30 of 100 \(30 %\)$")
        self.picture(shown, "keyboard")
        # An answer in between takes neither focus nor readout away.
        shown.wait("performance.getEntriesByType('resource').length > 2")
        self.assertEqual(shown.evaluate(focus), "histogram")
        self.assertRegex(shown.text("#readout"), r": 30 of 100 \(30 %\)$")
        shown.press("Escape")
        self.assertTrue(shown.evaluate("document.getElementById('readout').hidden"))
        # The same as a table.
        shown.press("Tab")
        self.assertEqual(shown.evaluate("document.activeElement.innerText"), "Histograms as numbers")
        shown.press("Enter")
        self.assertEqual(shown.wait("[...document.querySelectorAll('.buckets tbody tr')].map("
                                    "(row) => row.cells[4].innerText).join(' ')"),
                         "1 5 40 30 16 6 1 1")
        self.assert_clean(shown)

    def test_accessible(self):
        for scheme in ("light", "dark"):
            shown = self.look(page(communicator(hang=hang(), straggler=straggler())),
                              color_scheme=scheme, reduced_motion="reduce")
            shown.evaluate("document.querySelectorAll('details').forEach(" "(each) => { each.open = true })")
            shown.wait("document.querySelectorAll('.buckets tbody tr').length > 0")
            colors = shown.evaluate(COLORS)
            self.assertEqual(luminance(colors["background"]) > 0.5, scheme == "light")
            for text, background, least in CONTRASTS:
                self.assertGreaterEqual(contrast(colors[text], colors[background]), least, (scheme, text, background))
            count = "document.querySelectorAll(%s).length"
            for nothing in ("th:not([scope])", "table:not(:has(> caption))", "img:not([alt])",
                            "tbody tr:not(:has(> th[scope=row]))", "[style*=animation]",
                            "svg:not([aria-hidden]):not([role=img][aria-label])"):
                self.assertEqual(shown.evaluate(count % json.dumps(nothing)), 0, nothing)
            self.assertEqual(shown.evaluate("""[...document.querySelectorAll('input, button')]
                .filter((each) => !each.labels?.length && !each.ariaLabel).length"""), 0)
            self.assertEqual(shown.evaluate(count % "'h1'"), 1)
            self.assertEqual(shown.evaluate("document.documentElement.lang"), "en")
            self.assertEqual(shown.evaluate("document.getAnimations().length"), 0)
            ids = shown.evaluate("[...document.querySelectorAll('[id]')].map((each) => each.id)")
            self.assertEqual(len(ids), len(set(ids)))
            names = self.screen_reader_names(shown)
            self.assertIn(("heading", "node-17"), names)
            self.assertIn(("searchbox", "Filter"), names)
            self.assertIn(("table", "Ranks"), names)
            self.assertIn(("rowheader", "▶▶ suspect 3"), names)
            self.assertIn(("columnheader", "Blocks others"), names)
            self.picture(shown, "all-" + scheme)
            self.assert_clean(shown)

    def test_many_communicators(self):
        comms = [communicator("%016x" % i, "group-%d" % i) for i in range(1024)]
        comms[700]["hang"] = hang()
        endpoint = self.serve(page(*comms))
        shown = self.open(endpoint)
        shown.wait("document.querySelectorAll('%s').length === 1024" % SECTION)
        # What is closed has not been made. The last calls come when the endpoint says them.
        self.assertEqual(shown.evaluate("[...document.querySelectorAll('tbody tr')]"
                                        ".filter((each) => !each.closest('.calls')).length"), 5)
        self.assertEqual(shown.text(SECTION + " .name"), "group-700")
        self.picture(shown, "many")
        filter_by(shown, "GROUP-99")
        self.assertEqual(shown.evaluate("document.querySelectorAll('%s').length" % SECTION), 11)
        self.assertEqual(shown.text("#hidden"), "1013 communicators not shown (filter).")
        filter_by(shown, "")
        self.assert_clean(shown)

    def test_filter_and_ended(self):
        ended = communicator("00000000000000ee", "old", [rank(0, active=False, state="ended")])
        other = communicator("00000000000000bb", "pp", [rank(0, op="Send")], operations=[operation("Send")])
        shown = self.look(page(communicator(), other, ended))
        names = "[...document.querySelectorAll('h3 .name')].map((each) => each.textContent)"
        self.assertEqual(shown.evaluate(names), ["dp", "pp"])
        self.assertEqual(shown.text("#hidden"), "1 ended communicator not shown.")
        shown.evaluate("document.getElementById('ended').click()")
        self.assertEqual(shown.evaluate(names), ["dp", "pp", "old"])
        for words, expected in (("send", ["pp"]), ("24001 dp", ["dp"]), ("hang", []),
                                ("ended", ["old"]), ("", ["dp", "pp", "old"])):
            filter_by(shown, words)
            self.assertEqual(shown.evaluate(names), expected, words)
        # What the reader closes stays closed.
        shown.evaluate("document.querySelector('%s summary').click()" % SECTION)
        shown.wait("performance.getEntriesByType('resource').length > 2")
        self.assertFalse(shown.evaluate("document.querySelector('%s').open" % SECTION))
        self.assert_clean(shown)


if __name__ == "__main__":
    running.main()
