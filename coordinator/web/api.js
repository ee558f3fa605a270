// The server as the page uses it: JSON, streams of events, errors, and the key, which is kept in
// memory only.

import { SseParser } from "./sse.js";

// The server has refused or failed: its own message.
export class ApiError extends Error {
  constructor(status, error) {
    super(error?.message || `The server answered with status ${status}.`);
    this.status = status;
    this.code = error?.code || "";
    this.param = error?.param || "";
  }
}

// No answer, or one that ended too early.
export class ConnectionLost extends Error {
  constructor() {
    super("The connection to the server was lost.");
  }
}

export const KEY_NEEDED = new Set(["missing_api_key", "invalid_api_key"]);

export class Api {
  #key = "";

  get hasKey() {
    return this.#key !== "";
  }

  // "", or why it can be no key.
  useKey(key) {
    const plain = key.trim();
    if (!/^[\x21-\x7e]*$/.test(plain)) return "A key has letters, digits and signs of ASCII only, and no space.";
    this.#key = plain;
    return "";
  }

  async #fetch(path, options = {}) {
    const headers = { ...options.headers };
    if (this.#key) headers.Authorization = `Bearer ${this.#key}`;
    try {
      return await fetch(path, {
        ...options, headers, credentials: "omit", cache: "no-store", referrerPolicy: "same-origin",
      });
    } catch (error) {
      if (error.name === "AbortError" || error.name === "TimeoutError") throw error;
      throw new ConnectionLost();
    }
  }

  static async #refusal(response) {
    let error = null;
    try {
      error = (await response.json()).error;
    } catch {
      // not an answer of this server: the status has to do
    }
    return new ApiError(response.status, error);
  }

  async get(path, timeout_ms = 10000) {
    const response = await this.#fetch(path, { signal: AbortSignal.timeout(timeout_ms) });
    if (!response.ok) throw await Api.#refusal(response);
    try {
      return await response.json();
    } catch {
      throw new ConnectionLost();
    }
  }

  #post(path, body, signal) {
    return this.#fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
  }

  async post(path, body, signal) {
    const response = await this.#post(path, body, signal);
    if (!response.ok) throw await Api.#refusal(response);
    try {
      return await response.json();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ConnectionLost();
    }
  }

  // Calls onEvent for each event of the answer. Ends when the server says [DONE]. It throws
  // ApiError, ConnectionLost, or an AbortError after signal. Nothing is ever sent again.
  async stream(path, body, signal, onEvent) {
    const response = await this.#post(path, { ...body, stream: true }, signal);
    if (!response.ok) throw await Api.#refusal(response);
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    const parser = new SseParser();
    try {
      for (;;) {
        let piece;
        try {
          piece = await reader.read();
        } catch (error) {
          if (error.name === "AbortError") throw error;
          throw new ConnectionLost();
        }
        if (piece.done) throw new ConnectionLost();
        for (const { data } of parser.feed(decoder.decode(piece.value, { stream: true }))) {
          if (data === "[DONE]") return;
          const event = JSON.parse(data);
          if (event.error) throw new ApiError(response.status, event.error);
          onEvent(event);
        }
      }
    } finally {
      reader.cancel().catch(() => {});
    }
  }
}
