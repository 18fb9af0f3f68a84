"""A figure with lines, as an SVG file: what the scripts beside it have in common."""
import math

# Okabe and Ito's palette, whose colours stay apart for the colour-blind, and three more for figures with many
# lines.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#B8A800", "#882255",
           "#888888"]
WIDTH, HEIGHT = 820, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 230, 60, 55


def ticks(low, high, count):
    """Returns round numbers from low to high, about `count` of them."""
    raw = (high - low) / count
    power = 10 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def percent(value):
    return f"{100 * value:.4g} %"


class Figure:
    """`x` and `y` map values to shares of the figure's width and height, from 0 to 1."""

    def __init__(self, title, what, x_title, x, y):
        self._x, self._y = x, y
        self._labels = []  # (y, texts, colour)
        self._out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
                     'font-family="Helvetica, Arial, sans-serif" font-size="13" fill="#222">',
                     f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
                     f'<text x="{LEFT}" y="24" font-size="15" font-weight="bold">{title}</text>',
                     f'<text x="{LEFT}" y="44" fill="#555">{what}</text>',
                     f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 14}" text-anchor="middle">{x_title}</text>']

    def x(self, value):
        return LEFT + self._x(value) * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        return HEIGHT - BOTTOM - self._y(value) * (HEIGHT - TOP - BOTTOM)

    def x_axis(self, values):
        self._out += [f'<text x="{self.x(value):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{value:g}</text>'
                      for value in values]

    def y_axis(self, values, text):
        self._out += [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{self.y(value):.1f}" y2="{self.y(value):.1f}" '
                      f'stroke="#ddd"/><text x="{LEFT - 8}" y="{self.y(value) + 4:.1f}" text-anchor="end">{text(value)}'
                      '</text>' for value in values]

    def line(self, points, colour, dots=True, style=""):
        path = " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in points)
        self._out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"{style}/>')
        if dots:
            self._out += [f'<circle cx="{self.x(a):.1f}" cy="{self.y(b):.1f}" r="3.5" fill="{colour}"/>'
                          for a, b in points]

    def bar(self, x, low, high, colour, shift):
        at = self.x(x) + shift
        self._out.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{self.y(low):.1f}" y2="{self.y(high):.1f}" '
                         f'stroke="{colour}" stroke-width="1.5" opacity="0.6"/>')

    def dot(self, x, y, colour):
        self._out.append(f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="4" fill="{colour}"/>')

    def note(self, x, y, text, colour="#555", anchor="start"):
        """Writes text just above a point."""
        self._out.append(f'<text x="{self.x(x):.1f}" y="{self.y(y) - 6:.1f}" text-anchor="{anchor}" fill="{colour}">{text}</text>')

    def explain_crosses(self, text):
        self._out.append(f'<text x="{WIDTH - RIGHT}" y="44" text-anchor="end" fill="#555">&#215; {text}</text>')

    def cross(self, x, row, colour):
        """Marks a value of the x axis; marks of other rows are above."""
        self._out.append(f'<text x="{self.x(x):.1f}" y="{HEIGHT - BOTTOM - 3 - 10 * row}" text-anchor="middle" '
                         f'fill="{colour}" font-weight="bold">&#215;</text>')

    def label(self, point, texts, colour):
        """Puts texts, the first in colour, to the right of a line that ends at point, which a thin line
        connects with them; None: at the bottom, without one."""
        end = None if point is None else (self.x(point[0]), self.y(point[1]))
        self._labels.append((end, texts, colour))

    def _place_labels(self):
        bottom, placed = 0, []
        for end, texts, colour in sorted(self._labels, key=lambda label: label[0][1] if label[0] else HEIGHT):
            at = max(end[1] if end else HEIGHT - BOTTOM, bottom)
            bottom = at + 4 + 15 * len(texts)
            placed.append((at, end, texts, colour))
        surplus = max(0, bottom - (HEIGHT - BOTTOM + 19))
        for at, end, texts, colour in placed:
            if end:
                self._out.append(f'<line x1="{end[0]:.1f}" y1="{end[1]:.1f}" x2="{WIDTH - RIGHT + 24}" y2="{at - surplus:.1f}" '
                                 f'stroke="{colour}" stroke-width="0.8" opacity="0.6"/>')
            for i, text in enumerate(texts):
                style = f'fill="{colour}" font-weight="bold"' if i == 0 else 'fill="#555" font-size="12"'
                self._out.append(f'<text x="{WIDTH - RIGHT + 28}" y="{at - surplus + 4 + 15 * i:.1f}" {style}>{text}</text>')

    def write(self, path):
        self._place_labels()
        with open(path, "w") as file:
            file.write("\n".join(self._out + ["</svg>"]) + "\n")
