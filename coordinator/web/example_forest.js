// A small forest for the first visit, in the form of a trace. Two beams, drafts of three layers; the
// target adds a token to each and corrects one.

const node = (parent, text, log_prob, path) => ({ parent, token: 0, text, log_prob, ...(path ? { path } : {}) });
const made = (path, parent, text) => ({ path, parent, token: path, text });

export const EXAMPLE = [
  {
    round: 0, layers: 3, roots: [0], nodes: [],
    paths: [made(1, 0, "Once"), made(2, 1, " upon"), made(3, 1, " there"), made(4, 2, " a"), made(5, 3, " was")],
    beams: [{ path: 4, log_score: -0.9 }, { path: 5, log_score: -1.4 }],
  },
  {
    round: 1, layers: 4, roots: [4, 5],
    nodes: [
      node(-1, " time", -0.1, 6), node(-2, " a", -0.4, 7),
      node(0, " there", -0.7, 8), node(0, " in", -1.2), node(1, " girl", -1.1), node(1, " little", -0.9, 9),
      node(2, " was", -0.5, 10), node(2, " lived", -1.3), node(3, " a", -0.8), node(4, " named", -0.6), node(5, " dog", -1.5),
    ],
    paths: [
      made(6, 4, " time"), made(7, 5, " a"), made(8, 6, " there"), made(9, 7, " little"), made(10, 8, " was"),
      made(11, 9, " girl"), made(12, 10, " a"), made(13, 11, " who"),
    ],
    beams: [{ path: 12, log_score: -2.1 }, { path: 13, log_score: -2.9 }],
  },
];
