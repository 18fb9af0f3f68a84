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

// MNIST and drawn digits are one channel of 28 x 28 pixels, and ten digits. Synthetic samples are without
// content: a nominal value and class each.
inline DataShape ShapeOf(const v1::Data& data) {
  if (data.has_synthetic()) return {SampleShape::Vector(1), 1};
  return {{1, 28, 28}, 10};
}

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_DATA_SHAPE_H_
