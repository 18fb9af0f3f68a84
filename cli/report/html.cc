#include "absl/strings/str_cat.h"
#include "cli/report/markup.h"

namespace catchment {
namespace {

constexpr char kStyle[] = R"(
body { font: 15px/1.5 Helvetica, Arial, sans-serif; color: #222; max-width: 1000px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; margin-bottom: 0.2em; }
h2 { font-size: 1.2em; margin-top: 2em; border-bottom: 1px solid #ccc; break-after: avoid; }
.answer { font-size: 1.15em; border-left: 5px solid #0072B2; padding: 0.4em 1em; background: #f3f7fa; }
figure { margin: 1em 0; break-inside: avoid; }
figure .pictures { display: flex; flex-wrap: wrap; gap: 16px; }
figure svg { max-width: 100%; height: auto; }
figcaption { color: #555; font-size: 0.9em; }
table { border-collapse: collapse; font-size: 0.85em; margin: 1em 0; }
th, td { padding: 0.2em 0.7em; text-align: right; border-bottom: 1px solid #ddd; vertical-align: top; white-space: nowrap; }
td:last-child { white-space: normal; }
th { border-bottom: 2px solid #888; }
th.left, td.left { text-align: left; }
tr { break-inside: avoid; }
pre { font-size: 0.8em; background: #f6f6f6; padding: 0.8em; white-space: pre-wrap; overflow-wrap: anywhere; }
@media print { body { margin: 0; max-width: none; font-size: 11px; } pre { columns: 2; } }
@page { size: A4; margin: 15mm; }
)";

}  // namespace

std::string HtmlTable(const std::vector<std::vector<std::string>>& rows, size_t left) {
  std::string table = "<table>\n";
  for (size_t r = 0; r < rows.size(); ++r) {
    const std::string cell = r == 0 ? "th" : "td";
    absl::StrAppend(&table, "<tr>");
    for (size_t c = 0; c < rows[r].size(); ++c) {
      absl::StrAppend(&table, "<", cell, c < left ? " class=\"left\">" : ">", EscapeXml(rows[r][c]), "</",
                      cell, ">");
    }
    absl::StrAppend(&table, "</tr>\n");
  }
  return table + "</table>\n";
}

std::string HtmlParagraph(const std::string& text) { return absl::StrCat("<p>", EscapeXml(text), "</p>\n"); }

std::string HtmlFigure(const std::vector<std::string>& pictures, const std::string& caption) {
  std::string figure;
  for (const std::string& picture : pictures) absl::StrAppend(&figure, picture);
  if (figure.empty()) return "";
  return absl::StrCat("<figure><div class=\"pictures\">\n", figure, "</div><figcaption>", EscapeXml(caption),
                      "</figcaption></figure>\n");
}

std::string HtmlPage(const std::string& title, const std::string& body) {
  return absl::StrCat("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>",
                      EscapeXml(title), "</title>\n<style>", kStyle, "</style>\n</head>\n<body>\n", body,
                      "</body>\n</html>\n");
}

}  // namespace catchment
