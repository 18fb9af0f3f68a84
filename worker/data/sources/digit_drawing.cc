#include "worker/data/sources/digit_drawing.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace catchment {
namespace {

constexpr int kPixels = kDrawnSize * kDrawnSize;
constexpr int kSegmentsPerSpan = 6;

// Ranges of the random variations. Lengths are in pixels, except for kWobble, which is in heights of a digit.
constexpr float kWobble = 0.03f;  // standard deviation of a control point
constexpr float kHeight = 19;     // of a digit before scaling
constexpr float kMinScale = 0.75f, kMaxScale = 1.08f;
constexpr float kMinStretch = 0.8f, kMaxStretch = 1.2f;  // width over height
constexpr float kTurn = 0.13f;  // largest tangent of half the angle of rotation: 15 degrees
constexpr float kMinShear = -0.15f, kMaxShear = 0.4f;   // forward slant is more common
constexpr float kShift = 2.5f;                          // largest move of the middle, each way
constexpr float kMinRadius = 0.65f, kMaxRadius = 1.7f;  // of the pen
constexpr float kPressure = 0.3f;                  // largest relative change of the radius along a stroke
constexpr float kMinBlur = 0.9f, kMaxBlur = 2.2f;  // width of a stroke's edge
constexpr float kMinInk = 0.75f;                   // darkness of the ink; the largest is 1
constexpr float kGrain = 22;  // largest standard deviation of a pixel's noise, in grey levels

struct Point {
  float x = 0;
  float y = 0;
};

float Uniform(Random* random, float low, float high) {
  return static_cast<float>(random->Uniform(low, high));
}

// Returns a nearly normal number of variance 1: the sum of four uniform numbers of 16 bits.
float Bell(Random* random) {
  const uint64_t bits = random->Next();
  const uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
  return (static_cast<float>(sum) - 131070.0f) * (1.7320508f / 65536.0f);
}

// Digit to page: out = matrix * (point - (0.5, 0.5)) + move.
struct Affine {
  float xx, xy, yx, yy;
  Point move;

  Point operator()(Point p) const {
    const float x = p.x - 0.5f, y = p.y - 0.5f;
    return {xx * x + xy * y + move.x, yx * x + yy * y + move.y};
  }
};

Affine RandomAffine(Random* random) {
  const float height = kHeight * Uniform(random, kMinScale, kMaxScale);
  const float width = height * Uniform(random, kMinStretch, kMaxStretch);
  const float shear = Uniform(random, kMinShear, kMaxShear);
  const float t = Uniform(random, -kTurn, kTurn);
  const float cosine = (1 - t * t) / (1 + t * t), sine = 2 * t / (1 + t * t);
  const float middle = (kDrawnSize - 1) * 0.5f;
  // Rotation times (width, -shear * height; 0, height): y points down, so a positive shear leans to the
  // right.
  return {cosine * width,
          -cosine * shear * height - sine * height,
          sine * width,
          -sine * shear * height + cosine * height,
          {middle + Uniform(random, -kShift, kShift), middle + Uniform(random, -kShift, kShift)}};
}

// Returns the control points, each moved a little, with corners twice: a Catmull-Rom curve turns sharply at a
// double point.
std::vector<Point> Wobbled(const Stroke& stroke, Random* random) {
  std::vector<Point> points;
  for (const ControlPoint& control : stroke) {
    const float dx = kWobble * Bell(random), dy = kWobble * Bell(random);
    points.insert(points.end(), control.corner ? 2 : 1, {control.x + dx, control.y + dy});
  }
  return points;
}

// Returns the point at u in [0, 1] between b and c of a uniform Catmull-Rom curve.
Point CatmullRom(Point a, Point b, Point c, Point d, float u) {
  const auto interpolate = [u](float p, float q, float r, float s) {
    return q + 0.5f * u * (r - p + u * (2 * p - 5 * q + 4 * r - s + u * (3 * (q - r) + s - p)));
  };
  return {interpolate(a.x, b.x, c.x, d.x), interpolate(a.y, b.y, c.y, d.y)};
}

std::vector<Point> Curve(const std::vector<Point>& points) {
  std::vector<Point> curve = {points.front()};
  const int last = static_cast<int>(points.size()) - 1;
  for (int i = 0; i < last; ++i) {
    for (int s = 1; s <= kSegmentsPerSpan; ++s) {
      curve.push_back(CatmullRom(points[std::max(i - 1, 0)], points[i], points[i + 1],
                                 points[std::min(i + 2, last)], static_cast<float>(s) / kSegmentsPerSpan));
    }
  }
  return curve;
}

// For every pixel, the distance to the nearest stroke's outline; negative inside.
class Page {
 public:
  Page() { std::fill_n(distance_, kPixels, 2 * kReach); }

