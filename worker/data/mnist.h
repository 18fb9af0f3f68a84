// The MNIST handwritten digits (LeCun, Cortes, Burges): 60,000 images of 28 x 28 for training, 10,000 for
// tests.
#ifndef CATCHMENT_WORKER_DATA_MNIST_H_
#define CATCHMENT_WORKER_DATA_MNIST_H_

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/data_paths.h"
#include "worker/data/dataset.h"

namespace catchment {

// Reads the four IDX files under their original names, each with or without ".gz", and compares the MD5 of
// their content with the original's. They are looked for in mnist.directory if it is set, otherwise in
// $CATCHMENT_DATA/mnist, $XDG_CACHE_HOME/catchment/mnist and ~/.cache/catchment/mnist; the first folder that
// has one of the files must have all.
// Errors: NotFound with the places that were searched and what to do; those of ReadLabelledImages; DataLoss
// for another content.
absl::StatusOr<DataSets> LoadMnist(const v1::Mnist& mnist, const DataPaths& paths);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_MNIST_H_
