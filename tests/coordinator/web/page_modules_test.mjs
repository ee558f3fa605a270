// The modules of the page that need no browser: events, requests, and the forest as data. Run by node:
//   node page_modules_test.mjs FOLDER_OF_THE_PAGE
import assert from "node:assert/strict";
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

// A copy that says to node that its files are modules, as the page says to browsers.
const folder = mkdtempSync(join(tmpdir(), "coppice.web."));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
cpSync(process.argv[2], folder, { recursive: true });
writeFileSync(join(folder, "package.json"), '{"type": "module"}');
const load = (name) => import(pathToFileURL(join(folder, name)));

const { SseParser } = await load("sse.js");
const { Forest, SequenceForest, label, layRows, shorten } = await load("forest_model.js");
const { AnswerText, difference, figures, makeRequest, speculative } = await load("request.js");
const { EXAMPLE } = await load("example_forest.js");
const { examplesFor } = await load("examples.js");

let run = 0;
function test(name, body) {
  try {
    body();
    ++run;
  } catch (error) {
    console.error(`failed: ${name}`);
    throw error;
  }
}

// ---- events ----

const STREAM = ": keep-alive\n\ndata: {\"a\": 1}\n\nevent: named\ndata: x\ndata: y\n\ndata:z\r\n\r\ndata: ünï🌳\n\ndata: [DONE]\n\n";
const EVENTS = [
  { name: "", data: '{"a": 1}' }, { name: "named", data: "x\ny" }, { name: "", data: "z" }, { name: "", data: "ünï🌳" },
  { name: "", data: "[DONE]" },
];

test("events come out whole wherever the stream is cut", () => {
  for (let size = 1; size <= STREAM.length; ++size) {
    const parser = new SseParser(), events = [];
    for (let at = 0; at < STREAM.length; at += size) events.push(...parser.feed(STREAM.slice(at, at + size)));
    assert.deepEqual(events, EVENTS, `pieces of ${size}`);
  }
});

test("an event that is not ended is none", () => {
  assert.deepEqual(new SseParser().feed("data: half"), []);
  assert.deepEqual(new SseParser().feed("data: half\n"), []);
  assert.deepEqual(new SseParser().feed("\uFEFFdata: marked\n\n"), [{ name: "", data: "marked" }]);
});

// ---- requests ----

const SETTINGS = { model: "m", chat: false, way: "beam_search", beams: 4, max_tokens: 64, drafts: "auto", method: "auto" };
const METHODS = [{ name: "mjsd", lossless: false }, { name: "gumbel_top_k", lossless: true }];
const ask = (changes, turns = [{ role: "user", content: "Hi" }]) => makeRequest({ ...SETTINGS, ...changes }, turns, METHODS);

test("a request has the fields that its way of choosing words reads, and no other", () => {
  assert.deepEqual(ask({ temperature: 0.5, top_k: 3, seed: 7, length_penalty: 2 }), {
    path: "v1/completions",
    body: { model: "m", prompt: "Hi", max_tokens: 64, decoding: "beam_search", beam_width: 4, n: 4, length_penalty: 2, seed: 7, speculative: "auto" },
  });
  const sampled = ask({ way: "beam_sampling", temperature: 0.5, top_k: 0 }).body;
  assert.equal(sampled.temperature, 0.5);
  assert.equal(sampled.top_k, 0);
  const samples = ask({ way: "multinomial", beams: 3, length_penalty: 2 }).body;
  assert.deepEqual([samples.n, samples.beam_width, samples.length_penalty], [3, undefined, undefined]);
  const greedy = ask({ way: "greedy", temperature: 0.5 }).body;
  assert.deepEqual([greedy.decoding, greedy.temperature, greedy.n], ["multinomial", 0, 1]);
});

test("a conversation has its turns, and a system prompt if there is one", () => {
  const turns = [{ role: "user", content: "a" }, { role: "assistant", content: "b" }, { role: "user", content: "c" }];
  const chat = ask({ chat: true, system: "Be brief." }, turns);
  assert.equal(chat.path, "v1/chat/completions");
  assert.deepEqual(chat.body.messages, [{ role: "system", content: "Be brief." }, ...turns]);
  assert.deepEqual(ask({ chat: true, system: "  " }, turns).body.messages, turns);
  assert.equal(chat.body.prompt, undefined);
});