  // A straight piece of a stroke that is `radius` to each side of its middle.
  void AddSegment(Point from, Point to, float radius);

  float distance(int pixel) const { return distance_[pixel]; }

 private:
  // Farther from a stroke's middle than this no ink falls.
  static constexpr float kReach = kMaxRadius * (1 + kPressure) + kMaxBlur;

  static int Clamped(float pixel) { return static_cast<int>(std::clamp(pixel, 0.0f, kDrawnSize - 1.0f)); }

  float distance_[kPixels];
};

void Page::AddSegment(Point from, Point to, float radius) {
  const float dx = to.x - from.x, dy = to.y - from.y;
  const float inverse = 1 / std::max(dx * dx + dy * dy, 1e-6f);
  const int top = Clamped(std::min(from.y, to.y) - kReach), bottom = Clamped(std::max(from.y, to.y) + kReach);
  const int left = Clamped(std::min(from.x, to.x) - kReach), right = Clamped(std::max(from.x, to.x) + kReach);
  for (int y = top; y <= bottom; ++y) {
    for (int x = left; x <= right; ++x) {
      const float px = static_cast<float>(x) - from.x, py = static_cast<float>(y) - from.y;
      const float along = std::clamp((px * dx + py * dy) * inverse, 0.0f, 1.0f);
      const float ox = px - along * dx, oy = py - along * dy;
      float& nearest = distance_[y * kDrawnSize + x];
      nearest = std::min(nearest, std::sqrt(ox * ox + oy * oy) - radius);
    }
  }
}

void AddStroke(const Stroke& stroke, const Affine& affine, float radius, Random* random, Page* page) {
  std::vector<Point> curve = Curve(Wobbled(stroke, random));
  for (Point& point : curve) point = affine(point);
  const float start = Uniform(random, 1 - kPressure, 1 + kPressure) * radius;
  const float end = Uniform(random, 1 - kPressure, 1 + kPressure) * radius;
  const float segments = static_cast<float>(curve.size() - 1);
  for (size_t i = 1; i < curve.size(); ++i) {
    page->AddSegment(curve[i - 1], curve[i], start + (end - start) * (static_cast<float>(i) / segments));
  }
}

// Returns 1 well inside a stroke, 0 well outside, and a smooth step of width `blur` at its outline.
float Coverage(float distance, float blur) {
  const float u = std::clamp(0.5f - distance / blur, 0.0f, 1.0f);
  return u * u * (3 - 2 * u);
}

}  // namespace

void DrawDigit(int digit, Random* random, uint8_t* pixels) {
  const std::vector<Glyph>& glyphs = GlyphsOf(digit);
  const Glyph& glyph = glyphs[random->Below(glyphs.size())];
  const Affine affine = RandomAffine(random);
  const float radius = Uniform(random, kMinRadius, kMaxRadius);
  Page page;
  for (const Stroke& stroke : glyph) AddStroke(stroke, affine, radius, random, &page);
  const float blur = Uniform(random, kMinBlur, kMaxBlur);
  const float ink = 255 * Uniform(random, kMinInk, 1);
  const float grain = Uniform(random, 0, kGrain);
  for (int i = 0; i < kPixels; ++i) {
    const float value = ink * Coverage(page.distance(i), blur) + grain * Bell(random);
    pixels[i] = static_cast<uint8_t>(std::floor(std::clamp(value, 0.0f, 255.0f) + 0.5f));
  }
}

}  // namespace catchment
