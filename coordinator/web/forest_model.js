// The forest as data: folds the rounds of a trace (docs/api.md 3.3) into one tree of paths for each
// sequence, and gives the picture of any round. Pure: no DOM, no clock.

const PROMPT = 0;  // the path that is the prompt itself

export function empty(text) {
  return text === undefined || text === "";
}

// A token that is not text by itself, as the server writes it: bytes:\xe2\x82. null: it is text.
function bytesOf(text) {
  if (!/^bytes:(\\x[0-9a-f]{2})+$/i.test(text)) return null;
  return text.slice(6).split("\\x").slice(1).map((code) => parseInt(code, 16));
}

// The text after one more token: {full, pending}. pending are bytes that no character ends yet.
function extend(parent, text) {
  const more = bytesOf(text);
  if (!more) return { full: parent.full + (parent.pending.length > 0 ? "\ufffd" : "") + text, pending: [] };
  const pending = [...parent.pending, ...more];
  try {
    return { full: parent.full + new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(pending)), pending: [] };
  } catch {
    return pending.length < 4 ? { full: parent.full, pending } : { full: `${parent.full}\ufffd`, pending: [] };
  }
}

// One sequence: what the target has decided, and the rounds in which it did.
export class SequenceForest {
  constructor(prompt, sample) {
    this.prompt = prompt;
    this.sample = sample;
    this.#begin(0);
  }

