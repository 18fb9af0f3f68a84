// What a job's evaluations can say, known without opening its data.
#ifndef CATCHMENT_COMMON_JOB_TEST_SET_H_
#define CATCHMENT_COMMON_JOB_TEST_SET_H_

#include <string>

#include "common/job/data_shape.h"
#include "proto/job.pb.h"

namespace catchment {

// Why there are no samples for tests, to go on with after a comma; empty where there are.
inline std::string WhyNoTestSamples(const v1::Data& data) {
  if (data.has_synthetic()) return "data.synthetic has no samples for tests";
  if (data.has_table()) return data.table().test().empty() ? "data.table.test names no file" : "";
  return ShapeOf(data).test_samples == 0 ? "the data's test_samples is 0" : "";
}

// Each sample has a class: the share that is given the right one means something.
inline bool HasClasses(const v1::Data& data) { return !(data.has_table() && data.table().has_targets()); }

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_TEST_SET_H_
