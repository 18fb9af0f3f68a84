// What a data source's samples look like, known without opening it.
#ifndef CATCHMENT_COMMON_JOB_DATA_SHAPE_H_
#define CATCHMENT_COMMON_JOB_DATA_SHAPE_H_

#include <cstdint>
#include <string>

#include "common/model_shapes.h"
#include "proto/job.pb.h"

namespace catchment {

struct DataShape {
  SampleShape input;
  TargetShape target;
  // Of a data set in files: what was published. A folder may hold less. Of a table 0: known when a worker has
  // read it.
  int64_t train_samples = 0;
  int64_t test_samples = 0;
};

// Of data.table.shape: a vector, a sequence or an image. Of no other length.
inline SampleShape ShapeOfTable(const v1::Table& table) {
  const auto& shape = table.shape();
  if (shape.size() == 1) return SampleShape::Vector(shape[0]);
  if (shape.size() == 2) return SampleShape::Sequence(shape[0], shape[1]);
  if (shape.size() == 3) return {shape[0], shape[1], shape[2]};
  return SampleShape::Vector(0);
}

inline TargetShape TargetOfTable(const v1::Table& table) {
  return table.has_targets() ? TargetShape::Real(static_cast<int>(table.targets()))
                             : TargetShape(static_cast<int>(table.classes()));
}

// `data` is complete (common/job/presets.h). Synthetic and external samples are without content: a nominal
// value and class each. Without a source it is MNIST.
inline DataShape ShapeOf(const v1::Data& data) {
  switch (data.source_case()) {
    case v1::Data::kSynthetic:
      return {SampleShape::Vector(1), 1, data.synthetic().samples(), 0};
    case v1::Data::kExternal:
      return {SampleShape::Vector(1), 1, static_cast<int64_t>(data.external().train_samples()),
              static_cast<int64_t>(data.external().test_samples())};
    case v1::Data::kCifar10:
      return {{3, 32, 32}, 10, 50000, 10000};
    case v1::Data::kGeneratedEvents:
      return {SampleShape::Sequence(50, 19), 3, data.generated_events().train_samples(),
              data.generated_events().test_samples()};
    case v1::Data::kGeneratedImages: {
      const v1::GeneratedImages& images = data.generated_images();
      return {{3, images.size(), images.size()},
              static_cast<int>(images.classes()),
              images.train_samples(),
              images.test_samples()};
    }
    case v1::Data::kTable:
      return {ShapeOfTable(data.table()), TargetOfTable(data.table()), 0, 0};
    case v1::Data::kDrawnDigits:
      return {{1, 28, 28}, 10, data.drawn_digits().train_samples(), data.drawn_digits().test_samples()};
    case v1::Data::kMnist:
    case v1::Data::SOURCE_NOT_SET:
      break;
  }
  return {{1, 28, 28}, 10, 60000, 10000};
}

// Returns the reason why there are no test samples, as a clause; empty if there are any.
inline std::string WhyNoTestSamples(const v1::Data& data) {
  if (data.has_synthetic()) return "data.synthetic has no samples for tests";
  if (data.has_table()) return data.table().test().empty() ? "data.table.test names no file" : "";
  return ShapeOf(data).test_samples == 0 ? "the data's test_samples is 0" : "";
}

// Returns true if each sample has a class, so that accuracy is defined.
inline bool HasClasses(const v1::Data& data) { return !(data.has_table() && data.table().has_targets()); }

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_DATA_SHAPE_H_