  #begin(run) {
    this.run = run;
    this.rounds = [];
    // The paths by number: {path, parent, token, text, full, pending, depth, round, drafted}.
    this.paths = new Map([[PROMPT, {
      path: PROMPT, parent: -1, token: -1, text: "", full: "", pending: [], depth: 0, round: -1, drafted: false,
    }]]);
    this.finished = [];  // outputs that have ended: {path, log_score, finished}
    this.drafted = 0;    // nodes that were drafted, and those of them that the target took
    this.accepted = 0;
    this.layers = 0;
    this.truncated = false;
    this.faults = 0;     // parts of the trace that refer to nothing
  }

  add(round) {
    if ((round.run ?? 0) !== this.run) this.#begin(round.run);
    const nodes = round.nodes ?? [], roots = round.roots ?? [];
    const taken = new Set();
    nodes.forEach((node, i) => {
      if (node.path !== undefined) taken.add(node.path);
      if (node.parent >= i || -1 - node.parent >= roots.length) ++this.faults;
    });
    for (const made of round.paths ?? []) {
      const parent = this.paths.get(made.parent);
      if (!parent) {
        ++this.faults;
        continue;
      }
      const text = made.text ?? "";
      this.paths.set(made.path, {
        path: made.path, parent: made.parent, token: made.token, text, ...extend(parent, text),
        depth: parent.depth + 1, round: this.rounds.length, drafted: taken.has(made.path),
      });
    }
    for (const beam of round.beams ?? []) if (beam.finished) this.finished.push(beam);
    const accepted = nodes.reduce((sum, node) => sum + (node.path !== undefined ? 1 : 0), 0);
    this.drafted += nodes.length;
    this.accepted += accepted;
    this.layers += round.layers ?? 0;
    this.truncated ||= Boolean(round.truncated);
    this.rounds.push({
      number: round.round ?? this.rounds.length,
      time_ms: round.time_ms, round_ms: round.round_ms, draft_wait_ms: round.draft_wait_ms,
      draft_ms: round.draft_ms, forward_ms: round.forward_ms, decision_ms: round.decision_ms,
      rows: round.rows, layers: round.layers ?? 0,
      roots, nodes, made: round.paths ?? [], beams: round.beams ?? [], accepted,
    });
  }

  textOf(path) {
    return this.paths.get(path)?.full ?? "";
  }

  // The paths from the first token to this one.
  wayTo(path) {
    const way = [];
    for (let at = this.paths.get(path); at && at.path !== PROMPT; at = this.paths.get(at.parent)) way.push(at);
    return way.reverse();
  }

  // The last path that all of these begin with.
  commonAncestor(paths) {
    let common = this.paths.get(paths[0]);
    for (const other of paths.slice(1)) {
      let at = this.paths.get(other);
      while (common && at && common !== at) {
        if (common.depth >= at.depth) common = this.paths.get(common.parent);
        else at = this.paths.get(at.parent);
      }
      if (!common || !at) return PROMPT;
    }
    return common ? common.path : PROMPT;
  }

  // What live beams and ended ones say after a round, best first: by log-probability divided by
  // length to the power of the penalty, as the answers are.
  outputsAfter(index, lengthPenalty = 1) {
    const round = this.rounds[index];
    if (!round) return [];
    const ended = [];
    for (const beam of this.finished) {
      const made = this.paths.get(beam.path);
      if (made && made.round < index) ended.push(beam);
    }
    return [...round.beams, ...ended]
      .map((beam) => {
        const tokens = this.paths.get(beam.path)?.depth ?? 0;
        return { ...beam, text: this.textOf(beam.path), tokens, score: (beam.log_score ?? -Infinity) / Math.max(1, tokens) ** lengthPenalty };
      })
      .sort((a, b) => b.score - a.score);
  }

  // The picture of a round. shown: how many layers of its drafts are drawn, without the verdict;
  // Infinity: all of them, and what the target decided. history: tokens of a lone beam that stand
  // apart from the trunk.
  picture(index, shown = Infinity, history = 3) {
    const round = this.rounds[index];
    if (!round) return null;
    const verdict = shown === Infinity;
    const known = round.roots.filter((root) => this.paths.has(root));
    const roots = known.length > 0 ? known : [PROMPT];
    const items = [];
    const put = (item) => items.push({ rank: 0, times: 1, ...item }) - 1;

    // The trunk, and the live beams that leave it.
    const lone = roots.length === 1;
    const trunkWay = this.wayTo(this.commonAncestor(roots));
    const apart = lone ? trunkWay.slice(Math.max(0, trunkWay.length - history)) : [];
    const trunkPath = apart.length > 0 ? this.paths.get(apart[0].parent) : this.paths.get(this.commonAncestor(roots));
    const trunk = put({ kind: "trunk", parent: -1, column: 0, text: trunkPath.full, tokens: trunkPath.depth, path: trunkPath.path });
    const columns = ["so far"];
    const rootItem = [];
    if (lone) {
      let parent = trunk;
      for (const step of apart) {
        columns.push(String(step.depth));
        parent = put({
          kind: step.drafted ? "accepted" : "own", parent, column: columns.length - 1, text: step.text,
          token: step.token, path: step.path, past: true,
        });
      }
      rootItem.push(parent);
    } else {
      columns.push("beams");
      for (const root of roots) {
        const full = this.textOf(root);
        rootItem.push(put({
          kind: "beam", parent: trunk, column: 1, path: root, text: full.slice(trunkPath.full.length),
          tokens: this.paths.get(root).depth - trunkPath.depth,
        }));
      }
    }
    const first = columns.length - 1;  // the column of the roots
    const depth = this.paths.get(roots[0]).depth;
    const rootOf = new Map(roots.map((root, i) => [root, rootItem[i]]));

    // The drafts. Layer 1 is the first after the roots.
    const layerOf = [], itemOf = [];
    let deepest = 0;
    round.nodes.forEach((node, i) => {
      const below = node.parent >= 0;
      const layer = below ? (layerOf[node.parent] ?? 0) + 1 : 1;
      const parent = below ? itemOf[node.parent] : rootOf.get(round.roots[-1 - node.parent]);
      layerOf[i] = layer;
      if (parent === undefined || layer > shown) return;
      deepest = Math.max(deepest, layer);
      itemOf[i] = put({
        kind: !verdict ? "draft" : node.path !== undefined ? "accepted" : "rejected",
        parent, column: first + layer, text: node.text ?? "", token: node.token,
        log_prob: node.log_prob, path: node.path,
      });
    });

    // What the target added itself, and how the beams rank now.
    if (verdict) {
      const itemOfPath = new Map(rootOf);
      items.forEach((item, at) => {
        if (item.path !== undefined && item.kind === "accepted" && !item.past) itemOfPath.set(item.path, at);
      });
      const twin = new Map();  // parent and token -> item: beams that hold the same path
      items.forEach((item, at) => item.kind === "accepted" && !item.past && twin.set(`${item.parent} ${item.token}`, at));
      for (const made of round.made) {
        if (itemOfPath.has(made.path)) continue;
        const parent = itemOfPath.get(made.parent);
        if (parent === undefined) continue;
        const name = `${parent} ${made.token}`;
        let at = twin.get(name);
        if (at === undefined) {
          at = put({
            kind: "own", parent, column: items[parent].column + 1, text: made.text ?? "",
            token: made.token, path: made.path,
          });
          twin.set(name, at);
        } else {
          ++items[at].times;
        }
        itemOfPath.set(made.path, at);
        deepest = Math.max(deepest, items[at].column - first);
      }
      const best = [...round.beams].sort((a, b) => (b.log_score ?? -Infinity) - (a.log_score ?? -Infinity));
      best.forEach((beam, i) => {
        const item = items[itemOfPath.get(beam.path)];
        if (!item) return;
        item.rank ||= i + 1;
        item.log_score ??= beam.log_score;
        item.finished ||= beam.finished;
      });
    }
    for (let layer = 1; layer <= deepest; ++layer) columns.push(String(depth + layer));
    return { index, verdict, items, columns, first, decided: verdict ? round.layers : 0, layers: this.draftLayers(index) };
  }

  // How many layers the drafts of a round have; 0: it had none.
  draftLayers(index) {
    const layerOf = [];
    let deepest = 0;
    (this.rounds[index]?.nodes ?? []).forEach((node, i) => {
      layerOf[i] = node.parent >= 0 ? (layerOf[node.parent] ?? 0) + 1 : 1;
      deepest = Math.max(deepest, layerOf[i]);
    });
    return deepest;
  }
}

