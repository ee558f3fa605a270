#!/usr/bin/env python3
"""How fast the page at / is, and what it does when the server does not answer: with a scripted server, which sends rounds at any rate and
breaks off where it is told to.

  page_speed_test.py [CLASS.test_NAME]
"""
import os
import pathlib
import sys
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1])]
from browser import Browser, find_browser  # noqa: E402
from scripted_server import ScriptedServer, made_up_rounds, model_card  # noqa: E402
from stopwatch import SLOWDOWN, wait_until  # noqa: E402

FRAME_MS = 1000 / 60
ROUNDS_PER_S = 200


def busy():
    with open("/proc/loadavg", encoding="ascii") as file:
        return float(file.read().split()[0]) > len(os.sched_getaffinity(0)) * 0.75


class Scripted(unittest.TestCase):
    def setUp(self):
        self.server = ScriptedServer().__enter__()
        self.addCleanup(self.server.__exit__)
        self.browser = Browser().__enter__()
        self.addCleanup(self.browser.__exit__)
        self.script = self.server.script
        self.open()

    def open(self):
        self.browser.open(f"http://127.0.0.1:{self.server.port}/")
        self.browser.wait_for("document.querySelector('.example')")

    def ask(self, text="Once"):
        self.browser.choose("#prompt", text)
        self.browser.click("#send")

    def wait_answer(self):
        self.browser.wait_for("document.querySelector('.turn') && !document.querySelector('.turn.running')", seconds=60)


