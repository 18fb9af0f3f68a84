#include "server/optimizers/prepared.h"

#include <algorithm>

namespace catchment {
namespace {

// Prepared gradients are made and used in pieces that stay in the first-level cache: memory is passed over
// once.
constexpr int64_t kPiece = 1024;

}  // namespace

void Prepared::Apply(const Step& step, const Part& part) const {
  const float most = clip_value_, least = -clip_value_, decay = weight_decay_;
  alignas(64) float prepared[kPiece];
  for (int64_t begin = 0; begin < part.n; begin += kPiece) {
    Part piece = part.Slice(begin, std::min(kPiece, part.n - begin));
    const float* const g = piece.gradient;
    const float* const w = piece.weights;
    for (int64_t i = 0; i < piece.n; ++i) prepared[i] = std::min(std::max(g[i], least), most) + decay * w[i];
    piece.gradient = prepared;
    optimizer_->Apply(step, piece);
  }
}

}  // namespace catchment
