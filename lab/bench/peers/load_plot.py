"""The plot of a run of load.py, an SVG drawn here: total tokens per second and time to the first token against clients, a panel for each
width. Colours of middle brightness on no background can be read on white and on dark pages."""
import math
from xml.sax.saxutils import escape

from load_figures import series

COLOURS = ("#3b82c4", "#d9573f", "#2f9e62", "#a066c9", "#c98a1b", "#1fa3a3", "#d0588f")
GREY = "#808080"
WIDTH, HEIGHT = 330, 200         # of a panel's axes
LEFT, TOP, GAP_X, GAP_Y = 56, 26, 76, 58


def steps(highest):
    """Round values from 0 to at least the highest, about five."""
    step = 10 ** math.floor(math.log10(highest / 5)) if highest > 0 else 1
    step = next(step * times for times in (1, 2, 5, 10) if highest / (step * times) <= 5)
    return [step * i for i in range(math.ceil(highest / step) + 1)]


class Panel:
    def __init__(self, column, row, title, clients, highest):
        self.x, self.y = LEFT + column * (WIDTH + GAP_X), TOP + row * (HEIGHT + GAP_Y)
        self.clients, self.ticks, self.parts = clients, steps(highest), []
        self.text(self.x, self.y - 9, title, "start")
        for tick in self.ticks:
            self.line(self.x, self.at_y(tick), self.x + WIDTH, self.at_y(tick), 0.25)
            self.text(self.x - 6, self.at_y(tick) + 3, f"{tick:g}", "end")
        for count in clients:
            self.text(self.at_x(count), self.y + HEIGHT + 14, str(count), "middle")

    def at_x(self, count):
        low, high = (math.log2(end) for end in (self.clients[0], self.clients[-1]))
        return self.x + (WIDTH * (math.log2(count) - low) / (high - low) if high > low else WIDTH / 2)

    def at_y(self, value):
        return self.y + HEIGHT * (1 - value / self.ticks[-1])

    def text(self, x, y, text, anchor, colour=GREY):
        self.parts.append(f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>')

    def line(self, x0, y0, x1, y1, opacity):
        self.parts.append(f'<path d="M{x0:.2f} {y0:.2f}L{x1:.2f} {y1:.2f}" stroke="{GREY}" stroke-opacity="{opacity}"/>')

    def curve(self, points, colour, dashed):
        """points: {clients: value}"""
        places = [(self.at_x(count), self.at_y(value)) for count, value in points.items()]
        path, dashes = "L".join(f"{x:.2f} {y:.2f}" for x, y in places), ' stroke-dasharray="5 3"' if dashed else ""
        self.parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dashes}/>')
        self.parts += [f'<circle cx="{x:.2f}" cy="{y:.2f}" r="2.4" fill="{colour}"/>' for x, y in places]


def draw(rows):
    """The SVG as text. Requires a point."""
    found = series(rows)
    widths = sorted({width for _, _, width in found})
    names = list(dict.fromkeys((engine, drafts) for engine, drafts, _ in found))
    clients = sorted({count for points in found.values() for count in points})
    whats = (("total tokens/s", lambda point: point["tokens_per_s"]),
             ("first token, s (p95)", lambda point: (point["first_token_ms"]["p95"] or 0) / 1000))
    parts = []
    for row, (what, value) in enumerate(whats):
        for column, width in enumerate(widths):
            curves = {key: {count: value(point) for count, point in points.items()} for key, points in found.items() if key[2] == width}
            panel = Panel(column, row, f"{what}: {'greedy' if width == 1 else f'beam search, width {width}'}, by clients", clients,
                          max(value for points in curves.values() for value in points.values()))
            for (engine, drafts, _), points in curves.items():
                panel.curve(points, COLOURS[names.index((engine, drafts)) % len(COLOURS)], drafts == "auto")
            parts += panel.parts
    bottom = TOP + len(whats) * (HEIGHT + GAP_Y)
    for i, (engine, drafts) in enumerate(names):
        x = LEFT + i * 130
        parts.append(f'<circle cx="{x}" cy="{bottom - 14}" r="3.5" fill="{COLOURS[i % len(COLOURS)]}"/>')
        parts.append(f'<text x="{x + 8}" y="{bottom - 10}" fill="{GREY}">{escape(engine + (", drafts" if drafts == "auto" else ""))}</text>')
    across = max(LEFT + len(widths) * (WIDTH + GAP_X) - GAP_X + 12, LEFT + len(names) * 130)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{across}" height="{bottom}" viewBox="0 0 {across} {bottom}" '
            f'font-family="DejaVu Sans, sans-serif" font-size="10">\n' + "\n".join(parts) + "\n</svg>\n")
