// A data set of large images that needs no file and no memory: each is drawn when it is copied out.
//
//   value(c, y, x) = tint_c cos(2 pi (u x + v y) / size + phase) + noise
//
// (u, v) are the class's own, whole numbers; tint and phase the sample's, noise uniform in +-1 for each
// value. Sample i of a part (training or test) is a function of (seed, part, i) alone.
#ifndef CATCHMENT_WORKER_DATA_GENERATED_IMAGES_H_
#define CATCHMENT_WORKER_DATA_GENERATED_IMAGES_H_

#include "proto/job.pb.h"
#include "worker/data/dataset.h"

namespace catchment {

// `options` are complete and valid.
DataSets GenerateImages(const v1::GeneratedImages& options);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_GENERATED_IMAGES_H_
