"""The plots of a run: quality against answer tokens per second and against block efficiency, or, for a page's first screen, against the
tokens alone. Named settings have a colour, the others are grey; hollow points are without drafts. Colours of middle brightness on no
background can be read on white and on dark pages.
Needs matplotlib (Debian: python3-matplotlib)."""
import re

from . import figures, report

COLOURS = ("#3b82c4", "#d9573f", "#2f9e62", "#a066c9", "#c98a1b", "#1fa3a3", "#d0588f", "#7d8f2a")
TEXT, GREY = "#808080", "#9a9a9a"


class PlotError(Exception):
    pass


def load_pyplot():
    try:
        import matplotlib
    except ImportError as error:
        raise PlotError("--plot needs the Python module matplotlib: install python3-matplotlib") from error
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "coppice", "font.size": 9, "font.sans-serif": ["DejaVu Sans"],
                                "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "legend.fontsize": 8,
                                "savefig.transparent": True, "text.color": TEXT, "axes.labelcolor": TEXT, "axes.edgecolor": TEXT,
                                "xtick.color": TEXT, "ytick.color": TEXT})
    from matplotlib import pyplot
    return pyplot


def draw(axes, found, labels, speed, scale):
    """All variants of one panel; `speed` names the figure on its x axis, and `scale` multiplies the quality."""
    named = [name.split("+")[0] for name, (_, is_named, kind) in labels.items() if is_named]
    colours = dict(zip(dict.fromkeys(named), COLOURS))
    seen = set()
    for name, s in found.items():
        label, _, kind = labels[name]
        colour = colours.get(name.split("+")[0])
        x, left, right = s[speed]
        if x is None or s["quality"][0] is None:
            continue
        value, low, high = (scale * (s["quality"][0] if part is None else part) for part in s["quality"])
        first = colour and label not in seen
        seen.add(label)
        axes.errorbar(x, value, xerr=None if left is None else [[x - left], [right - x]], yerr=[[value - low], [high - value]], color=colour or GREY, marker="o",
                      markersize=5 if colour else 3, markerfacecolor="none" if kind == "plain" else colour or GREY, linewidth=0.5,
                      alpha=1 if colour else 0.6, zorder=2 if colour else 1, label=label if first else None)
    front = figures.pareto_front([(s[speed][0], scale * s["quality"][0]) for s in found.values()
                                  if s[speed][0] is not None and s["quality"][0] is not None])
    axes.plot([x for x, _ in front], [y for _, y in front], color=TEXT, linewidth=0.8, linestyle="--", zorder=0)


def save(rows, path, overview=False):
    """Writes the plot of the records to a .svg or .png file. overview: one panel, in which an arrow shows what drafts do to a setting."""
    if not str(path).endswith((".svg", ".png")):
        raise PlotError(f"{path}: expected a name that ends in .svg or .png")
    pyplot = load_pyplot()
    figure = draw_overview(pyplot, rows) if overview else draw_panels(pyplot, rows)
    figure.tight_layout()
    svg = str(path).endswith(".svg")
    try:
        figure.savefig(path, dpi=150, metadata={"Date": None} if svg else None, bbox_inches="tight")
    except OSError as error:
        raise PlotError(f"{path}: {error.strerror}") from error
    pyplot.close(figure)
    if svg:
        _shorten(path)


def points(found, labels):
    """(setting, variant, answer tokens/s, quality) of what has both."""
    for name, s in found.items():
        if s["answer_rate"][0] is not None and s["quality"][0] is not None:
            yield name.split("+")[0], labels[name][2], s["answer_rate"][0], s["quality"][0]


