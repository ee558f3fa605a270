// The conversation: sends a question, shows the answer while it comes, stops it, and writes it
// again. It lives in the memory of the page. No request is ever sent twice by itself.

import { AnswerText, figures, makeRequest, wayOf } from "./request.js";
import { ApiError, ConnectionLost, KEY_NEEDED } from "./api.js";
import { byId, count, el, ms, number, plural, setText, show } from "./dom.js";

const END = { done: "", stopped: "Stopped. The text up to here is kept.", broken: "", refused: "" };

export class Chat {
  // parts: {api, settings, forest, beams, announce, complain, onKeyNeeded, onBusy, blocked: whether
  // something else asks the server}
  constructor(parts) {
    Object.assign(this, parts);
    this.turns = [];  // {question, answer, state, picked, texts, chat, nodes}
    this.running = null;
    this.list = byId("turns");
    byId("stop").addEventListener("click", () => this.stop());
    byId("again").addEventListener("click", () => this.regenerate());
    byId("clear").addEventListener("click", () => this.clear());
  }

  get last() {
    return this.turns[this.turns.length - 1];
  }

  // The conversation before a turn, and its question, as messages.
  #messages(turn) {
    const messages = [], at = this.turns.indexOf(turn);
    for (const before of at < 0 ? this.turns : this.turns.slice(0, at)) {
      const content = before.texts?.choices[before.picked]?.text;
      if (!before.chat || !content) continue;
      messages.push({ role: "user", content: before.question }, { role: "assistant", content });
    }
    return [...messages, { role: "user", content: turn.question }];
  }

  // The request that asks this now, or the last question again; null: there is none. For a race, in
  // which the server chooses how much to draft unless the settings say it. way: of request.js;
  // "settings": theirs.
  requestFor(question, way) {
    const settings = this.settings.read();
    settings.drafts = "auto";
    if (way !== "settings" && way !== settings.way) Object.assign(settings, { way, method: "auto" });
    const turn = question.trim() === "" ? this.last : { question };
    return turn ? makeRequest(settings, this.#messages(turn), this.settings.methods) : null;
  }

  send(question) {
    const fault = this.settings.fault();
    this.complain(fault);
    if (fault) return undefined;
    for (const button of this.last?.nodes.end.querySelectorAll("button") ?? []) button.remove();
    const nodes = this.#show(question);
    const turn = { question, picked: 0, texts: null, state: "", nodes };
    this.turns.push(turn);
    return this.#run(turn);
  }

  // Writes the last answer again. turn: the one whose button asks for it; an earlier one is left,
  // because what follows it has read its answer.
  regenerate(turn = this.last) {
    if (this.running || this.blocked() || !turn || turn !== this.last) return undefined;
    const fault = this.settings.fault();
    this.complain(fault);
    if (fault) return undefined;
    return this.#run(this.last);
  }

  stop() {
    this.running?.abort();
  }

  clear() {
    this.stop();
    this.turns = [];
    this.list.replaceChildren();
    this.#buttons();
    byId("prompt").focus();
  }

  #show(question) {
    const nodes = {
      item: el("li", { class: "turn" }), body: el("p", { class: "text" }), thought: el("p", { class: "text" }),
      facts: el("p", { class: "facts" }), end: el("p", { class: "end" }),
    };
    nodes.reasoning = el("details", { class: "reasoning", hidden: true }, el("summary", {}, "Reasoning"), nodes.thought);
    nodes.answer = el("div", { class: "answer" }, el("h3", {}, "Answer"), nodes.reasoning, nodes.body, nodes.end, nodes.facts);
    nodes.item.append(
      el("div", { class: "question" }, el("h3", {}, "You"), el("p", { class: "text" }, question)), nodes.answer);
    this.list.append(nodes.item);
    return nodes;
  }

  async #run(turn) {
    const settings = this.settings.read(), way = wayOf(settings.way);
    const request = makeRequest(settings, this.#messages(turn), this.settings.methods);
    const { nodes } = turn;
    turn.chat = settings.chat;
    turn.ranked = way.beams;
    turn.picked = 0;
    const texts = turn.texts = new AnswerText();
    nodes.body.replaceChildren(document.createTextNode(""));
    nodes.thought.textContent = "";
    show(nodes.reasoning, false);
    nodes.end.replaceChildren();
    nodes.facts.textContent = "";
    nodes.item.classList.add("running");
    nodes.answer.setAttribute("aria-busy", "true");
    this.running = new AbortController();
    this.#buttons();
    this.announce("The answer begins.");
    this.forest.begin({ drafts: settings.drafts, lengthPenalty: request.body.length_penalty ?? 1 });
    this.beams.begin(request.body.n);
    nodes.item.scrollIntoView({ block: "nearest" });

    let state = "done", fault = null, painted = false;
    const paint = () => {
      painted = false;
      this.#paint(turn);
    };
    try {
      await this.api.stream(request.path,
        { ...request.body, trace: true, stream_options: { include_usage: true } }, this.running.signal, (event) => {
          if (event.trace) this.forest.add(event.trace);
          if (texts.add(event) && !painted) {
            painted = true;
            requestAnimationFrame(paint);
          }
        });
      if (!texts.done) throw new ConnectionLost();
    } catch (error) {
      fault = error;
      state = error.name === "AbortError" ? "stopped" : error instanceof ConnectionLost ? "broken" : "refused";
      if (!(error instanceof ApiError) && state === "refused") console.error(error);
    }
    this.running = null;
    turn.state = state;
    nodes.item.classList.remove("running");
    nodes.answer.removeAttribute("aria-busy");
    this.#paint(turn);
    this.forest.end();
    this.#finish(turn, state, fault, way);
    this.#buttons();
  }

  #paint(turn) {
    const choice = turn.texts.choices[turn.picked], { nodes } = turn;
    if (!choice) return;
    const grow = (node, text) => {
      const there = node.firstChild?.data ?? "";
      if (node.firstChild && text.startsWith(there)) {
        if (text.length > there.length) node.firstChild.appendData(text.slice(there.length));
      } else {
        node.replaceChildren(document.createTextNode(text));
      }
    };
    grow(nodes.body, choice.text.replace(/^ /, ""));
    if (choice.reasoning) {
      show(nodes.reasoning);
      grow(nodes.thought, choice.reasoning);
    }
  }

  #finish(turn, state, fault, way) {
    const { nodes, texts } = turn;
    const seen = figures(texts.usage, texts.timings);
    const retry = (text) => el("button", { type: "button", onclick: () => this.regenerate(turn) }, text);
    if (state === "done") {
      const seeds = texts.choices[0].seed;
      nodes.facts.textContent = [
        plural(seen.tokens, "token"), ms(seen.total_ms), `${number(seen.tokens_per_s, 0)} tokens/s`,
        Number.isFinite(seen.per_pass) ? `${number(seen.per_pass, 2)} layers per pass` : "",
        seen.joules > 0 ? `${number(seen.joules, 2)} J` : "", seeds !== undefined ? `seed ${seeds}` : "",
      ].filter(Boolean).join(" · ");
      if (texts.choices[0].text === "" && !texts.choices[0].reasoning) nodes.end.replaceChildren("The answer is empty.");
      this.beams.showChoices(texts.choices, { picked: turn.picked, usable: turn.chat, ranked: turn.ranked });
      this.announce(`The answer is complete: ${texts.choices[0].text.slice(0, 300)}`);
      return;
    }
    this.beams.leave();
    if (state === "stopped") {
      nodes.end.replaceChildren(END.stopped);
      this.announce(END.stopped);
    } else if (state === "broken") {
      nodes.end.replaceChildren(el("strong", {}, "The connection broke off. "),
        "The text up to here is kept. The question was not sent again. ", retry("Send it again"));
      this.announce("The connection broke off. The question was not sent again.");
    } else {
      nodes.end.replaceChildren(el("strong", {}, "No answer: "), fault.message, " ", retry("Try again"));
      this.announce(`No answer: ${fault.message}`);
      if (KEY_NEEDED.has(fault.code)) this.onKeyNeeded(fault);
    }
    if (state !== "refused") setText(nodes.facts, "");
  }

  // Another beam becomes the answer of the last turn.
  pick(index) {
    const turn = this.last;
    if (!turn || this.running || !turn.texts?.choices[index]) return;
    turn.picked = index;
    this.#paint(turn);
    this.beams.showChoices(turn.texts.choices, { picked: index, usable: turn.chat, ranked: turn.ranked });
    this.announce(`Answer ${count(index + 1)} is now in the conversation.`);
  }

  #buttons() {
    const running = this.running !== null, send = byId("send"), stop = byId("stop");
    const focused = document.activeElement;
    show(stop, running);
    show(send, !running);
    if (running && focused === send) stop.focus();
    if (!running && focused === stop) send.focus();
    byId("again").disabled = running || this.turns.length === 0;
    byId("clear").disabled = this.turns.length === 0;
    this.onBusy(running);
  }
}
