#!/usr/bin/env python3
"""Plots reports of coppice-lab --json as PNG or SVG, depending on the name of the output. Needs matplotlib (Debian:
python3-matplotlib).

  plot_lab.py temperature REPORT.json OUT.svg   acceptance at single nodes against temperature (optimal_figure1)
  plot_lab.py drafts      REPORT.json OUT.svg   acceptance at single nodes against the number of drafts (optimal_figure2)
  plot_lab.py depth       REPORT.json OUT.svg   block efficiency against depth (depth)
  plot_lab.py pareto      REPORT.json OUT.svg   quality against block efficiency, with the Pareto front (pareto)
  plot_lab.py width       REPORT.json OUT.svg   quality and block efficiency against the mean width (dsbd_figure7)

A fourth argument, names with commas, chooses some of many methods.
"""
import json
import re
import sys

COLOURS = ["#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad", "#d68910", "#555555", "#16a2b8", "#9c5a3c", "#d81b60", "#7cb342"]
MARKERS = "osv^DPX*<>"


def fail(message):
    sys.exit(f"plot_lab: {message}")


def load_pyplot():
    try:
        import matplotlib
    except ImportError:
        fail("needs the Python module matplotlib: install python3-matplotlib")
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "coppice", "font.size": 9,
                                "font.sans-serif": ["DejaVu Sans"],
                                "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
                                "grid.color": "#e4e4e4", "legend.frameon": False, "legend.fontsize": 7})
    from matplotlib import pyplot
    return pyplot


def load_report(path):
    try:
        with open(path, encoding="utf8") as file:
            report = json.load(file)
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")
    if not isinstance(report, dict) or report.get("format_version") != 2:
        fail(f"{path}: is no report of coppice-lab --json (format_version 2)")
    return report


def error_of(estimate):
    return estimate["se"] or 0


def draw_series(axes, series, dashed=()):
    """Draws one line with standard errors for each entry of series, which is {label: [(x, estimate)]}."""
    for number, (label, points) in enumerate(series.items()):
        points = sorted((x, y) for x, y in ((x, (y["value"], error_of(y))) for x, y in points))
        axes.errorbar([x for x, _ in points], [y for _, (y, _) in points], yerr=[e for _, (_, e) in points],
                      label=label, color=COLOURS[number % len(COLOURS)], marker=MARKERS[number % len(MARKERS)],
                      markersize=3.5, linewidth=1.2, linestyle="--" if label in dashed else "-")


def node_series(report, x_of):
    """The acceptance of every column, and the names of the closed forms, which are drawn dashed. Closed forms other than alpha
    are left out, because the same methods are measured too."""
    series, dashed = {}, []
    for result in report["nodes"]:
        for column in result["columns"]:
            if column["name"] == "overlap" or column["acceptance"] is None:
                continue
            if column["closed_form"] and not column["name"].startswith("alpha"):
                continue
            if column["closed_form"] and column["name"] not in dashed:
                dashed.append(column["name"])
            series.setdefault(column["name"], []).append((x_of(result), column["acceptance"]))
    return series, dashed


def chosen(items, names):
    """Those of the dictionary whose keys are named; all if there are no names."""
    for name in names:
        if name not in items:
            fail(f"the report has no '{name}'; it has {', '.join(items)}")
    return {key: item for key, item in items.items() if not names or key in names}


def plot_nodes(pyplot, report, names, x_of, label):
    if not report["nodes"]:
        fail("the report has no single nodes; run --experiment=optimal_figure1 or optimal_figure2")
    figure, axes = pyplot.subplots(figsize=(5.2, 3.4))
    series, dashed = node_series(report, x_of)
    draw_series(axes, chosen(series, names), dashed)
    axes.set_xlabel(label)
    axes.set_ylabel("acceptance at a node")
    axes.legend()
    return figure


def plot_temperature(pyplot, report, names):
    drafts = report["nodes"][0]["drafts"] if report["nodes"] else 0
    return plot_nodes(pyplot, report, names, lambda result: result["sampling"]["temperature"], f"temperature ({drafts} drafts)")


def plot_drafts(pyplot, report, names):
    return plot_nodes(pyplot, report, names, lambda result: result["drafts"], "drafts")


def cells_of(report):
    cells = [cell for cell in report["cells"] if cell["block_efficiency"] is not None]
    if not cells:
        fail("the report has no cells")
    return cells


def name_of(cell):
    return f"{cell['method']} {cell['options']}".strip()


