// Draws one handwritten-looking digit.
//
// A glyph's control points are each moved a little, a smooth curve is led through them, the curve is rotated,
// sheared, scaled and moved, and a pen of varying pressure is led along it; then grain is added to every
// pixel.
//
// The result is the same on every machine: only additions, multiplications, divisions and square roots are
// used, which IEEE 754 rounds in one way; sines, logarithms and the like differ between C libraries.
#ifndef CATCHMENT_WORKER_DATA_DIGIT_DRAWING_H_
#define CATCHMENT_WORKER_DATA_DIGIT_DRAWING_H_

#include <cstdint>

#include "common/random.h"

namespace catchment {

// Rows and columns of a drawn digit.
inline constexpr int kDrawnSize = 28;

// Writes kDrawnSize x kDrawnSize pixels (0 paper, 255 ink), row by row. Everything that varies is drawn from
// `random`.
void DrawDigit(int digit, Random* random, uint8_t* pixels);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_DIGIT_DRAWING_H_
