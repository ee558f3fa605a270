// Draws one picture of the forest on a canvas. A state is told by shape, line and sign, and only
// then by colour: accepted is filled, solid and has a check; rejected is hollow and dashed; the
// target's own token has pointed ends.

import { label, layRows, shorten } from "./forest_model.js";
import { number, percent } from "./dom.js";

const FONT = "12px ui-monospace, Menlo, Consolas, monospace";
const LETTER = 7.25;  // width of a character of FONT
const GAP = 18;       // between columns, for the lines
const SIDES = 14;     // of a box, left and right of its text
const SIGN = 2 * LETTER, RANK = 2 * LETTER + 2;
const LEAST_LETTERS = 5, MOST_LETTERS = 12;  // of a token
const HEAD = 22;      // height of the headings
const MOST_ROW = 26, LEAST_ROW = 17, BOX = 20;

const COLOURS = ["text", "muted", "line", "panel", "paper", "accepted", "own", "rejected", "beam", "on-fill"];

export class ForestView {
  constructor(canvas, frame, tip) {
    this.canvas = canvas;
    this.frame = frame;  // the element that scrolls
    this.tip = tip;
    this.context = canvas.getContext("2d");
    this.picture = null;
    this.#forget();
    this.readColours();
    canvas.addEventListener("pointermove", (event) => this.#point(event));
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
    new ResizeObserver(() => { this.#forget(); this.draw(this.picture); }).observe(frame);
  }

  #forget() {
    this.height = this.columns = 0;
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    this.colours = Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }

  // Another sequence comes: forgets how large the last one was.
  reset() {
    this.#forget();
    this.draw(null);
  }

  #measure(picture) {
    const width = this.frame.clientWidth, room = this.frame.clientHeight - 4;
    const wide = picture.columns[1] === "beams" ? 2 : 1;  // columns with texts of several tokens
    const ofText = width < 560 ? 8 : 15;
    const fresh = this.columns === 0;
    this.columns = Math.max(this.columns, picture.columns.length - wide);
    const room_x = width - 12 - wide * (ofText * LETTER + SIDES + GAP);
    const ofToken = Math.max(LEAST_LETTERS, Math.min(MOST_LETTERS,
      Math.floor((room_x / Math.max(this.columns, 5) - SIDES - SIGN - GAP) / LETTER)));
    const left = [], letters = [];
    let x = 6;
    picture.columns.forEach((name, column) => {
      left[column] = x;
      letters[column] = column < wide ? ofText : ofToken;
      x += letters[column] * LETTER + SIDES + (column < wide ? 0 : SIGN) + GAP;
    });
    const rows = layRows(picture.items);
    const row = Math.max(LEAST_ROW, Math.min(MOST_ROW, (room - HEAD - 8) / Math.max(rows, 1)));
    // A sequence keeps the largest height that it has had, so that the picture stays in place.
    this.height = Math.max(this.height, room, HEAD + 8 + rows * row);
    return { left, letters, row, top: HEAD + 4 + Math.max(0, (this.height - HEAD - 8 - rows * row) / 2), width: Math.max(width, x - GAP + 6), height: this.height, first: fresh && x > width ? left[wide - 1] - 6 : -1 };
  }

  draw(picture) {
    this.picture = picture;
    this.boxes = [];
    const context = this.context, ratio = window.devicePixelRatio || 1;
    const place = picture ? this.#measure(picture)
      : { width: this.frame.clientWidth, height: this.frame.clientHeight - 4 };
    const width = Math.floor(place.width), height = Math.floor(place.height);
    if (this.canvas.width !== width * ratio || this.canvas.height !== height * ratio) {
      this.canvas.width = width * ratio;
      this.canvas.height = height * ratio;
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    // Where there is no room for all, the drafts are what is seen first.
    if (place.first > 0) this.frame.scrollLeft = place.first;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    if (!picture) return;
    context.font = FONT;
    context.textBaseline = "middle";
    this.#headings(picture, place);
    this.boxes = picture.items.map((item) => this.#box(item, picture, place));
    picture.items.forEach((item, at) => item.parent >= 0 && this.#edge(item, this.boxes[item.parent], this.boxes[at]));
    picture.items.forEach((item, at) => this.#node(item, this.boxes[at]));
  }

  #headings(picture, place) {
    const context = this.context;
    const firstDecided = picture.first + 1, after = picture.first + 1 + picture.decided;
    if (picture.decided > 0) {
      const right = after < place.left.length ? place.left[after] - GAP / 2 : place.width;
      context.fillStyle = this.colours.panel;
      context.fillRect(place.left[firstDecided] - GAP / 2, 0, right - place.left[firstDecided] + GAP / 2, place.height);
    }
    context.fillStyle = this.colours.muted;
    picture.columns.forEach((name, column) => {
      const text = /^\d/.test(name) ? `layer ${name}` : name;
      context.fillText(text, place.left[column], HEAD / 2);
    });
  }

  #box(item, picture, place) {
    const rank = item.rank > 0 && !item.past ? String(item.rank) : "";
    const most = place.letters[item.column] - (rank ? 2 : 0);
    const keepEnd = item.kind === "trunk" || item.kind === "beam";
    let text = label(item.text, item.token);
    if (item.kind === "trunk" && item.tokens === 0) text = "prompt";
    if (item.kind === "beam" && text === "") text = "(same so far)";
    text = shorten(text, most, keepEnd);
    const sign = item.kind === "accepted" ? "✓" : item.kind === "own" ? "◆" : "";
    const width = (Array.from(text).length + (sign ? 2 : 0)) * LETTER + (rank ? RANK : 0) + SIDES + (item.kind === "own" ? 4 : 0);
    return {
      x: place.left[item.column], y: place.top + (item.row + 0.5) * place.row, width,
      height: Math.min(BOX, place.row - 2), text, sign, rank,
    };
  }

  #edge(item, from, to) {
    const context = this.context;
    const x0 = from.x + from.width, x1 = to.x, bend = Math.max(8, (x1 - x0) / 2);
    context.beginPath();
    context.moveTo(x0, from.y);
    context.bezierCurveTo(x0 + bend, from.y, x1 - bend, to.y, x1, to.y);
    const dashed = item.kind === "rejected" || item.kind === "draft";
    context.setLineDash(dashed ? [3, 3] : []);
    context.lineWidth = item.kind === "accepted" || item.kind === "own" ? 2.5 : 1.25;
    context.strokeStyle = this.colours[{ accepted: "accepted", own: "own", beam: "beam", trunk: "beam" }[item.kind] ?? "rejected"];
    context.stroke();
    context.setLineDash([]);
  }

  #outline(kind, box) {
    const context = this.context, { x, width, height } = box, y = box.y - height / 2;
    context.beginPath();
    if (kind === "own") {
      const point = 7;
      context.moveTo(x, box.y);
      context.lineTo(x + point, y);
      context.lineTo(x + width - point, y);
      context.lineTo(x + width, box.y);
      context.lineTo(x + width - point, y + height);
      context.lineTo(x + point, y + height);
      context.closePath();
    } else {
      context.roundRect(x, y, width, height, kind === "trunk" || kind === "beam" ? 3 : height / 2);
    }
  }

  #node(item, box) {
    const context = this.context;
    const filled = item.kind === "accepted" || item.kind === "own";
    this.#outline(item.kind, box);
    if (filled) {
      context.fillStyle = this.colours[item.kind];
      context.fill();
    } else {
      context.fillStyle = this.colours.paper;
      context.fill();
      context.setLineDash(item.kind === "rejected" || item.kind === "draft" ? [3, 3] : []);
      context.lineWidth = 1.25;
      context.strokeStyle = this.colours[item.kind === "beam" || item.kind === "trunk" ? "beam" : "rejected"];
      context.stroke();
      context.setLineDash([]);
    }
    context.fillStyle = filled ? this.colours["on-fill"] : item.kind === "rejected" ? this.colours.muted : this.colours.text;
    let x = box.x + (item.kind === "own" ? 9 : 7);
    if (box.sign) {
      context.fillText(box.sign, x, box.y);
      x += SIGN;
    }
    context.fillText(box.text, x, box.y);
    if (box.rank) {
      x = box.x + box.width - (item.kind === "own" ? 9 : 8) - LETTER;
      context.fillText(box.rank, x, box.y - 0.5);
      context.strokeStyle = context.fillStyle;
      context.lineWidth = 1;
      context.strokeRect(x - 2.5, box.y - 7, LETTER + 4, 13);
    }
  }

