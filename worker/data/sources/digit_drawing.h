// Draws one handwritten-looking digit.
//
// A glyph's control points are each moved a little, a smooth curve is led through them, the curve is rotated,
// sheared, scaled and moved, and a pen of varying pressure is led along it; then grain is added to every
// pixel.
//
// The result is the same on every machine: only additions, multiplications, divisions and square roots are
// used, which IEEE 754 rounds in one way; sines, logarithms and the like differ between C libraries.
#ifndef CATCHMENT_WORKER_DATA_SOURCES_DIGIT_DRAWING_H_
#define CATCHMENT_WORKER_DATA_SOURCES_DIGIT_DRAWING_H_

#include <cstdint>
#include <vector>

#include "common/base/random.h"

namespace catchment {

// Rows and columns of a drawn digit.
inline constexpr int kDrawnSize = 28;

// Writes kDrawnSize x kDrawnSize pixels (0 paper, 255 ink), row by row. Everything that varies is drawn from
// `random`.
void DrawDigit(int digit, Random* random, uint8_t* pixels);

// The skeletons of the ten digits: what a pen's tip follows, before anything is varied.
//
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

// Returns the ways to write `digit` (0 to 9), at least one.
const std::vector<Glyph>& GlyphsOf(int digit);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_SOURCES_DIGIT_DRAWING_H_
