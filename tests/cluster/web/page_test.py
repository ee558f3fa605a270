#!/usr/bin/env python3
"""The page at / in headless Chromium, against a real cluster of a model without a chat template: a whole answer, its beams and its forest,
stop and regenerate, the keyboard alone, narrow and wide, light and dark, no JavaScript.

  page_test.py [CLASS.test_NAME]      COPPICE_SCREENSHOTS=FOLDER keeps pictures of the page
"""
import json
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1])]
from page_fixture import NARROW, PROMPT, WIDE, Page, run_tests  # noqa: E402
from stopwatch import wait_until  # noqa: E402

FIXED = {"way": "beam_search", "beams": 4, "max_tokens": 24, "seed": "", "draft_width": 4, "draft_depth": 3}
SHAPE = {"speculative": {"draft_width": 4, "draft_depth": 3}, "decoding": "beam_search", "beam_width": 4, "n": 4, "max_tokens": 24}

# What is wider than the screen, and texts whose contrast is below 4.5 to 1. Faded controls that are switched off do not count.
CONTRAST = """
const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * x + 0.7152 * y + 0.0722 * z; };
const back = (node) => { for (let at = node; at; at = at.parentElement) { const c = parse(getComputedStyle(at).backgroundColor);
  if (c.length === 3 || c[3] > 0.99) return c; } return [255, 255, 255]; };
const bad = [];
for (const node of document.querySelectorAll("body *")) {
  const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
  if (!own || !node.checkVisibility() || node.closest(":disabled, .hidden-text, .skip, noscript")) continue;
  const [a, b] = [light(parse(getComputedStyle(node).color)), light(back(node))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) bad.push(`${node.tagName}.${node.className} "${node.textContent.slice(0, 30)}" ${ratio.toFixed(2)}`);
}
return bad;"""


# Controls without a name, and names that two elements have.
NAMELESS = """
const bad = [...document.querySelectorAll("input, select, textarea, button, canvas, [role=region]")].filter((node) =>
  !(node.labels?.length || node.getAttribute("aria-label") || node.getAttribute("aria-labelledby") || (node.tagName === "BUTTON" && node.textContent.trim())));
const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
return [...bad.map((node) => node.outerHTML.slice(0, 60)), ...ids.filter((id, i) => ids.indexOf(id) !== i)];"""