test("how to draft", () => {
  assert.equal(speculative({ drafts: "never", method: "mjsd" }, METHODS), false);
  assert.equal(speculative({ drafts: "auto", method: "auto", draft_width: null }, METHODS), "auto");
  assert.deepEqual(speculative({ drafts: "auto", method: "auto", draft_width: 8 }, METHODS), { draft_width: 8 });
  assert.deepEqual(speculative({ drafts: "auto", method: "mjsd" }, METHODS), { method: "mjsd", allow_lossy: true });
  assert.deepEqual(speculative({ drafts: "auto", method: "gumbel_top_k" }, METHODS), { method: "gumbel_top_k" });
  assert.deepEqual(speculative({ drafts: "always", method: "auto", draft_depth: 2 }, METHODS), { draft_width: 8, draft_depth: 2 });
});

test("deltas of a stream become the answer", () => {
  const answer = new AnswerText();
  assert.equal(answer.add({ choices: [{ index: 0, delta: { role: "assistant", content: "Par" } }], usage: null }), true);
  assert.equal(answer.add({ choices: [], trace: [] }), false);
  assert.equal(answer.done, false);
  answer.add({ choices: [{ index: 0, delta: { content: "is", reasoning_content: "hm" }, finish_reason: "stop", score: -1 },
    { index: 1, delta: { content: "Rome" }, finish_reason: "length", score: -2 }] });
  answer.add({ choices: [], usage: { completion_tokens: 3 }, timings: { total_ms: 30 } });
  assert.equal(answer.done, true);
  assert.deepEqual(answer.choices.map((choice) => choice.text), ["Paris", "Rome"]);
  assert.equal(answer.choices[0].reasoning, "hm");
  assert.equal(figures(answer.usage, answer.timings).tokens_per_s, 100);
  assert.ok(Number.isNaN(figures(null, null).tokens_per_s));
});

test("a race sees any difference", () => {
  const choice = { text: "a", reasoning: "", finish_reason: "stop", score: -1 };
  assert.equal(difference([choice], [{ ...choice }]), "");
  for (const change of [{ text: "b" }, { reasoning: "r" }, { finish_reason: "length" }, { score: -1.0000001 }])
    assert.notEqual(difference([choice], [{ ...choice, ...change }]), "");
  assert.notEqual(difference([choice], [choice, choice]), "");
});

// ---- the forest ----

const kinds = (picture) => picture.items.map((item) => `${item.kind}:${item.text}`);

test("a round has what was drafted, what was taken, and the target's own", () => {
  const forest = new Forest();
  assert.equal(forest.add(EXAMPLE), 2);
  const sequence = forest.sequences.get("0/0");
  assert.deepEqual([sequence.drafted, sequence.accepted, sequence.layers], [11, 5, 7]);
  assert.equal(sequence.textOf(12), "Once upon a time there was a");
  assert.deepEqual(kinds(sequence.picture(1)), [
    "trunk:Once", "beam: upon a", "beam: there was", "accepted: time", "accepted: a", "accepted: there", "rejected: in", "rejected: girl",
    "accepted: little", "accepted: was", "rejected: lived", "rejected: a", "rejected: named", "rejected: dog", "own: girl", "own: a", "own: who"]);
  const picture = sequence.picture(1);
  assert.deepEqual(picture.columns, ["so far", "beams", "4", "5", "6", "7"]);
  assert.deepEqual(picture.items.map((item) => item.parent), [-1, 0, 0, 1, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 8, 9, 14]);
  assert.deepEqual(picture.items.filter((item) => item.rank).map((item) => [item.text, item.rank]), [[" a", 1], [" who", 2]]);
  assert.deepEqual(sequence.outputsAfter(1).map((output) => output.text), ["Once upon a time there was a", "Once there was a little girl who"]);
});

test("layer by layer, drafts have no verdict", () => {
  const forest = new Forest();
  forest.add(EXAMPLE);
  const sequence = forest.sequences.get("0/0");
  assert.equal(sequence.draftLayers(1), 3);
  assert.equal(sequence.draftLayers(0), 0);
  const drafts = [1, 2, 3].map((shown) => sequence.picture(1, shown).items.filter((item) => item.kind === "draft").length);
  assert.deepEqual(drafts, [2, 6, 11]);
  assert.ok(sequence.picture(1, 3).items.every((item) => ["trunk", "beam", "draft"].includes(item.kind) && item.rank === 0));
});

test("without drafts the forest is a line", () => {
  const sequence = new SequenceForest(0, 0);
  const words = ["a", " b", " c", " d", " e", " f"];
  words.forEach((text, i) => sequence.add({
    round: i, roots: [i], nodes: [], layers: 1, paths: [{ path: i + 1, parent: i, token: i, text }], beams: [{ path: i + 1, log_score: -i, finished: false }],
  }));
  const picture = sequence.picture(5);
  assert.deepEqual(kinds(picture), ["trunk:a b", "own: c", "own: d", "own: e", "own: f"]);
  assert.deepEqual(picture.items.map((item) => item.parent), [-1, 0, 1, 2, 3]);
  assert.equal(layRows(picture.items), 1);
  assert.equal(sequence.drafted, 0);
});

