#!/usr/bin/env python3
"""The page at / in headless Chromium, against other servers: a chat model, no draft node, keys, a server that is lost.

  page_servers_test.py [CLASS.test_NAME]      COPPICE_SCREENSHOTS=FOLDER keeps pictures of the page
"""
import json
import pathlib
import signal
import sys
import tempfile

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1])]
from cluster import Cluster, send_signal  # noqa: E402
from page_fixture import PROMPT, Page, run_tests  # noqa: E402

class Conversation(Page):
    """The small pair with a chat template."""

    @classmethod
    def setUpClass(cls):
        cls.serve(coordinator_flags=("--chat_template=chatml",))

    def test_two_turns_a_system_prompt_and_another_beam(self):
        self.visit()
        self.assertEqual(self.browser.text("#prompt-label"), "Your message")
        self.settings(way="beam_search", beams=3, max_tokens=10, system="You tell stories.")
        self.ask("Tell me of a dog.")
        self.wait_answer()
        self.assertEqual(self.browser.run("return document.querySelector('#prompt').value"), "")
        before = self.cluster.api.complete(dict(messages=[{"role": "system", "content": "You tell stories."}, {"role": "user", "content": "Tell me of a dog."}],
                                                use_beam_search=True, n=3, max_tokens=10), "/v1/chat/completions")
        texts = [choice["message"]["content"] for choice in before["choices"]]
        self.assertEqual(self.cards(), [text.removeprefix(" ") for text in texts])
        self.browser.click("#beams-list .choice:nth-child(2) button")
        self.browser.wait_for("document.querySelector('.choice.picked h3').textContent.startsWith('Answer 2')")
        self.assertEqual(self.answer(), texts[1].removeprefix(" "))
        self.ask("And then?")
        self.wait_answer()
        messages = [{"role": "system", "content": "You tell stories."}, {"role": "user", "content": "Tell me of a dog."},
                    {"role": "assistant", "content": texts[1]}, {"role": "user", "content": "And then?"}]
        expected = self.cluster.api.complete(dict(messages=messages, use_beam_search=True, n=3, max_tokens=10), "/v1/chat/completions")
        self.assertEqual(self.cards(), [c["message"]["content"].removeprefix(" ") for c in expected["choices"]])
        self.browser.screenshot("conversation-wide")
        self.browser.click("#clear")
        self.assertEqual(self.browser.texts(".turn"), [])


class NoDraft(Page):
    @classmethod
    def setUpClass(cls):
        cls.serve(drafts=0, worker_flags=("--suffix_drafts=false",))

    def test_the_forest_is_a_line_and_says_so(self):
        self.visit()
        self.settings(way="greedy", max_tokens=16)
        self.ask(PROMPT)
        self.wait_answer()
        self.assertIn("the forest is a line", self.browser.text("#forest-note"))
        self.browser.run("document.querySelector('#forest-table').open = true")
        self.browser.choose("#replay-round", 5)
        self.assertEqual(self.browser.texts("#forest-rows td:nth-child(4)"), ["the large model's own"])
        self.browser.screenshot("no-draft")

    def test_a_race_says_that_nothing_was_drafted(self):
        self.visit()
        self.settings(way="beam_search", beams=2, max_tokens=8)
        self.browser.choose("#prompt", PROMPT)
        self.browser.click("#race-run")
        self.browser.wait_for("document.querySelector('#race-verdict').textContent", seconds=60)
        self.assertIn("drafted nothing", self.browser.text("#race-verdict"))


class Keys(Page):
    USER, ADMIN = "user-key-4f8a0e17c2", "admin-key-91b37de5aa"

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        path = pathlib.Path(folder.name)
        (path / "users").write_text(f"{cls.USER} alice\n")
        (path / "admins").write_text(f"{cls.ADMIN} root\n")
        cls.cluster = Cluster(coordinator_flags=(f"--api_keys_file={path}/users", f"--admin_keys_file={path}/admins"))
        plain = cls.cluster.api.get
        cls.cluster.api.cluster = lambda: json.loads(plain("/cluster", {"Authorization": f"Bearer {cls.ADMIN}"})[1])
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__, None)

    def setUp(self):
        super().setUp()
        self.expected_messages += ("401 (Unauthorized)", "403 (Forbidden)")

    def give(self, key):
        self.browser.run("document.querySelector('#key').focus()")
        self.browser.type(key)
        self.browser.press("Enter")

    def test_the_page_asks_for_a_key_and_keeps_it_in_memory_only(self):
        self.visit(ready="!document.querySelector('#key-form').hidden")
        self.assertIn("Ask whoever runs it", self.browser.text("#key-why"))
        self.browser.screenshot("key-asked")
        self.give("not-a-known-key-at-all")
        self.browser.wait_for("document.querySelector('#key-why').textContent.includes('not known')")
        self.give(self.USER)
        self.browser.wait_for("document.querySelector('#key-form').hidden && document.querySelector('.example')")
        self.browser.wait_for("document.querySelector('#cluster-note').textContent.includes('admin')")
        self.settings(max_tokens=8)
        self.ask(PROMPT)
        self.wait_answer()
        self.browser.click("#cluster-body button")
        self.give(self.ADMIN)
        self.browser.wait_for("document.querySelectorAll('#cluster-body tbody tr').length === 2")
        kept = self.browser.run("return [localStorage.length, sessionStorage.length, document.cookie, document.querySelector('#key').value, location.href]")
        self.assertEqual(kept, [0, 0, "", "", self.address])
        self.browser.open(self.address)
        self.browser.wait_for("!document.querySelector('#key-form').hidden", "the key is forgotten")


class Lost(Page):
    """The coordinator dies in the middle of an answer, and another one takes its place."""

    @classmethod
    def setUpClass(cls):
        cls.serve(worker_flags=("--threads=1",))

    def test_a_broken_answer_is_said_and_not_sent_again(self):
        self.visit()
        self.expected_messages += ("net::ERR", "Failed to load resource")
        self.settings(way="multinomial", beams=64, max_tokens=400, temperature="2")
        self.ask(PROMPT)
        self.browser.wait_for("document.querySelector('.answer > .text').textContent.length > 0")
        for pid, _ in self.cluster.process("replica-0").left():
            send_signal(pid, signal.SIGSTOP)  # no more text comes
        send_signal(self.cluster.process("coordinator").process.pid, signal.SIGKILL)
        self.browser.wait_for("!document.querySelector('.turn.running')")
        self.assertIn("broke off", self.browser.text(".answer .end"))
        self.assertGreater(len(self.answer()), 0)
        self.browser.wait_for("!document.querySelector('#banner').hidden")
        self.assertIn("does not answer", self.browser.text("#banner"))
        self.browser.screenshot("lost-wide")
        self.fits()


if __name__ == "__main__":
    run_tests("page_servers_test")
