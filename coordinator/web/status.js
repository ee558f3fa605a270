// The state of the cluster: asked every two seconds while the page is seen, and less often while
// the server does not answer.

import { ApiError } from "./api.js";
import { byId, count, el, number, percent, plural, setText, show } from "./dom.js";

const EVERY_MS = 2000, LONGEST_MS = 15000;

const STATES = {
  ready: ["●", "ready"], starting: ["◌", "starting"], draining: ["◐", "draining"], lost: ["✕", "lost"],
  no_replica: ["✕", "no replica is ready"], unreachable: ["✕", "not reached"],
};

function stateText(state) {
  const [sign, words] = STATES[state] ?? ["?", state];
  return `${sign} ${words}`;
}

function kvText(kv) {
  if (!kv?.blocks_total) return "–";
  return `${count(kv.blocks_used)} of ${count(kv.blocks_total)} blocks (${percent(kv.blocks_used / kv.blocks_total)})`;
}

const lastPart = (path) => (path ?? "").split("/").filter(Boolean).pop() ?? "";

export class Status {
  // onBack: called when the server answers again after it did not.
  constructor(api, onBack) {
    this.api = api;
    this.onBack = onBack;
    this.failures = 0;
    this.refused = null;  // why /cluster is not for this page
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.now(); });
  }

  // Asks at once, also for /cluster again.
  now(again = false) {
    if (again) this.refused = null;
    clearTimeout(this.timer);
    this.#ask();
  }

  async #ask() {
    const turn = this.turn = (this.turn ?? 0) + 1;
    try {
      let ready = "ready", reason = "";
      try {
        await this.api.get("ready");
      } catch (error) {
        if (!(error instanceof ApiError) || error.status !== 503) throw error;
        ready = error.code || "lost";
        reason = error.message;
      }
      let cluster = null;
      if (!this.refused) {
        try {
          cluster = await this.api.get("cluster");
        } catch (error) {
          if (!(error instanceof ApiError) || ![401, 403].includes(error.status)) throw error;
          this.refused = error;
        }
      }
      if (turn !== this.turn) return;
      this.#reached();
      this.#show(cluster?.state ?? ready, reason, cluster);
    } catch {
      if (turn !== this.turn) return;
      ++this.failures;
      this.#lost();
    }
    clearTimeout(this.timer);
    if (!document.hidden) this.timer = setTimeout(() => this.#ask(), this.#wait());
  }

  #wait() {
    return this.failures === 0 ? EVERY_MS : Math.min(LONGEST_MS, 1000 * 2 ** (this.failures - 1));
  }

  #lost() {
    show(byId("banner"));
    setText(byId("banner"), `The server does not answer. The page asks again every ${plural(this.#wait() / 1000, "second")}. Nothing that you sent is sent again.`);
    setText(byId("state"), stateText("unreachable"));
    byId("state").dataset.state = "lost";
    setText(byId("cluster-note"), `${stateText("unreachable")}. What stands here is how it was before.`);
  }

  #reached() {
    if (this.failures === 0) return;
    this.failures = 0;
    show(byId("banner"), false);
    setText(byId("banner"), "");
    this.onBack();
  }

  #show(state, reason, cluster) {
    setText(byId("state"), stateText(state));
    byId("state").dataset.state = state === "ready" ? "ready" : state === "starting" || state === "draining" ? "waiting" : "lost";
    const body = byId("cluster-body");
    if (!cluster) {
      const why = this.api.hasKey ? "Only an admin sees the list of nodes, and this key is not an admin's."
        : this.refused?.status === 401 ? "The list of nodes needs an admin's key."
        : "Only an admin sees the list of nodes: open this page on the coordinator's own host, or give an admin's key.";
      setText(byId("cluster-note"), `${stateText(state)}${reason ? `: ${reason}` : ""}. ${why}`);
      if (body.firstChild?.id === "give-key") return;
      this.shown = "";
      body.replaceChildren(el("button", { id: "give-key", type: "button", onclick: () => { show(byId("key-form")); byId("key").focus(); } }, "Give a key"));
      return;
    }
    const { running, waiting } = cluster.requests;
    setText(byId("cluster-note"), `${stateText(state)} · version ${cluster.version} · ${plural(running, "request runs", "requests run")}, ${plural(waiting, "waits", "wait")}`);
    const nodes = [
      ...cluster.replicas.map((node) => ({ ...node, role: "replica (large model)", work: plural(node.running, "sequence") })),
      ...cluster.draft_nodes.map((node) => ({ ...node, role: "draft node (small model)", work: plural(node.sessions, "session") })),
    ];
    const text = JSON.stringify(nodes.map((node) => [node.id, node.state, node.reason, node.work, node.kv])) + JSON.stringify(cluster.events);
    if (text === this.shown && body.firstChild) return;
    this.shown = text;
    // What the reader has opened or is in stays so.
    const open = body.querySelector("details")?.open ?? false, focused = document.activeElement;
    const place = body.contains(focused) ? focused.tagName.toLowerCase() : "";
    body.replaceChildren(
      nodes.length === 0 ? el("p", {}, "No node has joined yet.") : el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Nodes" },
        el("table", {},
          el("thead", {}, el("tr", {}, ...["Node", "What it is", "State", "Model", "Work", "KV memory"].map((name) => el("th", { scope: "col" }, name)))),
          el("tbody", {}, ...nodes.map((node) => el("tr", {},
            el("th", { scope: "row" }, node.id),
            el("td", {}, node.role),
            el("td", {}, `${stateText(node.state)}${node.reason ? `: ${node.reason}` : ""}`),
            el("td", {}, [lastPart(node.model), node.dtype, node.kv_dtype === "I8" ? "KV I8" : "", node.backend].filter(Boolean).join(", ")),
            el("td", {}, node.work),
            el("td", {}, kvText(node.kv))))))),
      cluster.events.length === 0 ? "" : el("details", { open }, el("summary", {}, `Last events (${number(cluster.events.length, 0)})`),
        el("ul", {}, ...cluster.events.slice(-8).reverse().map((event) => el("li", {},
          `${new Date(event.time * 1000).toLocaleTimeString("en-GB")} ${event.what}`)))));
    if (place) body.querySelector(place)?.focus();
  }
}
