"""Parts of an HTML page as text: pictures in SVG, tables and paragraphs."""

import re
import string
import zlib
from typing import Any, Dict, List, Sequence, Tuple

from .words import parts_of

_FRAGMENTS = parts_of("page.html")
_INK = "#222222"
_STRIPES = ("", "M0,6 L6,0", "M0,0 L6,6", "M3,0 L3,6")

PixelPath = Sequence[Tuple[float, float]]
Stroke = Dict[str, Any]  # the attributes of a line


def stroke(color: str, width: float = 1, dashes: str = "") -> Stroke:
    """Returns a stroke; dashes: "6 3"."""
    more = {"stroke_dasharray": dashes} if dashes else {}
    return {"stroke": color, "stroke_width": width, **more}


def escape_xml(text: str) -> str:
    """Escapes text for XML and HTML: "<" becomes "&lt;", for example."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def text_width(text: str, size: float) -> float:
    """Returns an upper bound of the width of a number, in any of the fonts that pictures are shown with:
    Helvetica's digits are 0.56 of the size wide, those of DejaVu Sans, which many Linux systems have in its
    place, 0.64."""
    return 0.64 * size * len(text)


class Svg:
    """An SVG picture, element by element. Units: CSS pixels of the picture's own size; y grows downwards."""

    def __init__(self, width: float, height: float, label: str) -> None:
        """`label` is the text for screen readers."""
        size = {"width": "%.0f" % width, "height": "%.0f" % height}
        self._parts: List[str] = [fragment("svg", label=escape_xml(label), **size)]
        self._prefix = "s%x" % (zlib.crc32(label.encode("utf-8", "replace")) & 0xFFFFFF)  # of ids in the page

    def add(self, tag: str, text: str = "", **attributes: Any) -> None:
        """Adds an element. Its numbers have one decimal, and "_" in names of attributes stands for "-"."""
        words = ["<" + tag]
        for name, value in attributes.items():
            value = value if isinstance(value, str) else "%.1f" % value
            words.append('%s="%s"' % (name.replace("_", "-"), value))
        self._parts.append(" ".join(words) + (">%s</%s>\n" % (escape_xml(text), tag) if text else "/>\n"))

    def line(self, x1: float, y1: float, x2: float, y2: float, stroke: Stroke) -> None:
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, **stroke)

    def path(self, points: PixelPath, stroke: Stroke) -> None:
        self.add("polyline", points=_points(points), fill="none", stroke_linejoin="round", **stroke)

    def area(self, points: PixelPath, fill: str, opacity: float = 1) -> None:
        self.add("polygon", points=_points(points), fill=fill, fill_opacity="%.2f" % opacity, stroke="none")

    def rectangle(self, x: float, y: float, width: float, height: float, fill: str, border: str) -> None:
        """`fill` is a colour, or what pattern() has returned."""
        self.add("rect", x=x, y=y, width=width, height=height, fill=fill, stroke=border)

    def marker(self, x: float, y: float, shape: int, color: str) -> None:
        """shape: 0 circle, 1 square, 2 triangle, 3 diamond."""
        r = 3.5
        if shape == 0:
            self.add("circle", cx=x, cy=y, r=r, fill=color)
        elif shape == 1:
            self.rectangle(x - r, y - r, 2 * r, 2 * r, color, "none")
        elif shape == 2:
            self.area([(x - r - 0.5, y + r), (x + r + 0.5, y + r), (x, y - r - 1)], color)
        else:
            self.area([(x - r - 1, y), (x, y - r - 1), (x + r + 1, y), (x, y + r + 1)], color)

    def begin_clip(self, x: float, y: float, width: float, height: float) -> None:
        """Clips all elements until end_clip() to the rectangle."""
        name = self._id()
        self._parts.append('<clipPath id="%s">' % name)
        self.add("rect", x=x, y=y, width=width, height=height)
        self._parts.append('</clipPath><g clip-path="url(#%s)">\n' % name)

    def end_clip(self) -> None:
        self._parts.append("</g>\n")

    def begin_hint(self, text: str) -> None:
        """Shows the text where the pointer is on an element until end_hint()."""
        self._parts.append("<g><title>%s</title>" % escape_xml(text))

    end_hint = end_clip

    def text(self, x: float, y: float, text: str, anchor: str, size: int = 12, color: str = _INK) -> None:
        """anchor: start, middle, end."""
        self.add("text", text, x=x, y=y, text_anchor=anchor, font_size=str(size), fill=color)

    def vertical_text(self, x: float, y: float, text: str) -> None:
        """Draws text upwards, centred at the point."""
        place = "translate(%.1f %.1f) rotate(-90)" % (x, y)
        self.add("text", text, transform=place, text_anchor="middle", font_size="12", fill=_INK)

    def pattern(self, color: str, kind: int) -> str:
        """Defines stripes over a colour, which are visible also without colour: kind 0 plain, 1 rising, 2
        falling, 3 upright. Returns a value for `fill`."""
        if kind == 0:
            return color
        name = self._id()
        self._parts.append(fragment("stripes", id=name, color=color, path=_STRIPES[kind]))
        return "url(#%s)" % name

    def finish(self) -> str:
        return "".join(self._parts) + "</svg>\n"

    def _id(self) -> str:
        return "%s-%d" % (self._prefix, len(self._parts))


def _points(points: PixelPath) -> str:
    return " ".join("%.1f,%.1f" % point for point in points)


class Html(str):
    """The text of a cell that is HTML already."""


def html_table(rows: Sequence[Sequence[str]], left: int = 1, keys: Sequence[str] = (), kind: str = "") -> str:
    """Returns a table with `rows` of text, the first of which is the head. The first `left` columns are
    aligned to the left, the others to the right. `keys` identify the rows below the head when a page is
    updated; `kind` is a class of the table."""
    lines: List[str] = []
    for row in rows:
        begin, end = ("<td", "</td>") if lines else ('<th scope="col"', "</th>")
        classes = [' class="left"' if c < left else "" for c in range(len(row))]
        texts = [cell if isinstance(cell, Html) else escape_xml(cell) for cell in row]
        cells = [begin + name + ">" + cell + end for name, cell in zip(classes, texts)]
        key = ' data-key="%s"' % escape_xml(keys[len(lines) - 1]) if keys and lines else ""
        lines.append("<tr%s>%s</tr>\n" % (key, "".join(cells)))
    name = ' class="%s"' % kind if kind else ""
    return '<div class="table"><table%s>\n%s</table></div>\n' % (name, "".join(lines))


def html_paragraph(text: str) -> str:
    return "<p>%s</p>\n" % escape_xml(text)


def html_command(command: str) -> str:
    """Returns a shell's command as a block to copy it from, with each flag in a line of its own. Words with
    spaces are in single quotes, as by shell_quoted."""
    parts = re.compile(r"('[^']*(?:'|$)|\\.)| (?=--)", re.DOTALL)
    lines = parts.sub(lambda match: match.group(1) or " \\\n    ", command)
    return '<pre class="command">%s</pre>\n' % escape_xml(lines)


def html_figure(pictures: Sequence[str], caption: str) -> str:
    """Returns a figure; empty without pictures, of which empty ones are left out."""
    return (
        fragment("figure", pictures="".join(pictures), caption=escape_xml(caption)) if any(pictures) else ""
    )


def fragment(name: str, **values: str) -> str:
    """Returns a part of page.html, with values that are HTML."""
    return string.Template(_FRAGMENTS[name]).substitute(values)


def html_page(title: str, body: str) -> str:
    return fragment("page", title=escape_xml(title), body=body)
