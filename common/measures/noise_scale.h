// The gradient noise scale: the number of samples in an update at which the noise of its gradient is as large
// as the gradient,
//   B_noise = tr(S) / |G|^2      S: the covariance of the gradients of single samples, G: their mean
// B_simple of McCandlish et al. 2018, "An empirical model of large-batch training", arXiv:1812.06162, which
// predicts that a loss takes, with B samples in an update, 1 + B_noise / B times the fewest possible updates,
// and 1 + B / B_noise times the fewest possible samples. Servers measure it (server/rules/gradient_noise.h).
//
// Threads: pure functions.
#ifndef CATCHMENT_COMMON_MEASURES_NOISE_SCALE_H_
#define CATCHMENT_COMMON_MEASURES_NOISE_SCALE_H_

#include <cstdint>
#include <optional>

#include "proto/master.pb.h"

namespace catchment {

// With fewer measurements the quotient may be wrong by a large factor.
inline constexpr uint64_t kMinNoiseUpdates = 10;

// Returns the sum over all servers; nothing if one of them has not measured it.
std::optional<v1::GradientNoise> TotalNoise(const v1::JobStatus& status);

// Returns B_noise; nothing if it was measured in fewer than kMinNoiseUpdates updates, or if the gradient
// is too small for its noise to be measured.
std::optional<double> NoiseScale(const v1::GradientNoise& noise);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_MEASURES_NOISE_SCALE_H_
