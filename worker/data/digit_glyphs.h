// The skeletons of the ten digits: what a pen's tip follows, before anything is varied.
#ifndef CATCHMENT_WORKER_DATA_DIGIT_GLYPHS_H_
#define CATCHMENT_WORKER_DATA_DIGIT_GLYPHS_H_

#include <vector>

namespace catchment {

// Units: the height of a digit is about 1, from y = 0 (top) to y = 1 (bottom); x runs to the right, with the
// middle of the digit near 0.5.
struct ControlPoint {
  float x = 0;
  float y = 0;
  // The pen turns sharply here; at other points it goes through smoothly.
  bool corner = false;
};

// The points that one movement of the pen goes through.
using Stroke = std::vector<ControlPoint>;
// One way to write a digit.
using Glyph = std::vector<Stroke>;

// The ways to write `digit` (0 to 9); at least one.
const std::vector<Glyph>& GlyphsOf(int digit);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_DIGIT_GLYPHS_H_