  #point(event) {
    const rect = this.canvas.getBoundingClientRect();
    const x = event.clientX - rect.left, y = event.clientY - rect.top;
    const at = (this.boxes ?? []).findIndex((box) => x >= box.x - 3 && x <= box.x + box.width + 3 && Math.abs(y - box.y) <= box.height / 2 + 1);
    this.tip.hidden = at < 0;
    if (at < 0) return;
    const item = this.picture.items[at];
    this.tip.textContent = describe(item);
    const outer = this.frame.parentElement.getBoundingClientRect();
    this.tip.style.left = `${Math.max(0, Math.min(event.clientX - outer.left + 12, outer.width - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${event.clientY - outer.top + 16}px`;
  }
}

export const STATES = {
  draft: "drafted, not checked yet",
  accepted: "drafted and accepted",
  rejected: "drafted and rejected",
  own: "the large model's own",
};

// An item in words, for the tip and for the table.
export function describe(item) {
  if (item.kind === "trunk") return item.tokens === 0 ? "the prompt" : `${item.tokens} tokens that all beams share: “${shorten(item.text, 200, true)}”`;
  if (item.kind === "beam") return `a live beam, ${item.tokens} tokens after the shared part: “${shorten(item.text, 200, true)}”`;
  const parts = [`“${item.text || `#${item.token}`}”`, item.past ? (item.kind === "own" ? STATES.own : STATES.accepted) : STATES[item.kind]];
  if (item.log_prob !== undefined) parts.push(`the draft gave it ${percent(Math.exp(item.log_prob))}`);
  if (item.times > 1) parts.push(`held by ${item.times} beams`);
  if (item.rank > 0) parts.push(`now beam ${item.rank}${Number.isFinite(item.log_score) ? `, log-probability ${number(item.log_score, 2)}` : ""}`);
  if (item.finished) parts.push("ended");
  return parts.join(" · ");
}
