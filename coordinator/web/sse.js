// Server-sent events from text that arrives in any pieces. Pure: no fetch, no DOM.

export class SseParser {
  #rest = "";
  #data = [];
  #name = "";
  #begun = false;

  // The events that this piece completes: {name, data}. Comments are left out.
  feed(text) {
    if (!this.#begun && text) {
      this.#begun = true;
      if (text.startsWith("\uFEFF")) text = text.slice(1);
    }
    const whole = this.#rest + text;
    const events = [];
    let start = 0;
    for (let i = 0; i < whole.length; ++i) {
      const c = whole[i];
      if (c !== "\n" && c !== "\r") continue;
      if (c === "\r" && i + 1 === whole.length) break;  // a line feed may follow in the next piece
      this.#line(whole.slice(start, i), events);
      if (c === "\r" && whole[i + 1] === "\n") ++i;
      start = i + 1;
    }
    this.#rest = whole.slice(start);
    return events;
  }

  #line(line, events) {
    if (line === "") {
      if (this.#data.length > 0) events.push({ name: this.#name, data: this.#data.join("\n") });
      this.#data = [];
      this.#name = "";
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "data") this.#data.push(value);
    if (field === "event") this.#name = value;
  }
}
