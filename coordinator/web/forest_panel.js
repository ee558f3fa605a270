// The forest on the page: follows an answer while it comes, replays it layer by layer, and says in
// words and numbers what the canvas shows.

import { EXAMPLE } from "./example_forest.js";
import { Forest, label } from "./forest_model.js";
import { ForestView, STATES, describe } from "./forest_view.js";
import { byId, count, el, ms, percent, plural, setText, show } from "./dom.js";

const CALM_MS = 500;        // between live pictures where the reader wants no motion
const NOTE_MS = 500;        // between counts of what is shown
const STRIP_MS = 120;       // between texts of the strip while live
const STRIP_TOKENS = 400, LIVE_STRIP_TOKENS = 60;

export class ForestPanel {
  // onShow(outputs, live): what the beams say in the round that is shown. announce: says a text.
  constructor({ onShow, announce }) {
    this.onShow = onShow;
    this.announce = announce;
    this.view = new ForestView(byId("forest-canvas"), byId("forest-frame"), byId("forest-tip"));
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    this.forest = new Forest();
    this.name = "";
    this.index = 0;
    this.shown = Infinity;
    this.live = this.following = this.scheduled = false;
    this.lengthPenalty = 1;
    this.timer = 0;
    this.#controls();
    this.#clear();
    this.#showExample();
  }

