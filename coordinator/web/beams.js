// The answers of a request side by side: live beams while it runs, its choices at the end.

import { byId, count, el, number, percent, plural, setText } from "./dom.js";

const MOST_LIVE = 16, LIVE_TAIL = 60;  // beams; letters of what is shared that are shown live

// The length of the whole words that all begin with.
function sharedLength(texts) {
  if (texts.length < 2) return 0;
  let length = Math.min(...texts.map((text) => text.length));
  for (const text of texts) {
    let at = 0;
    while (at < length && text[at] === texts[0][at]) ++at;
    length = at;
  }
  if (texts.every((text) => text.length === length)) return length;
  return texts[0].slice(0, length).search(/\S*$/);  // whole words
}

function textWithShared(text, shared, tail = Infinity) {
  const from = Math.max(text.startsWith(" ") ? 1 : 0, shared - tail);  // a text often begins with a space
  return el("p", { class: "text" }, shared > from ? el("span", { class: "shared" }, from > 1 ? "… " : "", text.slice(from, shared)) : null,
    text.slice(Math.max(shared, from)) || (text === "" ? el("i", {}, "(empty)") : null));
}

export class BeamsPanel {
  // onUse: called with a choice that shall be the answer of the conversation.
  constructor(onUse) {
    this.onUse = onUse;
    this.list = byId("beams-list");
  }

  begin(beams) {
    this.list.replaceChildren();
    setText(byId("beams-note"), beams > 1 ? "The beams come here, the best first." : "One answer was asked for, so there is nothing to compare.");
  }

  // What the live beams say. outputs: of forest_model.
  showLive(outputs) {
    const texts = outputs.slice(0, MOST_LIVE).map((output) => output.text);
    const shared = sharedLength(texts);
    this.list.replaceChildren(...outputs.slice(0, MOST_LIVE).map((output, i) => el("li", { class: "card choice live" },
      el("h3", {}, `Beam ${i + 1}`),
      el("p", { class: "facts" }, `score ${number(output.score, 3)} · ${plural(output.tokens, "token")} · ${output.finished ? "ended" : "live"}`),
      textWithShared(output.text, shared, LIVE_TAIL))));
  }

  // The answer has ended before it was complete.
  leave() {
    if (this.list.firstChild) setText(byId("beams-note"), "How the beams were when the answer ended early.");
  }

  // The choices of the answer, the best first. usable: one of them can become the answer.
  showChoices(choices, { picked = 0, usable = false, ranked = true, kept = "" } = {}) {
    const shared = sharedLength(choices.map((choice) => choice.text));
    setText(byId("beams-note"), choices.length < 2 ? "There is one answer." :
      `${count(choices.length)} answers, ${ranked ? "the best first" : "drawn independently"}. ${
        shared > 0 ? "What all of them begin with is grey. " : ""}${ranked ? "The score is the log-probability for each token: nearer to 0 is likelier." : ""}${kept}`);
    this.list.replaceChildren(...choices.map((choice, i) => {
      const facts = [];
      if (Number.isFinite(choice.score)) facts.push(`score ${number(choice.score, 3)}`);
      if (Number.isFinite(choice.joint_logprob)) facts.push(`probability ${percent(Math.exp(choice.joint_logprob))}`);
      facts.push({ stop: "ended by itself", length: "cut at the longest length", tool_calls: "calls a tool" }[choice.finish_reason] ?? "not finished");
      return el("li", { class: `card choice${i === picked ? " picked" : ""}` },
        el("h3", {}, ranked ? `Answer ${i + 1}` : `Sample ${i + 1}`, i === picked && usable ? el("span", { class: "badge" }, "in the conversation") : null),
        el("p", { class: "facts" }, facts.join(" · ")),
        textWithShared(choice.text, shared),
        usable && i !== picked ? el("button", { type: "button", onclick: () => this.onUse(i) }, `Use answer ${i + 1}`) : null);
    }));
  }
}
