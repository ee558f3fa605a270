// The page /docs: the server's OpenAPI document, made readable.

import { byId, el, plural, setText, show } from "./dom.js";
import { startTheme } from "./theme.js";

const FOREIGN = /^(Not served|A hint|Without effect)/;  // fields of other servers, by their descriptions
const DEEPEST = 3;  // levels of objects inside of objects

class Document {
  constructor(json) {
    this.json = json;
  }

  resolve(schema) {
    for (let steps = 0; schema?.$ref && steps < 20; ++steps)
      schema = schema.$ref.slice(2).split("/").reduce((at, name) => at?.[name], this.json);
    return schema ?? {};
  }

  typeText(schema) {
    schema = this.resolve(schema);
    const alternatives = schema.anyOf ?? schema.oneOf;
    if (alternatives) return [...new Set(alternatives.map((one) => this.typeText(one)))].filter(Boolean).join(" or ");
    if (schema.const !== undefined) return JSON.stringify(schema.const);
    if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(", ");
    const type = [schema.type ?? "any value"].flat().filter((name) => name !== "null").join(" or ");
    return type === "array" && schema.items ? `list of ${this.typeText(schema.items)}` : type;
  }

  limits(schema) {
    const parts = [];
    const { minimum, maximum, exclusiveMinimum } = schema;
    if (minimum !== undefined) parts.push(`at least ${minimum}`);
    if (exclusiveMinimum !== undefined) parts.push(`above ${exclusiveMinimum}`);
    if (maximum !== undefined) parts.push(`at most ${maximum}`);
    if (schema.default !== undefined) parts.push(`default ${JSON.stringify(schema.default)}`);
    return parts.join(", ");
  }

  // The members of an object, as a table.
  members(schema, level = 0) {
    schema = this.resolve(schema);
    if (schema.type === "array") return this.members(schema.items ?? {}, level);
    const properties = Object.entries(schema.properties ?? {});
    if (properties.length === 0) return null;
    const required = new Set(schema.required ?? []);
    const row = ([name, raw]) => {
      const member = this.resolve(raw);
      const below = level < DEEPEST ? this.members(member, level + 1) : null;
      return el("tr", {},
        el("th", { scope: "row" }, el("code", {}, name), required.has(name) ? " (required)" : ""),
        el("td", {}, this.typeText(member)),
        el("td", {}, [member.description, this.limits(member)].filter(Boolean).join(" "),
          below ? el("details", {}, el("summary", {}, `Members of ${name}`), below) : null));
    };
    const table = (members) => el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Members" }, el("table", {},
      el("thead", {}, el("tr", {}, ...["Member", "Type", "Meaning"].map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, ...members.map(row))));
    const foreign = properties.filter(([, raw]) => FOREIGN.test(this.resolve(raw).description ?? ""));
    const own = properties.filter((member) => !foreign.includes(member));
    return el("div", {}, own.length > 0 ? table(own) : null,
      foreign.length > 0 ? el("details", {}, el("summary", {}, `Fields of other servers (${foreign.length})`), table(foreign)) : null);
  }

  // An endpoint. What it takes and answers is made when it is opened.
  operation(path, verb, operation) {
    const box = el("details", { "data-text": `${verb} ${path} ${operation.summary} ${(operation.tags ?? []).join(" ")}`.toLowerCase() },
      el("summary", {}, el("span", { class: "verb" }, verb.toUpperCase()), el("code", {}, path), ` ${operation.summary}`));
    box.addEventListener("toggle", () => box.append(this.#content(path, verb, operation)), { once: true });
    return box;
  }

  #content(path, verb, operation) {
    const body = operation.requestBody?.content?.["application/json"]?.schema;
    const key = (operation.security ?? []).some((one) => one.key);
    const content = el("div", { class: "doc" },
      el("p", {}, operation.summary),
      el("p", { class: "note" }, key ? "Needs a key, if this server has keys." : "Needs no key."),
      el("pre", { tabindex: 0 }, this.example(path, verb, body)));
    if (body) content.append(el("h3", {}, "Request"), this.members(body) ?? el("p", {}, "A JSON object."));
    content.append(el("h3", {}, "Answers"));
    for (const [status, raw] of Object.entries(operation.responses ?? {})) {
      const response = this.resolve(raw);
      const schema = response.content?.["application/json"]?.schema;
      const table = schema ? this.members(schema) : null;
      const text = `${status}: ${response.description ?? ""}`;
      content.append(table && status.startsWith("2") ? el("details", {}, el("summary", {}, text), table) : el("p", {}, text));
    }
    return content;
  }

  example(path, verb, body) {
    const url = new URL(path.slice(1), document.baseURI).href.replaceAll("%7B", "{").replaceAll("%7D", "}");
    if (!body) return verb === "get" ? `curl ${url}` : `curl -X ${verb.toUpperCase()} ${url}`;
    const properties = this.resolve(body).properties ?? {};
    const sample = {};
    if (properties.prompt) sample.prompt = "Once upon a time";
    if (properties.messages) sample.messages = [{ role: "user", content: "Hello" }];
    if (properties.input) sample.input = "Hello";
    if (properties.tokens) sample.tokens = [5, 6, 7];
    if (properties.target) sample.target = "cluster";
    if (sample.messages && properties.prompt) delete sample.prompt;
    return `curl ${url} -H 'Content-Type: application/json' -d '${JSON.stringify(sample)}'`;
  }
}

async function main() {
  startTheme(byId("theme"), () => {});
  const note = byId("docs-note");
  let json;
  try {
    const response = await fetch("openapi.json");
    if (!response.ok) throw new Error(`status ${response.status}`);
    json = await response.json();
  } catch (error) {
    setText(note, `The document could not be read (${error.message}). Reload the page to try again.`);
    return;
  }
  const api = new Document(json), groups = new Map();
  for (const [path, operations] of Object.entries(json.paths)) {
    for (const [verb, operation] of Object.entries(operations)) {
      const tag = operation.tags?.[0] ?? "other";
      groups.set(tag, [...(groups.get(tag) ?? []), api.operation(path, verb, operation)]);
    }
  }
  byId("docs").replaceChildren(...[...groups].map(([tag, list]) => el("section", { class: "doc" }, el("h3", {}, tag), ...list)));
  const all = [...document.querySelectorAll("[data-text]")];
  const filter = () => {
    const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    let seen = 0;
    for (const node of all) {
      const fits = words.every((word) => node.dataset.text.includes(word));
      show(node, fits);
      seen += fits ? 1 : 0;
    }
    for (const group of byId("docs").children) show(group, [...group.querySelectorAll("[data-text]")].some((node) => !node.hidden));
    setText(note, `${json.info.title} ${json.info.version}: ${plural(seen, "endpoint")} of ${all.length}.`);
  };
  byId("filter").addEventListener("input", filter);
  filter();
}

main();