def draw_overview(pyplot, rows):
    """Quality against answer tokens per second: an arrow for each setting, from without drafts to with."""
    found, labels = report.summaries(rows), report.labels(rows)
    quality = report.QUALITIES[rows[0]["task"]]
    named = {name.split("+")[0]: label for name, (label, is_named, _) in labels.items() if is_named}
    colours = dict(zip(named, COLOURS))
    figure, axes = pyplot.subplots(figsize=(7.2, 4.2))
    axes.patch.set_alpha(0)
    axes.grid(color=GREY, alpha=0.25, linewidth=0.5)
    of, names, marks = {}, [], []  # {setting: {"plain" or "drafts": (tokens/s, quality)}}
    for setting, kind, rate, value in points(found, labels):
        of.setdefault(setting, {})["plain" if kind == "plain" else "drafts"] = (rate, quality.scale * value)
    for setting, ends in of.items():
        colour = colours.get(setting)
        style = {"color": colour or GREY, "alpha": 1 if colour else 0.6, "zorder": 2 if colour else 1}
        if len(ends) == 2:
            arrow = {"arrowstyle": "-|>", "shrinkA": 4, "shrinkB": 3, "linewidth": 1.2 if colour else 0.6}
            axes.annotate("", ends["drafts"], ends["plain"], arrowprops={**arrow, **style})
        for kind, (x, y) in ends.items():
            axes.plot(x, y, marker="o", markersize=6 if colour else 3,
                      markerfacecolor="none" if kind == "plain" else style["color"], **style)
        if colour:
            marks += ends.values()
            names.append(axes.annotate(re.split(";|, top", named[setting])[0], ends.get("drafts", ends.get("plain")), xytext=(7, 5),
                                       textcoords="offset points", fontsize=8, color=colour))
    axes.margins(x=0.1, y=0.08)
    axes.set_xlabel("answer tokens per second, one request at a time (hollow: without drafts, filled: with)")
    axes.set_ylabel(quality.name + quality.axis)
    figure.tight_layout()
    part_names(figure, names, axes.transData.transform(marks))
    return figure


def part_names(figure, names, marks):
    """Puts each name to the right of its point or to the left, above or below, or a line further, where it touches no other and none of
    the marks (x and y in pixels); above on the right if there is no such place."""
    from matplotlib.transforms import Bbox
    renderer, taken = figure.canvas.get_renderer(), [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in marks]  # 4 is the radius of a mark
    for name in names:
        for side, y in (("left", 5), ("left", -13), ("right", 5), ("right", -13), ("left", 17), ("left", -25), ("left", 5)):
            name.xyann = (7 if side == "left" else -7, y)
            name.set_horizontalalignment(side)
            box = name.get_window_extent(renderer)
            if box.x0 > name.axes.bbox.x0 and not any(other.overlaps(box) for other in taken):
                break
        taken.append(box)


def draw_panels(pyplot, rows):
    """Quality against answer tokens per second and against block efficiency, with intervals."""
    found, labels = report.summaries(rows), report.labels(rows)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.8), sharey=True)
    quality = report.QUALITIES[rows[0]["task"]]
    draw(left, found, labels, "answer_rate", quality.scale)
    draw(right, found, labels, "block_efficiency", quality.scale)
    left.set_xlabel("answer tokens per second, on this machine")
    right.set_xlabel("layers per target pass")
    left.set_ylabel(quality.name + quality.axis)
    for axes in (left, right):
        axes.grid(color=GREY, alpha=0.25, linewidth=0.5)
        axes.patch.set_alpha(0)
    handles, texts = left.get_legend_handles_labels()
    handles = [handle[0] for handle in handles]
    figure.legend(handles, texts, loc="lower center", ncols=2, bbox_to_anchor=(0.5, -0.2),
                  title="filled: with drafts; hollow: without; dashed: the front; grey: other settings", title_fontsize=8)
    return figure


def _shorten(path):
    """Two decimals are enough for a page."""
    with open(path, encoding="utf8") as file:
        text = file.read()
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"\d+\.\d{3,}", lambda match: f"{float(match.group()):.2f}".rstrip("0").rstrip("."), text)
    with open(path, "w", encoding="utf8") as file:
        file.write(re.sub(r"\s*\n\s*", "\n", text))
