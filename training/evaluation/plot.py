"""The plots of a run: quality against answer tokens per second, or a bar of quality with its time for each setting. Each shows the
settings that their table names, or all if it names none. Hollow points are without drafts. Colours of middle brightness on no
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


def shown(found, labels):
    """{variant: figures} of what a plot shows: variants that have a quality, of the named settings if there are any."""
    with_quality = {name: s for name, s in found.items() if s["quality"][0] is not None}
    named = {name: s for name, s in with_quality.items() if labels[name][1]}
    return named or with_quality


def save(rows, path, overview=False):
    """Writes the plot of the records to a .svg or .png file. overview: bars of quality."""
    if not str(path).endswith((".svg", ".png")):
        raise PlotError(f"{path}: expected a name that ends in .svg or .png")
    pyplot = load_pyplot()
    draw = draw_bars if overview else draw_points
    write(pyplot, draw(pyplot, report.summaries(rows), report.labels(rows), report.QUALITIES[rows[0]["task"]]), path)


def write(pyplot, figure, path):
    svg = str(path).endswith(".svg")
    try:
        figure.savefig(path, dpi=150, metadata={"Date": None} if svg else None, bbox_inches="tight")
    except OSError as error:
        raise PlotError(f"{path}: {error.strerror}") from error
    pyplot.close(figure)
    if svg:
        _shorten(path)


def draw_bars(pyplot, found, labels, quality):
    """A bar for each variant, in their order from above: quality, its interval, and the time of a question. The best has a colour."""
    bars = list(shown(found, labels).items())[::-1]
    figure, axes = pyplot.subplots(figsize=(7.2, 0.6 + 0.42 * len(bars)))
    axes.patch.set_alpha(0)
    values = [quality.scale * s["quality"][0] for _, s in bars]
    for y, ((_, s), value) in enumerate(zip(bars, values)):
        low, high = (quality.scale * (s["quality"][0] if end is None else end) for end in s["quality"][1:])
        axes.barh(y, value, height=0.62, color=COLOURS[0] if value == max(values) else GREY, xerr=[[value - low], [high - value]],
                  error_kw={"ecolor": TEXT, "elinewidth": 1})
        axes.annotate(f"{value:.{quality.digits}f}{quality.unit}, {1000 * s['seconds'][0]:.1f} ms", (max(high, 0), y), xytext=(6, 0),
                      textcoords="offset points", va="center")
    axes.set_yticks(range(len(bars)), [_label(name, labels) for name, _ in bars])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"{quality.name}{quality.axis}, and the median time of a question")
    axes.margins(x=0.22)
    figure.tight_layout()
    return figure


def _label(name, labels):
    label, _, kind = labels[name]
    return label + {"plain": "", "drafted": ", drafts", "auto": ", drafts"}[kind]


def draw_points(pyplot, found, labels, quality):
    """Quality against answer tokens per second: a point for each setting, with an arrow from without drafts to with where both were
    measured, and the interval of its quality. Dashed: the settings that no other beats in both."""
    drawn = {name: s for name, s in shown(found, labels).items() if s["answer_rate"][0] is not None}
    points = {name: (s["answer_rate"][0], quality.scale * s["quality"][0]) for name, s in drawn.items()}
    figure, axes = pyplot.subplots(figsize=(7.2, 4.2))
    axes.patch.set_alpha(0)
    axes.grid(color=GREY, alpha=0.25, linewidth=0.5)
    of, names, kinds = {}, [], set()  # {setting: {"plain" or "drafts": (tokens/s, quality)}}
    for name, point in points.items():
        kinds.add("plain" if labels[name][2] == "plain" else "drafts")
        of.setdefault(name.split("+")[0], {})["plain" if labels[name][2] == "plain" else "drafts"] = point
    for number, (setting, ends) in enumerate(of.items()):
        colour = COLOURS[number % len(COLOURS)]
        if len(ends) == 2:
            axes.annotate("", ends["drafts"], ends["plain"], zorder=2,
                          arrowprops={"arrowstyle": "-|>", "shrinkA": 4, "shrinkB": 3, "linewidth": 1.2, "color": colour})
        for name in points:
            if name.split("+")[0] == setting and drawn[name]["quality"][1] is not None:
                axes.vlines(points[name][0], *(quality.scale * end for end in drawn[name]["quality"][1:]), color=colour, linewidth=0.5, zorder=1)
        for kind, point in ends.items():
            axes.plot(*point, marker="o", markersize=6, color=colour, markerfacecolor="none" if kind == "plain" else colour, zorder=2)
        label = next(labels[name][0] for name in points if name.split("+")[0] == setting)
        names.append(axes.annotate(re.split(";|, top", label)[0], ends.get("drafts", ends.get("plain")), xytext=(7, 5),
                                   textcoords="offset points", fontsize=8, color=colour))
    front = figures.pareto_front(list(points.values()))
    axes.plot([x for x, _ in front], [y for _, y in front], color=TEXT, linewidth=0.8, linestyle="--", zorder=0)
    axes.margins(x=0.1, y=0.08)
    axes.set_xlabel("answer tokens per second, one request at a time" +
                    (" (hollow: without drafts, filled: with)" if kinds != {"plain"} else ", without drafts"))
    axes.set_ylabel(quality.name + quality.axis)
    figure.tight_layout()
    part_names(figure, names, axes.transData.transform([point for ends in of.values() for point in ends.values()]))
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


def _shorten(path):
    """Two decimals are enough for a page."""
    with open(path, encoding="utf8") as file:
        text = file.read()
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"\d+\.\d{3,}", lambda match: f"{float(match.group()):.2f}".rstrip("0").rstrip("."), text)
    with open(path, "w", encoding="utf8") as file:
        file.write(re.sub(r"\s*\n\s*", "\n", text))
