// Scores weights on a test set.
#ifndef CATCHMENT_WORKER_LOOP_SCORE_TEST_SET_H_
#define CATCHMENT_WORKER_LOOP_SCORE_TEST_SET_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/dataset.h"
#include "worker/model/trainable.h"

namespace catchment {

// Returns the score of the whole test set, with the statistics of batch_norm estimated from training samples;
// of a part of it if `is_stopped` returns true. `threads` read the samples. Errors: those of files of
// samples.
absl::StatusOr<Score> ScoreTestSet(const DataSets& data, int64_t batch_size, int threads,
                                   absl::Span<const float> weights, Trainable* model,
                                   absl::FunctionRef<bool()> is_stopped);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_LOOP_SCORE_TEST_SET_H_
