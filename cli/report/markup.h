// Parts of an HTML page as text: pictures in SVG, tables and paragraphs.
#ifndef CATCHMENT_CLI_REPORT_MARKUP_H_
#define CATCHMENT_CLI_REPORT_MARKUP_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace catchment {

// Escapes text for XML and HTML: "<" becomes "&lt;", for example.
std::string EscapeXml(const std::string& text);

using PixelPath = std::vector<std::pair<double, double>>;

struct Stroke {
  std::string color = "#000000";
  double width = 1;
  std::string dashes;  // "6 3"; empty: none
};

enum class Anchor { kStart, kMiddle, kEnd };

// Returns an upper bound of the width of a number, in any of the fonts that pictures are shown with.
double TextWidth(const std::string& text, double size);

// An SVG picture, element by element. Units: CSS pixels of the picture's own size; y grows downwards. Text is
// escaped.
class Svg {
 public:
  // `label` is the text for screen readers.
  Svg(double width, double height, const std::string& label);

  void Line(double x1, double y1, double x2, double y2, const Stroke& stroke);
  void Path(const PixelPath& points, const Stroke& stroke);
  void Area(const PixelPath& points, const std::string& fill, double opacity);
  // `fill` is a colour or a pattern's "url(#name)".
  void Rectangle(double x, double y, double width, double height, const std::string& fill,
                 const std::string& border = "none");
  // shape: 0 circle, 1 square, 2 triangle, 3 diamond.
  void Marker(double x, double y, int shape, const std::string& color);
  // Clips all elements until EndClip to the rectangle.
  void BeginClip(double x, double y, double width, double height);
  void EndClip();
  void Text(double x, double y, const std::string& text, Anchor anchor = Anchor::kStart, double size = 12,
            const std::string& color = "#222222");
  // Draws text upwards, centred at the point.
  void VerticalText(double x, double y, const std::string& text);
  // Defines stripes over a colour, which are visible also without colour: kind 0 plain, 1 rising, 2 falling,
  // 3 upright. Returns a value for `fill`.
  std::string Pattern(const std::string& color, int kind);

  std::string Finish() const { return text_ + "</svg>\n"; }

 private:
  std::string text_;
  std::string prefix_;  // of ids, which are unique in the page
  int ids_ = 0;
};

// Returns a table with `rows` of text, the first of which is the head. The first `left` columns are aligned
// to the left, the others to the right.
std::string HtmlTable(const std::vector<std::vector<std::string>>& rows, size_t left = 1);

std::string HtmlParagraph(const std::string& text);

// Returns a shell's command as a block to copy it from, with each flag in a line of its own. Words with
// spaces are in single quotes, as by ShellQuoted.
std::string HtmlCommand(const std::string& command);

// Returns a figure with pictures side by side if there is enough width; empty ones are left out. In a narrow
// window a picture keeps at least three quarters of its own width, and is scrolled.
std::string HtmlFigure(const std::vector<std::string>& pictures, const std::string& caption);

std::string HtmlPage(const std::string& title, const std::string& body);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_MARKUP_H_
