// Puts the parts of the page together.

import { Api, ApiError, KEY_NEEDED } from "./api.js";
import { BeamsPanel } from "./beams.js";
import { Chat } from "./chat.js";
import { examplesFor } from "./examples.js";
import { ForestPanel } from "./forest_panel.js";
import { Race } from "./race.js";
import { Settings } from "./settings.js";
import { Status } from "./status.js";
import { startTheme } from "./theme.js";
import { byId, el, setText, show } from "./dom.js";

const RETRY_MS = 3000;

const api = new Api();
const prompt = byId("prompt");

// Says a text to screen readers.
function announce(text) {
  setText(byId("announce"), text);
}

// Says what is wrong with what shall be sent; "": nothing.
function complain(text) {
  setText(byId("fault"), text);
  show(byId("fault"), text !== "");
}

const beams = new BeamsPanel((index) => chat.pick(index));
const forest = new ForestPanel({ announce, onShow: (outputs, live) => { if (live) beams.showLive(outputs); } });
let noTemplate = false;
let settings = null;
settings = new Settings((chatMode) => {
  setText(byId("mode-note"), chatMode ? "" : noTemplate
    ? "This model has no chat template, so the page continues your text. A chat template says how a conversation becomes one text; --chat_template gives one."
    : "The model continues your text.");
  show(byId("mode-note"), !chatMode);
  showExamples();
});
const chat = new Chat({ api, settings, forest, beams, announce, complain, onKeyNeeded: askForKey, onBusy: busy, blocked: () => race.running !== null });
const race = new Race({ api, announce, onBusy: busy });
const status = new Status(api, () => { if (!settings.model) loadModel(); });
startTheme(byId("theme"), () => forest.recolour());

function busy() {
  const on = chat.running !== null || race.running !== null;
  byId("race-run").disabled = on && race.running === null;
  setText(byId("race-run"), race.running ? "Stop the race" : "Race: with and without drafts");
  byId("send").disabled = race.running !== null;
  byId("again").disabled = on || chat.turns.length === 0;
}

function askForKey(error) {
  setText(byId("key-why"), error.code === "missing_api_key" ? "Ask whoever runs it for one." : `The server says: ${error.message}.`);
  show(byId("key-form"));
  byId("key").focus();
}

function showExamples() {
  const model = settings?.model;
  if (!model) return;
  const chatMode = byId("chat-mode").value === "chat";
  const row = examplesFor(model.id, chatMode);
  byId("examples").replaceChildren(el("p", {}, row.about), el("div", { class: "row" }, ...row.questions.map(([name, text]) =>
    el("button", { type: "button", class: "example", title: text, onclick: () => { prompt.value = text; send(); } }, name))));
}

let modelTimer = 0;
async function loadModel() {
  clearTimeout(modelTimer);
  try {
    const list = await api.get("v1/models");
    const model = list.data[0];
    if (JSON.stringify(model) !== JSON.stringify(settings.model)) {
      noTemplate = !model.capabilities.chat;
      settings.useModel(model);
      setText(byId("model"), `${model.id}${model.max_model_len ? ` · context ${model.max_model_len} tokens` : ""}`);
    }
    // The length of the context is known once a replica has joined.
    if (!model.max_model_len) modelTimer = setTimeout(loadModel, RETRY_MS);
    return true;
  } catch (error) {
    if (KEY_NEEDED.has(error.code)) askForKey(error);
    else if (error instanceof ApiError) setText(byId("model"), error.message);
    else if (settings.model && !settings.model.max_model_len) modelTimer = setTimeout(loadModel, RETRY_MS);
    return false;
  }
}

function send() {
  const text = prompt.value;
  if (chat.running || race.running) return;
  if (text.trim() === "") {
    prompt.focus();
    return;
  }
  const isChat = byId("chat-mode").value === "chat";
  chat.send(text);
  // A message has been said; a text to continue is often changed and sent again.
  if (isChat && chat.running) prompt.value = "";
}

byId("composer").noValidate = true;  // complain says it, also of a field that is folded away
byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
prompt.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
  event.preventDefault();
  send();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || (!chat.running && !race.running)) return;
  event.preventDefault();
  chat.stop();
  race.stop();
});
byId("race-run").addEventListener("click", () => {
  if (race.running) return race.stop();
  const fault = settings.fault();
  complain(fault);
  if (fault) return undefined;
  const request = chat.requestFor(prompt.value, byId("race-way").value);
  if (!request) {
    complain("Write a question first, or choose one.");
    return prompt.focus();
  }
  byId("race").scrollIntoView({ block: "nearest" });
  return race.run(request, settings.methods);
});
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const fault = api.useKey(byId("key").value);
  byId("key").value = "";
  if (fault) return setText(byId("key-why"), fault);
  loadModel().then((known) => { if (known) show(byId("key-form"), false); });
  return status.now(true);
});

loadModel();
status.now();
