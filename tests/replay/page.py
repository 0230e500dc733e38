"""Who reads a /metrics page all the time."""

import threading

from tests.gpu.endpoint import Page
from tests.kit import get


class Scraper(threading.Thread):
    """Reads an endpoint all the time. What it answers may be nothing, never something wrong: a series that only grows must
    not vanish, step back or stand there twice."""

    def __init__(self, port, pause_s=0.01):
        super().__init__(daemon=True)
        self.port, self.pause_s = port, pause_s
        self.pages, self.last, self.problems = 0, None, []
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
                page = Page(answer[1])
            except ValueError as error:
                self.problems.append(str(error))
                return None
            self.pages += 1
            if self.last:
                self.problems += ["%s: %s, then %s" % fallen for fallen in page.fallen(self.last) if self.keeps(fallen[0])]
            self.last = page
            return page.samples

    def run(self):
        while not self.stopping.wait(self.pause_s):
            self.scrape()

    def stop(self):
        self.stopping.set()
        self.join()
