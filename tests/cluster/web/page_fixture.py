"""What the tests of the page share: a browser for each test, and a cluster for each class. In every test the console is silent, and no
other host is asked."""
import pathlib
import sys
import unittest
import urllib.parse

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1])]
from browser import Browser, find_browser  # noqa: E402
from cluster import Cluster  # noqa: E402

WIDE, NARROW = (1400, 1000), (360, 780)
PROMPT = "One day, Lily and Tom went to the park. They saw"


class Page(unittest.TestCase):
    """A browser for each test. A class that serves has a cluster."""
    cluster, size = None, WIDE

    @classmethod
    def serve(cls, **arguments):
        cls.cluster = Cluster(**arguments)
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__, None)

    def setUp(self):
        self.browser = self.enterContext(Browser(*self.size)) if hasattr(self, "enterContext") else self.entered(Browser(*self.size))
        self.address = f"http://127.0.0.1:{self.cluster.port}/" if self.cluster else ""
        self.expected_messages = ("willReadFrequently",)  # of painted(). Parts of messages of the console that the test provokes

    def entered(self, manager):  # enterContext of Python 3.11
        value = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return value

    def tearDown(self):
        messages = [m for m in self.browser.console() if not any(part in m for part in self.expected_messages)]
        self.assertEqual(messages, [])  # errors, and violations of the policy
        hosts = {urllib.parse.urlsplit(url).netloc for url in self.browser.requests() if not url.startswith(("chrome", "about:", "data:"))}
        self.assertLessEqual(hosts, {urllib.parse.urlsplit(self.address).netloc})

    def visit(self, ready="document.querySelector('.example')", replays=False):
        self.browser.open(self.address)
        self.browser.run("document.querySelector('#replay-auto').checked = arguments[0]", replays)
        if ready:
            self.browser.wait_for(ready, "the page has asked for the model")

    def settings(self, **fields):
        self.browser.run("document.querySelector('#settings').open = true")
        for name, value in fields.items():
            self.browser.choose(f"#{name}", value)

    def ask(self, text):
        self.browser.choose("#prompt", text)
        self.browser.click("#send")

    def wait_answer(self, seconds=60):
        self.browser.wait_for("document.querySelector('.turn') && !document.querySelector('.turn.running')", "the answer is complete", seconds)
        self.assertEqual(self.browser.text(".turn:last-child .end"), "")

    def answer(self):
        return self.browser.texts(".turn:last-child .answer > .text")[-1]

    def cards(self):
        return self.browser.texts("#beams-list .choice > .text")

    def fits(self):
        width, inner = self.browser.run("return [document.documentElement.scrollWidth, innerWidth]")
        self.assertLessEqual(width, inner)


def run_tests(name):
    if not find_browser():
        sys.exit(f"{name}: chromium or chromedriver is not installed; deploy/setup.sh --tests installs them")
    unittest.main(verbosity=2)