test("beams that hold the same path are one item", () => {
  const sequence = new SequenceForest(0, 0);
  sequence.add({ round: 0, roots: [0, 0], nodes: [{ parent: -1, token: 5, text: "x", path: 1 }],
    paths: [{ path: 1, parent: 0, token: 5, text: "x" }, { path: 2, parent: 0, token: 5, text: "x" }], beams: [{ path: 2, log_score: -1 }] });
  const [item] = sequence.picture(0).items.filter((one) => one.kind === "accepted");
  assert.deepEqual([item.times, item.rank], [2, 1]);
});

test("a replica that was lost begins anew", () => {
  const forest = new Forest();
  forest.add(EXAMPLE);
  forest.add([{ ...EXAMPLE[0], run: 1 }]);
  const sequence = forest.sequences.get("0/0");
  assert.deepEqual([sequence.run, sequence.rounds.length, sequence.drafted, sequence.paths.size], [1, 1, 0, 6]);
});

test("several samples are several forests", () => {
  const forest = new Forest();
  forest.add([{ ...EXAMPLE[0], sample: 1 }, { ...EXAMPLE[0], prompt: 1 }, EXAMPLE[0]]);
  assert.deepEqual([...forest.sequences.keys()], ["0/1", "1/0", "0/0"]);
});

test("a trace that refers to nothing is counted, and the rest is shown", () => {
  const sequence = new SequenceForest(0, 0);
  sequence.add({ round: 0, roots: [99], nodes: [{ parent: -3, token: 1, text: "lost" }, { parent: 0, token: 1, text: "below" }],
    paths: [{ path: 5, parent: 77, token: 1, text: "?" }, { path: 6, parent: 0, token: 1, text: "ok" }], beams: [{ path: 1000 }, { path: 6 }] });
  const picture = sequence.picture(0);
  assert.deepEqual(kinds(picture), ["trunk:", "own:ok"]);
  assert.equal(sequence.faults, 2);
  assert.equal(sequence.picture(7), null);
});

test("bytes of a character that several tokens make become that character", () => {
  const sequence = new SequenceForest(0, 0);
  const paths = ["a", "bytes:\\xf0\\x9f", "bytes:\\x8c\\xb3", "!", "bytes:\\xe2", "b"].map((text, i) => ({ path: i + 1, parent: i, token: i, text }));
  sequence.add({ round: 0, roots: [0], nodes: [], layers: 6, paths, beams: [] });
  assert.deepEqual([1, 2, 3, 4, 5, 6].map((path) => sequence.textOf(path)), ["a", "a", "a🌳", "a🌳!", "a🌳!", "a🌳!\ufffdb"]);
});

test("rows keep leaves apart and parents in the middle", () => {
  const forest = new Forest();
  forest.add(EXAMPLE);
  const { items } = forest.sequences.get("0/0").picture(1);
  const rows = layRows(items);
  const leaves = items.filter((_, at) => items.every((item) => item.parent !== at)).map((item) => item.row);
  assert.equal(rows, leaves.length);
  assert.deepEqual([...leaves].sort((a, b) => a - b), leaves.map((_, i) => i));
  for (const [at, item] of items.entries()) {
    const below = items.filter((one) => one.parent === at).map((one) => one.row);
    if (below.length > 0) assert.equal(item.row, (Math.min(...below) + Math.max(...below)) / 2);
  }
});

test("labels show what cannot be seen", () => {
  assert.equal(label(" lived"), "lived");
  assert.equal(label("\n\n"), "⏎⏎");
  assert.equal(label("  "), "␣␣");
  assert.equal(label("\u00a0"), "␣");
  assert.equal(label("<|im_end|>"), "‹im_end›");
  assert.equal(label("<|"), "<|");
  assert.equal(label("", 17), "#17");
  assert.equal(shorten("abcdef", 4), "abc…");
  assert.equal(shorten("abcdef", 4, true), "…def");
  assert.equal(shorten("🌳🌳🌳", 2), "🌳…");
});

test("every kind of model has questions", () => {
  for (const [model, chat] of [["text2sql", false], ["stories260k", false], ["smollm2", true], ["text2sql", true], ["llama", false]]) {
    const row = examplesFor(model, chat);
    assert.ok(row.questions.length >= 3 && row.questions.every(([name, text]) => name && text), model);
  }
  assert.match(examplesFor("text2sql", false).questions[0][1], /^columns: .*\nquestion: .*\nsql:$/);
});

console.log(`${run} tests passed`);