// All sequences of a request.
export class Forest {
  constructor() {
    this.sequences = new Map();
  }

  // Takes the rounds of one event. Returns how many there were.
  add(rounds) {
    for (const round of rounds) {
      const name = `${round.prompt ?? 0}/${round.sample ?? 0}`;
      let sequence = this.sequences.get(name);
      if (!sequence) {
        sequence = new SequenceForest(round.prompt ?? 0, round.sample ?? 0);
        this.sequences.set(name, sequence);
      }
      sequence.add(round);
    }
    return rounds.length;
  }
}

// Gives each item of a picture a row. Leaves are in order, a parent is in the middle of its
// children. Returns the number of rows.
export function layRows(items) {
  const children = items.map(() => []);
  const tops = [];
  items.forEach((item, at) => (item.parent < 0 ? tops : children[item.parent]).push(at));
  let rows = 0;
  const visit = (at) => {
    const below = children[at];
    if (below.length === 0) {
      items[at].row = rows++;
      return;
    }
    below.forEach(visit);
    items[at].row = (items[below[0]].row + items[below[below.length - 1]].row) / 2;
  };
  tops.forEach(visit);
  return rows;
}

// A token as a label: what cannot be seen has a sign.
export function label(text, token) {
  if (empty(text)) return token === undefined || token < 0 ? "" : `#${token}`;
  if (/^[^\S\r\n\t]+$/.test(text)) return "␣".repeat(Math.min(text.length, 4));
  if (/^<\|.+\|>$/.test(text)) return `‹${text.slice(2, -2)}›`;  // a special token
  return text.replace(/\r?\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ /, "");
}

// At most so many characters: of a token the beginning, of a long text the end.
export function shorten(text, most, keepEnd = false) {
  const letters = Array.from(text);
  if (letters.length <= most) return text;
  return keepEnd ? `…${letters.slice(letters.length - most + 1).join("")}` : `${letters.slice(0, most - 1).join("")}…`;
}
