// From the settings of the page to the body of a request, and from an answer to its numbers. Pure.

// Ways to choose words. sampled: temperature and the like apply. beams: the answers are one search.
export const WAYS = [
  { id: "beam_search", name: "Beams, the likeliest", beams: true, sampled: false },
  { id: "beam_sampling_without_replacement", name: "Beams, drawn, all different", beams: true, sampled: true },
  { id: "beam_sampling", name: "Beams, drawn, may be equal", beams: true, sampled: true },
  { id: "multinomial", name: "Samples, drawn one by one", beams: false, sampled: true },
  { id: "greedy", name: "The likeliest word each time", beams: false, sampled: false },
];

export const wayOf = (id) => WAYS.find((way) => way.id === id) ?? WAYS[0];

const SAMPLING = ["temperature", "top_p", "top_k", "min_p"];

function given(value) {
  return value !== null && value !== undefined && value !== "" && !Number.isNaN(value);
}

// The decoding in the words of the API.
export function decodingOf(way) {
  return way === "greedy" ? "multinomial" : way;
}

// What is drafted where the reader wants to see a forest and gives no numbers.
export const SHAPE = { draft_width: 8, draft_depth: 4 };

// settings.drafts: always, auto (where the server expects a gain) or never.
export function speculative(settings, methods = []) {
  if (settings.drafts === "never") return false;
  const object = settings.drafts === "always" ? { ...SHAPE } : {};
  if (settings.method && settings.method !== "auto") {
    object.method = settings.method;
    if (methods.some((method) => method.name === settings.method && !method.lossless)) object.allow_lossy = true;
  }
  if (given(settings.draft_width)) object.draft_width = settings.draft_width;
  if (given(settings.draft_depth)) object.draft_depth = settings.draft_depth;
  return Object.keys(object).length === 0 ? "auto" : object;
}

// {path, body} of the request that continues these turns, the last of which is a question.
export function makeRequest(settings, turns, methods) {
  const way = wayOf(settings.way), body = {};
  if (settings.model) body.model = settings.model;
  const question = turns[turns.length - 1].content;
  if (settings.chat) {
    body.messages = [];
    if (given(settings.system?.trim())) body.messages.push({ role: "system", content: settings.system });
    body.messages.push(...turns);
  } else {
    body.prompt = question;
  }
  if (given(settings.max_tokens)) body.max_tokens = settings.max_tokens;
  body.decoding = decodingOf(way.id);
  const answers = way.id === "greedy" ? 1 : given(settings.beams) ? settings.beams : 4;
  if (way.beams) body.beam_width = answers;
  body.n = answers;
  if (way.id === "greedy") body.temperature = 0;
  if (way.sampled) for (const name of SAMPLING) if (given(settings[name])) body[name] = settings[name];
  if (given(settings.repetition_penalty)) body.repetition_penalty = settings.repetition_penalty;
  if (way.beams && given(settings.length_penalty)) body.length_penalty = settings.length_penalty;
  if (given(settings.seed)) body.seed = settings.seed;
  body.speculative = speculative(settings, methods);
  return { path: settings.chat ? "v1/chat/completions" : "v1/completions", body };
}

// The parts of a streamed answer, put together.
export class AnswerText {
  constructor() {
    this.choices = [];
    this.usage = this.timings = null;
    this.model = "";
  }

  // Takes an event. Returns whether a text has grown.
  add(event) {
    if (event.usage) this.usage = event.usage;
    if (event.timings) this.timings = event.timings;
    if (event.beam_mass !== undefined) this.beam_mass = event.beam_mass;
    let grown = false;
    for (const part of event.choices ?? []) {
      const choice = (this.choices[part.index] ??= { text: "", reasoning: "", finish_reason: null });
      const text = part.text ?? part.delta?.content ?? "", reasoning = part.delta?.reasoning_content ?? "";
      choice.text += text;
      choice.reasoning += reasoning;
      grown ||= text !== "" || reasoning !== "";
      for (const name of ["finish_reason", "stop_reason", "score", "joint_logprob", "seed"])
        if (part[name] !== undefined && part[name] !== null) choice[name] = part[name];
    }
    return grown;
  }

  get done() {
    return this.choices.length > 0 && this.choices.every((choice) => choice?.finish_reason);
  }
}

// What the page shows of usage and timings.
export function figures(usage, timings) {
  const spec = usage?.speculation ?? {}, total_ms = timings?.total_ms;
  const tokens = usage?.completion_tokens;
  return {
    tokens, total_ms,
    first_ms: timings?.first_token_ms,
    tokens_per_s: tokens > 0 && total_ms > 0 ? (tokens * 1000) / total_ms : NaN,
    passes: spec.target_passes, layers: spec.layers, per_pass: spec.block_efficiency,
    drafted: spec.drafted_nodes, accepted: spec.accepted_nodes, method: spec.method,
    joules: usage?.energy_joules,
  };
}

// Whether two answers of one request say the same: "" or what differs.
export function difference(a, b) {
  if (a.length !== b.length) return `${a.length} answers and ${b.length} answers`;
  for (let i = 0; i < a.length; ++i) {
    if (a[i].text !== b[i].text || a[i].reasoning !== b[i].reasoning) return `the text of answer ${i + 1}`;
    if (a[i].finish_reason !== b[i].finish_reason) return `the end of answer ${i + 1}`;
    if (a[i].score !== b[i].score) return `the score of answer ${i + 1}`;
  }
  return "";
}
