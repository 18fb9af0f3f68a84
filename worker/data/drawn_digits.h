// A data set that needs no file: digits that the program draws.
//
// Sample i of a part (training or test) with its label is a function of (seed, part, i) alone, the same on
// every machine; the two parts are different streams, so no test digit is a training digit, and a larger set
// begins with the smaller one. A linear model stays below 95 % of the test set, a small convolutional network
// does not.
#ifndef CATCHMENT_WORKER_DATA_DRAWN_DIGITS_H_
#define CATCHMENT_WORKER_DATA_DRAWN_DIGITS_H_

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"

namespace catchment {

// 1 x 28 x 28, 10 classes, normalised with the mean 0.12 and the standard deviation 0.253 of the drawn
// pixels. Errors: InvalidArgument for no samples, or more than 10,000,000 in a part.
absl::StatusOr<DataSets> DrawDigits(const v1::DrawnDigits& options);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_DRAWN_DIGITS_H_