class Completion(Page):
    """The small pair without a chat template: the page continues texts."""

    @classmethod
    def setUpClass(cls):
        cls.serve()

    def test_a_first_visit(self):
        self.visit()
        self.assertIn("no chat template", self.browser.text("#mode-note"))
        self.assertEqual(self.browser.run("return document.querySelector('#chat-mode option[value=chat]').disabled"), True)
        self.assertIn("This is an example", self.browser.text("#forest-note"))
        self.browser.wait_for("document.querySelector('#state').dataset.state === 'ready'")
        self.browser.wait_for("document.querySelectorAll('#cluster-body tbody tr').length === 2", "replica and draft node are listed")
        self.assertIn("stories260k-draft", self.browser.text("#cluster-body"))
        self.browser.screenshot("first-visit-wide")

    def test_a_whole_answer_and_its_beams(self):
        self.visit()
        self.settings(**FIXED)
        self.ask(PROMPT)
        self.wait_answer()
        expected = self.cluster.api.complete(dict(SHAPE, prompt=PROMPT))["choices"]
        self.assertEqual(self.answer(), expected[0]["text"].removeprefix(" "))
        self.assertEqual(self.cards(), [choice["text"].removeprefix(" ") for choice in expected])
        for i, facts in enumerate(self.browser.texts("#beams-list .choice .facts")):
            self.assertIn(f"score {expected[i]['score']:.3f}", facts)
        self.assertRegex(self.browser.text(".answer > .facts"), r"\d+ tokens · [\d.,]+ m?s · [\d.,]+ tokens/s · [\d.]+ layers per pass")
        self.browser.screenshot("answer-wide")
        self.fits()

    def test_the_forest_is_that_of_the_trace(self):
        self.visit()
        self.settings(**FIXED)
        self.ask(PROMPT)
        self.wait_answer()
        answer = self.cluster.api.complete(dict(SHAPE, prompt=PROMPT, trace=True))
        trace = answer["trace"]
        self.assertGreater(sum(len(r["nodes"]) for r in trace), 10)
        self.browser.run("document.querySelector('#forest-table').open = true")
        last = int(self.browser.run("return document.querySelector('#replay-round').max"))
        self.assertEqual(last + 1, len(trace))
        sign = {"drafted and accepted": "accepted", "drafted and rejected": "rejected", "the large model's own": "own"}
        for number, round_ in enumerate(trace):
            self.browser.choose("#replay-round", number)
            rows = self.browser.run("return [...document.querySelectorAll('#forest-rows tr')].map(row => [...row.cells].map(cell => cell.textContent))")
            drafted = [(row[1], sign[row[3]]) for row in rows if sign[row[3]] != "own"]
            self.assertEqual(drafted, [(self.label(node["text"]), "accepted" if "path" in node else "rejected") for node in round_["nodes"]], number)
            taken = {node["path"] for node in round_["nodes"] if "path" in node}
            own = [self.label(path["text"]) for path in round_["paths"] if path["path"] not in taken]
            self.assertEqual([row[1] for row in rows if sign[row[3]] == "own"], own, number)
            self.assertEqual(self.browser.text("#n-layers").split()[0], str(round_["layers"]))
            ranks = [row[5] for row in rows if row[5] != "–"]
            self.assertEqual(sorted(ranks), [str(i + 1) for i in range(len(ranks))])
        # The canvas has the colours of both states: it is not empty.
        self.browser.run("document.querySelector('#forest-frame').scrollIntoView({block: 'center'})")
        self.assertGreater(self.painted("--accepted"), 50)
        self.assertGreater(self.painted("--own"), 50)

    @staticmethod
    def label(text):
        if text.strip(" ") == "":
            return "␣" * min(len(text), 4)
        return text.replace("\n", "⏎").removeprefix(" ")

    def painted(self, colour):
        """How many points of the canvas have this colour of the style."""
        return self.browser.run("""
const canvas = document.querySelector('#forest-canvas'), probe = document.createElement('i');
probe.style.color = `var(${arguments[0]})`; document.body.append(probe);
const [r, g, b] = getComputedStyle(probe).color.match(/\\d+/g).map(Number); probe.remove();
const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
let found = 0;
for (let i = 0; i < data.length; i += 4) if (data[i] === r && data[i + 1] === g && data[i + 2] === b && data[i + 3] === 255) ++found;
return found;""", colour)

    def test_stop_keeps_the_text_and_regenerate_replaces_it(self):
        self.visit()
        self.settings(way="multinomial", beams=64, max_tokens=400, temperature="2")
        before = self.cancelled()
        self.ask(PROMPT)
        self.browser.wait_for("document.querySelector('.answer > .text').textContent.length > 0")
        self.browser.press("Escape")
        self.browser.wait_for("!document.querySelector('.turn.running')")
        if self.browser.text(".answer .end"):  # it was not complete yet
            self.assertIn("Stopped", self.browser.text(".answer .end"))
            self.assertTrue(wait_until(lambda: self.cancelled() == before + 1, 20))
        self.assertGreater(len(self.answer()), 0)
        self.settings(max_tokens=12)
        self.browser.click("#again")
        self.wait_answer()
        self.assertEqual(len(self.browser.texts(".turn")), 1)
        self.assertTrue(wait_until(lambda: self.cluster.api.cluster()["requests"]["running"] == 0, 20))

    def cancelled(self):
        return sum(float(line.split()[-1]) for line in self.cluster.api.get("/metrics")[1].splitlines()
                   if line.startswith("coppice_cancelled_requests_total{"))

    def test_a_race_shows_that_the_texts_are_equal(self):
        self.visit()
        for way, race in (("beam_search", "beam_sampling"), ("beam_search", "settings"), ("multinomial", "settings")):
            self.settings(way=way, beams=4, max_tokens=24, draft_width=4, draft_depth=3)
            self.browser.choose("#race-way", race)
            self.browser.choose("#prompt", PROMPT)
            self.browser.run("document.querySelector('#race-verdict').textContent = ''")
            self.browser.click("#race-run")
            self.browser.wait_for("document.querySelector('#race-verdict').textContent", seconds=60)
            self.assertEqual(self.browser.run("return document.querySelector('#race-verdict').dataset.same"), "yes", self.browser.text("#race-verdict"))
            self.assertIn("character by character", self.browser.text("#race-verdict"))
            drafts, plain = self.browser.run("return [...document.querySelectorAll('.lane')].map(lane => lane.innerText)")
            self.assertRegex(drafts, r"\d+ of \d+")
            self.assertIn("none drafted", plain)
        self.browser.screenshot("race-wide")

    def test_the_replay_goes_layer_by_layer(self):
        self.visit()
        self.settings(**FIXED)
        self.ask(PROMPT)
        self.wait_answer()
        self.browser.choose("#replay-round", 1)
        self.browser.run("document.querySelector('#forest-table').open = true")
        self.browser.choose("#replay-round", 0)
        seen = []
        while True:
            self.browser.click("#replay-step")
            at = self.browser.text("#replay-at")
            if not at.startswith("round 2 "):
                break
            seen.append((at, self.browser.texts("#forest-rows td:nth-child(4)")))
        self.assertEqual([at.partition(", ")[2] for at, _ in seen], ["layer 1 of 3 drafted", "layer 2 of 3 drafted", "layer 3 of 3 drafted", ""])
        for _, states in seen[:-1]:
            self.assertEqual(set(states), {"drafted, not checked yet"})
        self.assertNotIn("drafted, not checked yet", seen[-1][1])
        self.browser.choose("#replay-by", "round")
        self.browser.choose("#replay-speed", "20")
        self.browser.choose("#replay-round", 0)
        self.browser.click("#replay-play")
        self.browser.wait_for("document.querySelector('#replay-round').value === document.querySelector('#replay-round').max")
        self.browser.wait_for("document.querySelector('#replay-play').textContent === 'Play'")

    def test_what_came_too_fast_is_replayed(self):
        self.visit(replays=True)
        self.settings(**FIXED)
        self.browser.choose("#replay-speed", "1")
        self.ask(PROMPT)
        self.wait_answer()
        if "were drawn" in self.browser.text("#forest-note"):
            self.browser.wait_for("document.querySelector('#replay-play').textContent === 'Pause'")
            self.browser.wait_for("document.querySelector('#replay-at').textContent.includes('drafted')")
            self.browser.click("#replay-play")
            self.browser.wait_for("document.querySelector('#replay-play').textContent === 'Play'")
        self.browser.screenshot("replay-wide")

    def test_the_keyboard_alone(self):
        self.visit()
        self.browser.press("Tab")
        self.assertEqual(self.focus(), "To the question")
        self.browser.press("Enter")
        self.browser.wait_for("document.activeElement.id === 'prompt' || location.hash === '#prompt'")
        self.browser.press("Tab") if self.browser.run("return document.activeElement.id") != "prompt" else None
        self.assertEqual(self.browser.run("return document.activeElement.id"), "prompt")
        self.browser.type("One day")
        self.browser.press("Shift", "Enter")
        self.browser.type("Tom")
        self.assertEqual(self.browser.run("return document.querySelector('#prompt').value"), "One day\nTom")
        self.assertEqual(self.browser.texts(".turn"), [])
        self.browser.press("Enter")
        self.browser.wait_for("document.querySelector('.turn')")
        self.wait_answer()
        seen = []
        for _ in range(60):
            self.browser.press("Tab")
            if self.browser.run("return document.activeElement === document.body"):
                break
            style = self.browser.run("const s = getComputedStyle(document.activeElement); return [s.outlineStyle, parseFloat(s.outlineWidth)]")
            self.assertEqual(style[0], "solid", self.focus())
            self.assertGreaterEqual(style[1], 2, self.focus())
            seen.append(self.browser.run("return document.activeElement.id"))
            if seen[-1] == "replay-round":
                last = int(self.browser.run("return document.activeElement.value"))
                self.browser.press("ArrowLeft")
                self.assertEqual(int(self.browser.run("return document.activeElement.value")), last - 1)
                self.assertIn(f"round {last} of", self.browser.text("#replay-at"))
        for name in ("send", "again", "race-run", "forest-frame", "replay-back", "replay-play", "replay-step", "replay-round", "replay-by"):
            self.assertIn(name, seen)
        # Back to the question, a long answer, and Escape.
        self.browser.run("document.querySelector('#prompt').focus()")
        self.browser.press("Enter")
        self.browser.press("Escape")
        self.browser.wait_for("!document.querySelector('.turn.running')")

    def focus(self):
        return self.browser.run("const node = document.activeElement; return node.id || node.textContent.trim().slice(0, 40)")

    def test_it_fits_and_can_be_read(self):
        self.visit()
        self.settings(**FIXED)
        self.ask(PROMPT)
        self.wait_answer()
        self.browser.run("for (const box of document.querySelectorAll('details')) box.open = true")
        self.assertEqual(self.browser.run(NAMELESS), [])
        for name, size in (("wide", WIDE), ("narrow", NARROW)):
            self.browser.resize(*size)
            for scheme in ("light", "dark"):
                self.browser.media(prefers_color_scheme=scheme)
                self.browser.wait_for(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
                self.fits()
                self.assertEqual(self.browser.run(CONTRAST), [], f"{name} {scheme}")
                self.browser.run("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
                self.assertGreater(self.painted("--accepted") + self.painted("--own"), 50)
                self.browser.screenshot(f"everything-{name}-{scheme}")
        self.browser.resize(*WIDE)
        for expected in ("light", "dark", "auto"):
            self.browser.click("#theme")
            self.assertEqual(self.browser.text("#theme"), f"Colours: {expected}")
            self.assertEqual(self.browser.run("return document.documentElement.dataset.theme ?? 'auto'"), expected)

    def test_bad_values_are_named(self):
        self.visit()
        self.settings(way="multinomial", temperature="9")
        self.browser.run("document.querySelector('#settings').open = false")
        self.ask(PROMPT)
        self.assertIn("Temperature", self.browser.text("#fault"))
        self.assertEqual(self.browser.texts(".turn"), [])
        self.settings(temperature="1", max_tokens=100000)
        self.browser.run("document.querySelector('#max_tokens').max = ''")
        self.ask(PROMPT)
        self.expected_messages += ("400 (Bad Request)",)
        self.browser.wait_for("document.querySelector('.answer .end').textContent")
        self.assertIn("maximum context length", self.browser.text(".answer .end"))

    def test_text_of_a_model_is_never_markup(self):
        self.visit()
        self.ask("<img src=x onerror=alert(1)><b>bold</b>")
        self.wait_answer()
        self.assertEqual(self.browser.run("return document.querySelectorAll('main img, .turn b').length"), 0)
        self.assertIn("<b>bold</b>", self.browser.text(".question"))

    def test_the_docs_have_every_endpoint(self):
        self.browser.open(self.address + "docs")
        self.browser.wait_for("document.querySelector('[data-text]')")
        document = json.loads(self.cluster.api.get("/openapi.json")[1])
        shown = self.browser.run("return [...document.querySelectorAll('[data-text] summary')].map(node => [node.querySelector('.verb').textContent, node.querySelector('code').textContent])")
        self.assertEqual(sorted(map(tuple, shown)), sorted((verb.upper(), path) for path, verbs in document["paths"].items() for verb in verbs))
        self.browser.choose("#filter", "chat")
        self.browser.wait_for("document.querySelectorAll('[data-text]:not([hidden])').length < 6")
        self.browser.click("[data-text]:not([hidden]) summary")
        self.browser.wait_for("document.querySelector('[open] table')")
        self.fits()
        self.assertEqual(self.browser.run(CONTRAST), [])
        self.browser.screenshot("docs-wide")
        self.browser.resize(*NARROW)
        self.fits()
        self.browser.screenshot("docs-narrow")

    def test_without_javascript_it_is_a_form(self):
        self.browser.devtools("Emulation.setScriptExecutionDisabled", value=True)
        self.browser.open(self.address)
        for selector, seen in (("#composer", True), ("#prompt", True), ("#send", True), ("noscript p", True), ("#forest", False), ("#again", False), ("#theme", False)):
            path = f"{self.browser.session}/element/{self.browser.element(selector)}/displayed"
            self.assertEqual(self.browser.ask("GET", path), seen, selector)
        self.browser.screenshot("no-javascript")
        self.browser.post(f"/element/{self.browser.element('#prompt')}/value", {"text": PROMPT})
        self.browser.click("#send")
        self.browser.wait_for("location.pathname === '/ask' && document.querySelector('li pre')")
        expected = self.cluster.api.complete(dict(prompt=PROMPT, use_beam_search=True, n=4, max_tokens=128))
        self.assertEqual(self.browser.texts("li pre"), [choice["text"] for choice in expected["choices"]])
        self.fits()
        self.assertEqual(self.browser.run(CONTRAST), [])
        self.browser.screenshot("no-javascript-answer")


if __name__ == "__main__":
    run_tests("page_test")
