// An SVG picture, element by element, as text to put into an HTML page.
//
// Units: CSS pixels of the picture's own size; y grows downwards. Text is escaped here.
#ifndef CATCHMENT_CLI_REPORT_SVG_H_
#define CATCHMENT_CLI_REPORT_SVG_H_

#include <string>
#include <utility>
#include <vector>

namespace catchment {

// "<" becomes "&lt;", and so on; good for HTML too.
std::string EscapeXml(const std::string& text);

using PixelPath = std::vector<std::pair<double, double>>;

struct Stroke {
  std::string color = "#000000";
  double width = 1;
  std::string dashes;  // "6 3"; empty: none
};

enum class Anchor { kStart, kMiddle, kEnd };

class Svg {
 public:
  // `label` is what a screen reader says.
  Svg(double width, double height, const std::string& label);

  void Line(double x1, double y1, double x2, double y2, const Stroke& stroke);
  void Path(const PixelPath& points, const Stroke& stroke);
  void Area(const PixelPath& points, const std::string& fill, double opacity);
  // `fill` is a colour or a pattern's "url(#name)".
  void Rectangle(double x, double y, double width, double height, const std::string& fill,
                 const std::string& border = "none");
  // shape: 0 circle, 1 square, 2 triangle, 3 diamond.
  void Marker(double x, double y, int shape, const std::string& color);
  // Everything until EndClip is cut at the rectangle.
  void BeginClip(double x, double y, double width, double height);
  void EndClip();
  void Text(double x, double y, const std::string& text, Anchor anchor = Anchor::kStart, double size = 12,
            const std::string& color = "#222222");
  // Upwards, around its middle.
  void VerticalText(double x, double y, const std::string& text);
  // Stripes over a colour, so that it is also recognised without it: kind 0 plain, 1 rising, 2 falling, 3
  // upright. Returns what `fill` takes.
  std::string Pattern(const std::string& color, int kind);

  std::string Finish() const { return text_ + "</svg>\n"; }

 private:
  std::string text_;
  std::string prefix_;  // of ids, which are one page's
  int ids_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_SVG_H_
