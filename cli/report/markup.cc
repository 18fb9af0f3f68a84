#include "cli/report/markup.h"

#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace catchment {
namespace {

constexpr char kStyle[] = R"(
body { font: 15px/1.5 Helvetica, Arial, sans-serif; color: #222; max-width: 1000px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; margin-bottom: 0.2em; }
h2 { font-size: 1.2em; margin-top: 2em; border-bottom: 1px solid #ccc; break-after: avoid; }
.answer { font-size: 1.15em; border-left: 5px solid #0072B2; padding: 0.4em 1em; background: #f3f7fa; }
figure { margin: 1em 0; break-inside: avoid; }
figure .pictures { display: flex; flex-wrap: wrap; gap: 16px; align-items: flex-start; overflow-x: auto; }
figure svg { flex: 1 1 calc(0.75 * var(--width)); min-width: calc(0.75 * var(--width)); max-width: var(--width); height: auto; }
figcaption { color: #555; font-size: 0.9em; }
.table { overflow-x: auto; margin: 1em 0; }
table { border-collapse: collapse; font-size: 0.85em; }
th, td { padding: 0.2em 0.7em; text-align: right; border-bottom: 1px solid #ddd; vertical-align: top; white-space: nowrap; }
td:last-child { white-space: normal; min-width: 9em; }
th { border-bottom: 2px solid #888; white-space: normal; vertical-align: bottom; }
th.left, td.left { text-align: left; }
tr { break-inside: avoid; }
pre { font-size: 0.8em; background: #f6f6f6; padding: 0.8em; white-space: pre-wrap; overflow-wrap: anywhere; }
pre.command { white-space: pre; overflow-x: auto; }
@media print {
  body { margin: 0; max-width: none; font-size: 11px; padding: 0; }
  figure .pictures { flex-wrap: nowrap; }
  figure svg { min-width: 0; }
  td { white-space: normal; }
  pre.command { white-space: pre-wrap; }
  pre.job { columns: 2; }
}
@page { size: A4; margin: 15mm; }
)";

std::string Points(const PixelPath& points) {
  return absl::StrJoin(points, " ", [](std::string* out, const std::pair<double, double>& point) {
    absl::StrAppendFormat(out, "%.1f,%.1f", point.first, point.second);
  });
}

std::string Attributes(const Stroke& stroke) {
  const std::string dashes =
      stroke.dashes.empty() ? "" : absl::StrCat(" stroke-dasharray=\"", stroke.dashes, "\"");
  return absl::StrFormat("stroke=\"%s\" stroke-width=\"%.1f\"%s", stroke.color, stroke.width, dashes);
}

const char* Name(Anchor anchor) {
  return anchor == Anchor::kStart ? "start" : anchor == Anchor::kMiddle ? "middle" : "end";
}

}  // namespace

std::string EscapeXml(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// Helvetica's digits are 0.56 of the size wide, those of DejaVu Sans, which many Linux systems have in its
// place, 0.64.
double TextWidth(const std::string& text, double size) {
  return 0.64 * size * static_cast<double>(text.size());
}

Svg::Svg(double width, double height, const std::string& label)
    : prefix_(absl::StrFormat("s%x", std::hash<std::string>()(label) & 0xffffff)) {
  text_ = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" "
      "style=\"--width: %.0fpx\" role=\"img\" "
      "aria-label=\"%s\" font-family=\"Helvetica, Arial, sans-serif\">\n",
      width, height, width, height, width, EscapeXml(label));
}

void Svg::Line(double x1, double y1, double x2, double y2, const Stroke& stroke) {
  absl::StrAppendFormat(&text_, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2,
                        y2, Attributes(stroke));
}

void Svg::Path(const PixelPath& points, const Stroke& stroke) {
  absl::StrAppendFormat(&text_, "<polyline points=\"%s\" fill=\"none\" stroke-linejoin=\"round\" %s/>\n",
                        Points(points), Attributes(stroke));
}

void Svg::Area(const PixelPath& points, const std::string& fill, double opacity) {
  absl::StrAppendFormat(&text_,
                        "<polygon points=\"%s\" fill=\"%s\" fill-opacity=\"%.2f\" stroke=\"none\"/>\n",
                        Points(points), fill, opacity);
}

void Svg::Rectangle(double x, double y, double width, double height, const std::string& fill,
                    const std::string& border) {
  absl::StrAppendFormat(
      &text_, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\" stroke=\"%s\"/>\n", x,
      y, width, height, fill, border);
}

void Svg::Marker(double x, double y, int shape, const std::string& color) {
  constexpr double r = 3.5;
  if (shape % 4 == 0) {
    absl::StrAppendFormat(&text_, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"/>\n", x, y, r,
                          color);
  } else if (shape % 4 == 1) {
    Rectangle(x - r, y - r, 2 * r, 2 * r, color);
  } else if (shape % 4 == 2) {
    Area({{x - r - 0.5, y + r}, {x + r + 0.5, y + r}, {x, y - r - 1}}, color, 1);
  } else {
    Area({{x - r - 1, y}, {x, y - r - 1}, {x + r + 1, y}, {x, y + r + 1}}, color, 1);
  }
}

void Svg::BeginClip(double x, double y, double width, double height) {
  const std::string id = absl::StrCat(prefix_, "c", ids_++);
  absl::StrAppendFormat(
      &text_,
      "<clipPath id=\"%s\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/></clipPath>"
      "<g clip-path=\"url(#%s)\">\n",
      id, x, y, width, height, id);
}

void Svg::EndClip() { absl::StrAppend(&text_, "</g>\n"); }

void Svg::Text(double x, double y, const std::string& text, Anchor anchor, double size,
               const std::string& color) {
  absl::StrAppendFormat(
      &text_, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%.0f\" fill=\"%s\">%s</text>\n", x,
      y, Name(anchor), size, color, EscapeXml(text));
}

void Svg::VerticalText(double x, double y, const std::string& text) {
  absl::StrAppendFormat(&text_,
                        "<text transform=\"translate(%.1f %.1f) rotate(-90)\" "
                        "text-anchor=\"middle\" font-size=\"12\" fill=\"#222222\">%s</text>\n",
                        x, y, EscapeXml(text));
}

std::string Svg::Pattern(const std::string& color, int kind) {
  if (kind % 4 == 0) return color;
  constexpr const char* kStripes[] = {"", "M0,6 L6,0", "M0,0 L6,6", "M3,0 L3,6"};
  const std::string id = absl::StrCat(prefix_, "p", ids_++);
  absl::StrAppendFormat(&text_,
                        "<pattern id=\"%s\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
                        "<rect width=\"6\" height=\"6\" fill=\"%s\"/>"
                        "<path d=\"%s\" stroke=\"#ffffff\" stroke-width=\"1.2\"/></pattern>\n",
                        id, color, kStripes[kind % 4]);
  return absl::StrCat("url(#", id, ")");
}

std::string HtmlTable(const std::vector<std::vector<std::string>>& rows, size_t left) {
  std::string table = "<div class=\"table\"><table>\n";
  for (size_t r = 0; r < rows.size(); ++r) {
    const std::string cell = r == 0 ? "th" : "td";
    const std::string begin = r == 0 ? "<th scope=\"col\"" : "<td";
    absl::StrAppend(&table, "<tr>");
    for (size_t c = 0; c < rows[r].size(); ++c) {
      absl::StrAppend(&table, begin, c < left ? " class=\"left\">" : ">", EscapeXml(rows[r][c]), "</", cell,
                      ">");
    }
    absl::StrAppend(&table, "</tr>\n");
  }
  return table + "</table></div>\n";
}

std::string HtmlParagraph(const std::string& text) { return absl::StrCat("<p>", EscapeXml(text), "</p>\n"); }

std::string HtmlCommand(const std::string& command) {
  std::string lines;
  bool quoted = false;
  for (size_t i = 0; i < command.size(); ++i) {
    if (command[i] == '\\' && !quoted) {
      absl::StrAppend(&lines, command.substr(i++, 2));
    } else if (!quoted && command.compare(i, 3, " --") == 0) {
      absl::StrAppend(&lines, " \\\n    ");
    } else {
      quoted ^= command[i] == '\'';
      lines += command[i];
    }
  }
  return absl::StrCat("<pre class=\"command\">", EscapeXml(lines), "</pre>\n");
}

std::string HtmlFigure(const std::vector<std::string>& pictures, const std::string& caption) {
  std::string figure;
  for (const std::string& picture : pictures) absl::StrAppend(&figure, picture);
  if (figure.empty()) return "";
  return absl::StrCat("<figure><div class=\"pictures\">\n", figure, "</div><figcaption>", EscapeXml(caption),
                      "</figcaption></figure>\n");
}

std::string HtmlPage(const std::string& title, const std::string& body) {
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
      EscapeXml(title), "</title>\n<style>", kStyle, "</style>\n</head>\n<body>\n", body,
      "</body>\n</html>\n");
}

}  // namespace catchment
