// The settings of the page: what the served model offers, and what the reader has chosen.

import { SHAPE, WAYS, decodingOf, wayOf } from "./request.js";
import { byId, el, setText, show } from "./dom.js";

const NUMBERS = ["beams", "max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
  "length_penalty", "seed", "draft_width", "draft_depth"];
const DRAFT_FIELDS = ["method", "draft_width", "draft_depth"];
const SAMPLED_FIELDS = ["temperature", "top_p", "top_k", "min_p"];

export class Settings {
  // onMode: called when the page changes between conversation and text.
  constructor(onMode) {
    this.onMode = onMode;
    this.model = null;
    byId("way").replaceChildren(...WAYS.map((way) => el("option", { value: way.id }, way.name)));
    byId("method").replaceChildren(el("option", { value: "auto" }, "auto"));
    for (const id of ["way", "chat-mode", "drafts", "method"]) byId(id).addEventListener("change", () => this.#apply());
    this.#apply();
  }

  // The entry of /v1/models that is served.
  useModel(model) {
    const can = model.capabilities;
    if (!this.model) byId("chat-mode").value = can.chat ? "chat" : "text";
    this.model = model;
    byId("chat-mode").querySelector("[value=chat]").disabled = !can.chat;
    setText(byId("chat-mode-note"), can.chat ? "A conversation uses the model's chat template."
      : "This model has no chat template, so it can only continue a text.");
    byId("beams").max = Math.min(can.max_beam_width, can.max_n);
    byId("draft_width").max = can.max_draft_width;
    byId("draft_depth").max = can.max_draft_depth;
    if (model.max_model_len > 0) {
      const longest = byId("max_tokens");
      longest.max = model.max_model_len;
      if (Number(longest.value) > model.max_model_len / 2) longest.value = Math.max(1, Math.floor(model.max_model_len / 2));
    }
    for (const [name, value] of Object.entries(model.default_sampling_params ?? {}))
      if (byId(name)) byId(name).placeholder = `${value} (of the model)`;
    this.#apply();
  }

  get methods() {
    return this.model?.capabilities.methods ?? [];
  }

  // What depends on what: a field without effect is off.
  #apply() {
    const way = wayOf(byId("way").value), drafts = byId("drafts").value;
    byId("beams").disabled = way.id === "greedy";
    for (const id of SAMPLED_FIELDS) byId(id).disabled = !way.sampled;
    byId("seed").disabled = !way.sampled;
    byId("length_penalty").disabled = !way.beams;
    for (const id of DRAFT_FIELDS) byId(id).disabled = drafts === "never";
    for (const [name, value] of Object.entries(SHAPE)) byId(name).placeholder = drafts === "always" ? value : "the server chooses";

    const method = byId("method"), chosen = method.value;
    const fit = this.methods.filter((row) => row.decodings.includes(decodingOf(way.id)) && row.sampling_scopes.includes("row")
      && (!row.greedy_only || way.id === "greedy" || way.id === "beam_search") && row.draft_form !== "none");
    method.replaceChildren(el("option", { value: "auto" }, "auto: an exact one"),
      ...fit.map((row) => el("option", { value: row.name }, row.lossless ? row.name : `${row.name} (lossy)`)));
    method.value = fit.some((row) => row.name === chosen) ? chosen : "auto";
    const row = fit.find((known) => known.name === method.value);
    setText(byId("method-note"), !row ? "How drafts are checked. The server chooses."
      : row.lossless ? "Exact: the answers are distributed as if the large model wrote alone."
      : "Lossy: this method changes what the large model would write.");

    const chat = byId("chat-mode").value === "chat";
    show(byId("system-field"), chat);
    setText(byId("prompt-label"), chat ? "Your message" : "A text to continue");
    this.onMode?.(chat);
  }

  // "" or what is wrong with a field.
  fault() {
    for (const name of NUMBERS) {
      const field = byId(name);
      if (field.disabled || field.validity.valid) continue;
      byId("settings").open = true;
      field.focus();
      return `${document.querySelector(`label[for=${name}]`).textContent}: ${field.validationMessage}`;
    }
    return "";
  }

  read() {
    const settings = {
      model: this.model?.id, chat: byId("chat-mode").value === "chat", system: byId("system").value,
      way: byId("way").value, drafts: byId("drafts").value, method: byId("method").value,
    };
    for (const name of NUMBERS) {
      const field = byId(name);
      settings[name] = field.disabled || field.value === "" ? null : Number(field.value);
    }
    return settings;
  }
}