def plot_depth(pyplot, report, names):
    figure, axes = pyplot.subplots(figsize=(5.2, 3.4))
    layers = {}
    for cell in cells_of(report):
        if cell["draft_depth"] != 0:
            layers.setdefault(name_of(cell), []).append((cell["draft_depth"], cell["block_efficiency"]))
    draw_series(axes, chosen(layers, names))
    axes.set_xlabel("depth of the draft")
    axes.set_ylabel("block efficiency")
    axes.legend()
    return figure


def pareto_front(points):
    """The points that no other point exceeds in both coordinates, from left to right."""
    front, best = [], float("-inf")
    for x, y in sorted(points, reverse=True):
        if y > best:
            front.append((x, y))
            best = y
    return front[::-1]


def plot_pareto(pyplot, report, names):
    """A line for each method, from width to width. The front is that of all methods, drawn or not."""
    figure, axes = pyplot.subplots(figsize=(6.4, 4.2))
    groups, points = {}, []  # {method: {decoding: cells}}
    for cell in cells_of(report):
        groups.setdefault(name_of(cell), {}).setdefault(cell["decoding"], []).append(cell)
        points.append((cell["block_efficiency"]["value"], cell["log_likelihood_per_token"]["value"]))
    for number, (label, decodings) in enumerate(chosen(groups, names).items()):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        for part, cells in enumerate(decodings.values()):
            x, y = ([cell[key] for cell in cells] for key in ("block_efficiency", "log_likelihood_per_token"))
            axes.errorbar([e["value"] for e in x], [e["value"] for e in y], xerr=[error_of(e) for e in x], yerr=[error_of(e) for e in y],
                          color=colour, marker=marker, markersize=4.5, linewidth=1, elinewidth=0.6, label=label if part == 0 else None)
            for cell, at, height in zip(cells, x, y):
                axes.annotate(f"{cell['width']}", (at["value"], height["value"]), textcoords="offset points", xytext=(4, 4), fontsize=7,
                              color=colour)
    front = pareto_front(points)
    axes.plot([x for x, _ in front], [y for _, y in front], color="#bbbbbb", linewidth=3, zorder=0)
    axes.set_xlabel("block efficiency: layers per forward pass of the target (numbers: W)")
    axes.set_ylabel("log-likelihood per token of the chosen hypothesis, nats")
    axes.legend()
    return figure


def plot_width(pyplot, report, names):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(8, 3.4))
    quality, speed = {}, {}
    for cell in cells_of(report):
        width = cell["output_width"]["value"]
        quality.setdefault(cell["method"], []).append((width, cell["log_likelihood_per_token"]))
        speed.setdefault(cell["method"], []).append((width, cell["block_efficiency"]))
    for axes, series, label in ((left, quality, "log-likelihood per token, nats"), (right, speed, "block efficiency")):
        draw_series(axes, chosen(series, names))
        axes.set_xlabel("mean width of a layer")
        axes.set_ylabel(label)
        for line in axes.get_lines():
            line.set_linestyle("none")
    left.legend(loc="lower right")
    return figure


def shorten_svg(path):
    """Rounds to two decimals, which is enough for a page. Removes comments and line ends."""
    with open(path, encoding="utf8") as file:
        text = file.read()
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"\d+\.\d{3,}", lambda match: f"{float(match.group()):.2f}".rstrip("0").rstrip("."), text)
    text = re.sub(r' clip-path="[^"]*"', "", text)
    with open(path, "w", encoding="utf8") as file:
        file.write(re.sub(r"\s*\n\s*", "\n", text))


PLOTS = {"temperature": plot_temperature, "drafts": plot_drafts, "depth": plot_depth, "pareto": plot_pareto,
         "width": plot_width}


def main():
    if len(sys.argv) not in (4, 5) or sys.argv[1] not in PLOTS:
        fail("expected a plot, a report and an output\n" + __doc__)
    if not sys.argv[3].endswith((".png", ".svg")):
        fail(f"{sys.argv[3]}: expected a name that ends in .png or .svg")
    report = load_report(sys.argv[2])
    pyplot = load_pyplot()
    figure = PLOTS[sys.argv[1]](pyplot, report, sys.argv[4].split(",") if len(sys.argv) == 5 else [])
    figure.tight_layout()
    svg = sys.argv[3].endswith(".svg")
    figure.savefig(sys.argv[3], dpi=150, metadata={"Date": None} if svg else None, bbox_inches="tight")
    if svg:
        shorten_svg(sys.argv[3])


if __name__ == "__main__":
    main()