class Speed(Scripted):
    # What the page does for each frame of a live answer: folds the round, draws it, and writes its numbers.
    DRAW = """
const [rounds] = arguments;
const { SequenceForest } = await import('/web/forest_model.js');
const { ForestView } = await import('/web/forest_view.js');
const view = new ForestView(document.querySelector('#forest-canvas'), document.querySelector('#forest-frame'), document.querySelector('#forest-tip'));
const sequence = new SequenceForest(0, 0), times = [];
for (const round of rounds) {
  const begin = performance.now();
  sequence.add(round);
  view.draw(sequence.picture(sequence.rounds.length - 1));
  view.context.getImageData(0, 0, 1, 1);  // waits until it is drawn
  times.push(performance.now() - begin);
}
return times.sort((a, b) => a - b);"""

    def test_a_round_is_drawn_within_a_frame(self):
        # The forest of the page's own settings, and larger ones, which are sampled where a frame is too short for them.
        for width, draft_width, depth, frames in ((4, 8, 4, 1), (4, 32, 8, 10), (16, 64, 8, 20)):
            rounds = made_up_rounds(100, width=width, draft_width=draft_width, depth=depth)
            times = self.browser.run(f"return (async (...arguments_) => {{ {self.DRAW.replace('arguments', 'arguments_')} }})(...arguments)", rounds)
            middle, late = times[len(times) // 2], times[len(times) * 95 // 100]
            print(f"{width} beams, {draft_width} x {depth} drafts ({len(rounds[-1]['nodes'])} nodes): {middle:.1f} ms for a round, 95 % within {late:.1f} ms")
            self.assertLess(middle, frames * FRAME_MS * (SLOWDOWN if not busy() else 10 * SLOWDOWN))

    def test_live_rounds_are_drawn_or_counted(self):
        self.script.rounds, self.script.rounds_per_s = 600, ROUNDS_PER_S
        notes = self.notes_of_an_answer()
        self.assertTrue(any(note.startswith("Showing ") and "rounds a second" in note for note in notes), notes)
        self.assertEqual(self.browser.run("return document.querySelector('#replay-round').max"), "599")
        self.assertIn("of 600 rounds were drawn. The replay has all of them", self.browser.text("#forest-note"))
        print(self.browser.text("#forest-note"))

    def notes_of_an_answer(self):
        """What the page said of the forest while the answer came."""
        self.browser.run("window.notes = new Set(); new MutationObserver(() => notes.add(document.querySelector('#forest-note').textContent))"
                         ".observe(document.querySelector('#forest-note'), {childList: true, characterData: true, subtree: true})")
        self.ask()
        self.wait_answer()
        return self.browser.run("return [...window.notes]")

    def test_less_motion(self):
        """Who wants less of it gets two pictures a second, and no replay by itself."""
        self.browser.media(prefers_reduced_motion="reduce")
        self.open()
        self.script.rounds, self.script.rounds_per_s = 100, 25
        self.assertTrue(any("because you asked for less motion" in note for note in self.notes_of_an_answer()))
        drawn = int(self.browser.text("#forest-note").split()[1])
        self.assertLessEqual(drawn, 12)
        self.assertEqual(self.browser.text("#replay-play"), "Play")
        self.assertEqual(self.browser.text("#replay-at"), "round 100 of 100")

    def test_slow_rounds_are_all_drawn(self):
        self.script.rounds, self.script.rounds_per_s = 8, 4
        self.ask()
        self.wait_answer()
        self.assertNotIn("were drawn", self.browser.text("#forest-note"))

    def test_a_long_answer_stays_quick(self):
        """4,096 rounds come at once; the page still answers."""
        self.script.rounds, self.script.rounds_per_s, self.script.rounds_per_event = 4096, 1e9, 64
        self.script.shape = {"draft_width": 4, "depth": 3}
        self.ask()
        self.wait_answer()
        self.assertEqual(self.browser.run("return document.querySelector('#replay-round').max"), "4095")
        time = self.browser.run("const begin = performance.now(), range = document.querySelector('#replay-round'); range.value = 4000;"
                                "range.dispatchEvent(new Event('input')); return performance.now() - begin")
        print(f"a step of the replay of 4,096 rounds: {time:.1f} ms")
        self.assertLess(time, 100 * (SLOWDOWN if not busy() else 10 * SLOWDOWN))


class Breaks(Scripted):
    def test_an_answer_that_breaks_off_is_not_sent_again(self):
        self.script.break_after = 5
        self.ask()
        self.wait_answer()
        self.assertIn("broke off", self.browser.text(".answer .end"))
        self.assertEqual(self.browser.text(".answer > .text"), "[begin]")
        self.assertFalse(wait_until(lambda: len(self.script.bodies) != 1, 3))
        self.script.break_after = None
        self.browser.click(".answer .end button")
        self.browser.wait_for("document.querySelector('.answer > .facts').textContent")
        self.assertEqual(len(self.script.bodies), 2)
        self.assertEqual(self.browser.text(".answer > .text"), "[begin] there was a little girl.")
        self.assertEqual(len(self.browser.texts(".turn")), 1)

    def test_an_answer_that_is_stopped(self):
        self.script.rounds, self.script.rounds_per_s = 1000, 10
        self.ask()
        self.browser.wait_for("document.querySelector('.answer > .text').textContent")
        self.browser.click("#stop")
        self.wait_answer()
        self.assertEqual(self.browser.text(".answer .end"), "Stopped. The text up to here is kept.")
        self.assertEqual(self.browser.text(".answer > .text"), "[begin]")
        self.script.rounds = 3
        self.browser.click("#again")
        self.browser.wait_for("document.querySelector('.answer > .facts').textContent")
        self.assertEqual((self.browser.text(".answer .end"), self.browser.text(".answer > .text")), ("", "[begin] there was a little girl."))
        self.assertEqual((len(self.browser.texts(".turn")), len(self.script.bodies)), (1, 2))

    def test_a_server_that_comes_back_is_found(self):
        self.script.down = True
        self.browser.wait_for("!document.querySelector('#banner').hidden")
        self.assertIn("asks again every", self.browser.text("#banner"))
        self.ask()
        self.wait_answer()
        self.assertIn("broke off", self.browser.text(".answer .end"))
        self.script.down = False
        self.browser.wait_for("document.querySelector('#banner').hidden", seconds=60)
        self.assertEqual(len(self.script.bodies), 1)  # the question was not sent again by itself

    def test_a_page_that_was_opened_too_early(self):
        self.script.down = True
        self.browser.open(f"http://127.0.0.1:{self.server.port}/")
        self.browser.wait_for("!document.querySelector('#banner').hidden")
        self.script.down = False
        self.browser.wait_for("document.querySelector('.example')", "the model is asked for again", seconds=60)

    def test_a_chat_model(self):
        self.script.card = model_card("smollm2", chat=True)
        self.open()
        self.assertEqual(self.browser.text(".example"), "A capital")
        self.browser.click(".example")
        self.wait_answer()
        self.assertEqual(self.script.bodies[0]["messages"], [{"role": "user", "content": "What is the capital of France?"}])


if __name__ == "__main__":
    if not find_browser():
        sys.exit("page_speed_test: chromium or chromedriver is not installed; deploy/setup.sh --tests installs them")
    unittest.main(verbosity=2)
