// The same question with drafts and without, one after the other, both speeds side by side. Equal
// texts are compared here, character by character.

import { AnswerText, difference, figures } from "./request.js";
import { byId, count, el, ms, number, plural, setText } from "./dom.js";

const LANES = [
  { name: "With drafts", drafts: true },
  { name: "Without drafts", drafts: false },
];

export class Race {
  // parts: {api, announce, onBusy}
  constructor(parts) {
    Object.assign(this, parts);
    this.running = null;
  }

  stop() {
    this.running?.abort();
  }

  // request: of request.js. methods: of the model.
  async run(request, methods) {
    if (this.running) return;
    this.running = new AbortController();
    this.onBusy(true);
    const seed = request.body.seed ?? Math.floor(Math.random() * 2 ** 31);
    const speculative = request.body.speculative || "auto";
    const lanes = LANES.map((lane) => {
      const text = el("p", { class: "text" }), facts = el("dl"), bar = el("span", { class: "bar" });
      return { ...lane, text, facts, bar, box: el("div", { class: "card lane" }, el("h3", {}, lane.name), el("div", { class: "track" }, bar), facts, text) };
    });
    byId("race-lanes").replaceChildren(...lanes.map((lane) => lane.box));
    setText(byId("race-verdict"), "");
    setText(byId("race-note"), "First a request of one token, which is not counted: both then find the prompt in the cache.");
    try {
      await this.api.post(request.path, { ...request.body, seed, max_tokens: 1, speculative: false }, this.running.signal);
      setText(byId("race-note"), `Seed ${seed}. One after the other, so that neither slows the other down.`);
      for (const lane of lanes) {
        const texts = lane.texts = new AnswerText();
        lane.box.classList.add("running");
        await this.api.stream(request.path,
          { ...request.body, seed, speculative: lane.drafts ? speculative : false, stream_options: { include_usage: true } },
          this.running.signal, (event) => {
            if (texts.add(event)) lane.text.textContent = texts.choices[0]?.text ?? "";
          });
        lane.box.classList.remove("running");
        lane.figures = figures(texts.usage, texts.timings);
        this.#facts(lane);
      }
      this.#verdict(lanes, methods);
    } catch (error) {
      const stopped = error.name === "AbortError";
      setText(byId("race-verdict"), stopped ? "The race was stopped." : `The race broke off: ${error.message}`);
    }
    for (const lane of lanes) lane.box.classList.remove("running");
    this.running = null;
    this.onBusy(false);
  }

  #facts(lane) {
    const f = lane.figures;
    const row = (name, value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));
    lane.facts.replaceChildren(
      row("time", ms(f.total_ms)),
      row("speed", `${number(f.tokens_per_s, 0)} tokens/s`),
      row("passes of the large model", count(f.passes)),
      row("layers per pass", number(f.per_pass, 2)),
      row("drafts accepted", f.drafted > 0 ? `${count(f.accepted)} of ${count(f.drafted)}` : "none drafted"));
  }

  #verdict(lanes, methods) {
    const [drafted, plain] = lanes.map((lane) => lane.figures);
    const longest = Math.max(drafted.total_ms, plain.total_ms);
    for (const lane of lanes) lane.bar.style.width = `${Math.max(1, (100 * lane.figures.total_ms) / longest)}%`;
    const ratio = plain.total_ms / drafted.total_ms;
    const speed = ratio >= 1.005 ? `With drafts it was ${number(ratio, 2)} times as fast.`
      : ratio <= 0.995 ? `With drafts it took ${number(1 / ratio, 2)} times as long: they pay where the large model is much slower than the small one.` : "Both took the same time.";
    const differs = difference(lanes[0].texts.choices, lanes[1].texts.choices);
    const method = methods.find((row) => row.name === drafted.method);
    const answers = lanes[0].texts.choices.length;
    const same = !differs
      ? `Same text: ${answers === 1 ? "the answer is" : `all ${count(answers)} answers are`} equal, character by character, with the same scores.`
      : method?.reproducible ? `Not the same: ${differs} differs, though the method ${drafted.method} promises equal texts. Please report this.`
      : `The texts differ (${differs}). The method ${drafted.method} promises the same probabilities, not the same text.`;
    const none = drafted.drafted > 0 ? "" : " The server drafted nothing: it has no draft node, or expects no gain.";
    setText(byId("race-verdict"), `${same} ${speed}${none} One run of each; times vary, so race again to see how much.`);
    byId("race-verdict").dataset.same = differs ? "no" : "yes";
    this.announce(`${same} ${speed} ${plural(drafted.passes, "pass", "passes")} instead of ${count(plain.passes)}.`);
  }
}