  #showExample() {
    this.example = true;
    this.arrived = this.drawn = this.forest.add(EXAMPLE);
    this.name = this.forest.sequences.keys().next().value;
    this.#goTo(EXAMPLE.length - 1);
  }

  recolour() {
    this.view.readColours();
    this.view.draw(this.view.picture);
  }

  get sequence() {
    return this.forest.sequences.get(this.name);
  }

  // ---- an answer that comes ----

  // drafts, lengthPenalty: as in the settings.
  begin({ drafts, lengthPenalty }) {
    this.#pause();
    this.example = false;
    this.forest = new Forest();
    this.name = "";
    this.drafts = drafts;
    this.lengthPenalty = lengthPenalty;
    this.live = this.following = true;
    this.arrived = this.drawn = 0;
    this.noteFrom = { at: performance.now(), arrived: 0, drawn: 0 };
    this.lastDraw = this.lastStrip = 0;
    this.index = 0;
    this.shown = Infinity;
    this.view.reset();
    this.#clear();
    setText(byId("forest-note"), "Waiting for the first round.");
  }

  add(rounds) {
    this.arrived += this.forest.add(rounds);
    if (!this.name) this.name = this.forest.sequences.keys().next().value ?? "";
    if (this.following) this.#schedule();
  }

  end() {
    if (!this.live) return;
    this.live = false;
    this.#names();
    if (!this.sequence) {
      setText(byId("forest-note"), "The server sent no rounds of this answer.");
      return;
    }
    if (this.following) this.#goTo(this.sequence.rounds.length - 1);
    else this.#draw();
    this.announce(this.summary());
    const unseen = this.following && this.drawn < this.arrived / 2;
    if (unseen && byId("replay-auto").checked && !this.calm.matches) this.#play();
  }

  summary() {
    const sequence = this.sequence;
    if (!sequence) return "";
    const passes = sequence.rounds.length;
    if (sequence.drafted === 0) return `${plural(passes, "round")} without drafts.`;
    return `${plural(passes, "round")}: ${count(sequence.accepted)} of ${count(sequence.drafted)} drafted tokens were accepted.`;
  }

  #schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame((now) => {
      this.scheduled = false;
      if (!this.following || !this.sequence) return;
      if (this.calm.matches && this.live && now - this.lastDraw < CALM_MS) {
        this.scheduled = true;
        setTimeout(() => {
          this.scheduled = false;
          this.#schedule();
        }, CALM_MS - (now - this.lastDraw));
        return;
      }
      this.lastDraw = now;
      ++this.drawn;
      this.index = this.sequence.rounds.length - 1;
      this.shown = Infinity;
      this.#draw();
    });
  }

  // ---- the controls ----

  #controls() {
    const on = (id, action) => byId(id).addEventListener("click", action);
    on("replay-play", () => (this.timer ? this.#pause() : this.#play()));
    on("replay-back", () => { this.#pause(); this.#step(-1); });
    on("replay-step", () => { this.#pause(); this.#step(1); });
    on("replay-live", () => { this.#pause(); this.following = true; this.#schedule(); this.#buttons(); });
    byId("replay-round").addEventListener("input", (event) => {
      this.#pause();
      this.#goTo(Number(event.target.value), Infinity, false);
    });
    byId("replay").addEventListener("keydown", (event) => {
      if (event.target.tagName !== "BUTTON") return;
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!way) return;
      event.preventDefault();
      this.#pause();
      this.#step(way);
    });
    byId("replay-sequence").addEventListener("change", (event) => {
      this.name = event.target.value;
      this.view.reset();
      this.#goTo(this.sequence.rounds.length - 1, Infinity, this.following);
    });
    byId("forest-table").addEventListener("toggle", () => this.#table());
  }

  #play() {
    const sequence = this.sequence;
    if (!sequence) return;
    this.following = false;
    if (this.index >= sequence.rounds.length - 1 && this.shown === Infinity) {
      this.index = 0;
      this.shown = Infinity;
      this.#draw();
    }
    const tick = () => {
      if (!this.#step(1)) return this.#pause();
      this.timer = setTimeout(tick, 1000 / Number(byId("replay-speed").value));
    };
    this.timer = setTimeout(tick, 1000 / Number(byId("replay-speed").value));
    this.#buttons();
  }

  #pause() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.#buttons();
  }

  // One step forward or back: a layer, or a whole round. False at the end.
  #step(way) {
    const sequence = this.sequence;
    if (!sequence) return false;
    const byLayer = byId("replay-by").value === "layer";
    let { index, shown } = this;
    const layers = sequence.draftLayers(index);
    if (way > 0) {
      if (shown !== Infinity) {
        shown = shown < layers ? shown + 1 : Infinity;
      } else {
        if (index + 1 >= sequence.rounds.length) return false;
        ++index;
        shown = byLayer && sequence.draftLayers(index) > 0 ? 1 : Infinity;
      }
    } else if (byLayer && layers > 0 && shown !== 1) {
      shown = shown === Infinity ? layers : shown - 1;
    } else {
      if (index === 0) return false;
      --index;
      shown = Infinity;
    }
    this.#goTo(index, shown, false);
    return true;
  }

  #goTo(index, shown = Infinity, following = this.following) {
    this.index = Math.max(0, index);
    this.shown = shown;
    this.following = following;
    this.#draw();
  }

  #buttons() {
    const there = Boolean(this.sequence);
    const play = byId("replay-play");
    setText(play, this.timer ? "Pause" : "Play");
    for (const id of ["replay-play", "replay-back", "replay-step", "replay-round"]) byId(id).disabled = !there;
    show(byId("replay-live"), this.live && !this.following);
  }

  // The sequences of the answer: several samples are several forests.
  #names() {
    const select = byId("replay-sequence"), names = [...this.forest.sequences.keys()];
    show(byId("replay-sequence-label"), names.length > 1);
    if (select.options.length === names.length) return;
    const several = new Set([...this.forest.sequences.values()].map((sequence) => sequence.prompt)).size > 1;
    select.replaceChildren(...[...this.forest.sequences].map(([name, { prompt, sample }]) =>
      el("option", { value: name }, `${several ? `prompt ${prompt + 1}, ` : ""}sample ${sample + 1}`)));
    select.value = this.name;
  }

  // ---- what is shown ----

  #clear() {
    byId("forest-strip").replaceChildren();
    for (const cell of byId("forest-numbers").querySelectorAll("dd")) setText(cell, "–");
    setText(byId("forest-note"), "");
    byId("replay-round").max = 0;
    setText(byId("replay-at"), "no rounds yet");
    this.#names();
    this.#buttons();
    this.#table();
  }

  #draw() {
    const sequence = this.sequence;
    if (!sequence || sequence.rounds.length === 0) return;
    const last = sequence.rounds.length - 1;
    this.index = Math.min(this.index, last);
    const round = sequence.rounds[this.index];
    const picture = sequence.picture(this.index, this.shown);
    this.view.draw(picture);

    const range = byId("replay-round");
    range.max = last;
    range.value = this.index;
    const phase = this.shown === Infinity ? "" : `, layer ${this.shown} of ${this.view.picture.layers} drafted`;
    const at = `round ${this.index + 1} of ${last + 1}${phase}`;
    setText(byId("replay-at"), at);
    range.setAttribute("aria-valuetext", at);

    const values = {
      layers: plural(round.layers, "layer"),
      nodes: round.nodes.length === 0 ? "no drafts" : `${count(round.accepted)} of ${count(round.nodes.length)} (${percent(round.accepted / round.nodes.length)})`,
      draft: round.nodes.length > 0 ? ms(round.draft_ms) : "–", wait: ms(round.draft_wait_ms), forward: ms(round.forward_ms),
      decision: ms(round.decision_ms), round: ms(round.round_ms), rows: Number.isFinite(round.rows) ? plural(round.rows, "row") : "–",
    };
    for (const [name, text] of Object.entries(values)) setText(byId(`n-${name}`), text);

    const moving = (this.live && this.following) || this.timer !== 0;
    const now = performance.now();
    if (!moving || now - this.lastStrip > STRIP_MS) {
      this.lastStrip = now;
      this.#strip();
      this.#names();
      if (!this.example) this.onShow(sequence.outputsAfter(this.index, this.lengthPenalty), this.live && this.following);
    }
    this.#note(now, round);
    this.#buttons();
    if (!moving) this.#table();
  }

  // The best beam so far, token by token.
  #strip() {
    const sequence = this.sequence, [best] = sequence.outputsAfter(this.index, this.lengthPenalty);
    const way = best ? sequence.wayTo(best.path) : [];
    const from = Math.max(0, way.length - (this.live ? LIVE_STRIP_TOKENS : STRIP_TOKENS));
    byId("forest-strip").replaceChildren(
      from > 0 ? "… " : "",
      ...way.slice(from).map((step) => el("span", { class: step.drafted ? "t-accepted" : "t-own" }, step.text || label("", step.token))));
  }

  #note(now, round) {
    const sequence = this.sequence, notes = [];
    if (this.example) notes.push("This is an example of one round: press Play to see it layer by layer, or ask something to see the forest of your own answer.");
    if (this.live && this.following) {
      const past = now - this.noteFrom.at;
      if (past >= NOTE_MS) {
        const per = (value) => Math.round(((value) * 1000) / past);
        const came = this.arrived - this.noteFrom.arrived, drawn = this.drawn - this.noteFrom.drawn;
        this.sampled = came > drawn + 1 ? `Showing ${per(drawn)} of ${per(came)} rounds a second${this.calm.matches ? ", because you asked for less motion" : ""}.` : "";
        this.noteFrom = { at: now, arrived: this.arrived, drawn: this.drawn };
      }
      if (this.sampled) notes.push(this.sampled);
    } else if (!this.live && this.drawn < this.arrived - 1 && this.forest.sequences.size === 1) {
      notes.push(`Live, ${count(this.drawn)} of ${count(this.arrived)} rounds were drawn. The replay has all of them.`);
    }
    if (sequence.drafted === 0 && sequence.rounds.length > 2) {
      const why = { never: "Drafts are off in the settings.", always: "No draft node was there in time.", auto: "No draft node is there, or the server expects no gain." };
      notes.push(`No token was drafted, so the forest ${round.roots.length > 1 ? "has no branches but the beams" : "is a line"}: the large model decides one layer in each pass. ${why[this.drafts]}`);
    }
    if (sequence.run > 0) notes.push("The server that decoded this answer was lost. Another one began again.");
    if (sequence.truncated) notes.push("The answer is longer than the trace: the last rounds are not shown.");
    if (sequence.faults > 0) notes.push(`${plural(sequence.faults, "part")} of the trace could not be read.`);
    setText(byId("forest-note"), notes.join(" "));
  }

  // The round as a table, for those who do not see the picture.
  #table() {
    const box = byId("forest-table"), body = byId("forest-rows");
    const picture = this.view.picture;
    if (picture) this.view.canvas.setAttribute("aria-label", this.#words(picture));
    if (!box.open) return;
    const items = (picture?.items ?? []).filter((item) => item.kind in STATES && !item.past);
    body.replaceChildren(...items.map((item) => el("tr", {},
      el("td", {}, picture.columns[item.column]),
      el("td", { class: "token" }, label(item.text, item.token)),
      el("td", {}, describe(picture.items[item.parent]).slice(0, 80)),
      el("td", {}, STATES[item.kind]),
      el("td", {}, item.log_prob === undefined ? "–" : percent(Math.exp(item.log_prob))),
      el("td", {}, item.rank > 0 ? String(item.rank) : "–"))));
  }

  #words(picture) {
    const round = this.sequence.rounds[picture.index];
    return `Round ${picture.index + 1}: ${plural(round.roots.length, "live beam")}, ${plural(round.nodes.length, "drafted token")}, ${
      count(round.accepted)} accepted, ${plural(round.layers, "layer")} decided. The table below has each token.`;
  }
}
