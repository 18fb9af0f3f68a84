// CIFAR-10 (Krizhevsky 2009) in its binary version: records of a label byte and 3 x 32 x 32 pixels.
//
// Source: https://www.cs.toronto.edu/~kriz/cifar.html
#ifndef CATCHMENT_WORKER_DATA_CIFAR10_H_
#define CATCHMENT_WORKER_DATA_CIFAR10_H_

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/data_paths.h"
#include "worker/data/dataset.h"

namespace catchment {

// 3 x 32 x 32, 10 classes, normalised by channel. Files, each gzipped or not: data_batch_1.bin to
// data_batch_5.bin, as many as there are, or train.bin; test_batch.bin, or test.bin. Errors: NotFound where
// there is none, with the places that were looked at; DataLoss for a damaged file; InvalidArgument for a file
// that is not made of records, or a label that is no class, with file and record.
absl::StatusOr<DataSets> LoadCifar10(const v1::Cifar10& cifar10, const DataPaths& paths);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_CIFAR10_H_
