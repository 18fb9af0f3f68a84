// What a data source's samples look like, known without opening it.
#ifndef CATCHMENT_COMMON_JOB_DATA_SHAPE_H_
#define CATCHMENT_COMMON_JOB_DATA_SHAPE_H_

#include "common/model_shapes.h"
#include "proto/job.pb.h"

namespace catchment {

struct DataShape {
  SampleShape input;
  int num_classes;
};

// Both sources, MNIST and drawn digits, are one channel of 28 x 28 pixels, and ten digits.
inline DataShape ShapeOf(const v1::Data&) { return {{1, 28, 28}, 10}; }

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_DATA_SHAPE_H_
