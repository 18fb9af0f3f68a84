// The sources of samples: one entry in a table states everything that is known about a source without opening
// it.
#ifndef CATCHMENT_COMMON_JOB_DATA_SOURCES_H_
#define CATCHMENT_COMMON_JOB_DATA_SOURCES_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "common/job/checks.h"
#include "common/job/model_shapes.h"
#include "proto/job.pb.h"

namespace catchment {

struct DataShape {
  SampleShape input;
  TargetShape target;
  // For a data set in files the published number. 0 for a table and for a folder of images.
  int64_t train_samples = 0;
  int64_t test_samples = 0;
  // A worker counts the samples, because a folder may hold less than the published number, and a table any
  // number.
  bool counted = false;
};

// Returns the shape in data.table.shape, a vector, a sequence or an image; an empty vector for another number
// of dimensions.
inline SampleShape ShapeOfTable(const v1::FileDataset& table) {
  const auto& shape = table.shape();
  if (shape.size() == 1) return SampleShape::Vector(shape[0]);
  if (shape.size() == 2) return SampleShape::Sequence(shape[0], shape[1]);
  if (shape.size() == 3) return {shape[0], shape[1], shape[2]};
  return SampleShape::Vector(0);
}

inline TargetShape TargetOfTable(const v1::FileDataset& table) {
  return table.has_targets() ? TargetShape::Real(static_cast<int>(table.targets()))
                             : TargetShape(static_cast<int>(table.classes()));
}

// The facts about one source of samples (proto/job.proto, Data).
//
// To add a source: a message in Data's oneof (proto/job.proto), an entry in data_sources.cc, and in
// worker/data a source file, its declaration and a case of LoadData.
struct DataSource {
  v1::Data::SourceCase source;
  // Returns the shape of the samples; `data` has its defaults filled in. Synthetic and external samples have
  // no content: a nominal value and class each.
  DataShape (*shape)(const v1::Data& data);
  // Sets the fields that have a default and are not set. Null: there are none.
  void (*fill_defaults)(v1::Data* data) = nullptr;
  // Checks a job whose defaults are filled in. Null: nothing can be wrong.
  void (*check)(const v1::Job& job, Problems* problems) = nullptr;
  // Returns one line about the data of a valid job. `sizes`: the numbers of samples, in words.
  std::string (*describe)(const v1::Data& data, const std::string& sizes);
};

// Returns the entry of the data's source; without a source that of MNIST.
const DataSource& SourceOf(const v1::Data& data);

inline DataShape ShapeOf(const v1::Data& data) { return SourceOf(data).shape(data); }

// Returns what a job file can have in `data`: "mnist {}, cifar10 {}, ...".
std::string ListDataSources();

// Returns the reason why there are no test samples, as a clause; empty if there are any.
inline std::string WhyNoTestSamples(const v1::Data& data) {
  if (data.has_synthetic()) return "data.synthetic has no samples for tests";
  if (data.has_table()) return data.table().test().empty() ? "data.table.test names no file" : "";
  if (data.has_image_folder())
    return data.image_folder().test().empty() ? "data.image_folder.test names no directory" : "";
  return ShapeOf(data).test_samples == 0 ? "the data's test_samples is 0" : "";
}

// Returns true if the samples have content, which threads of the loader read.
inline bool HasContent(const v1::Data& data) {
  return data.source_case() != v1::Data::SOURCE_NOT_SET && !data.has_synthetic() && !data.has_external();
}

// Returns data.loader_threads, or 1 for samples without content.
inline int LoaderThreads(const v1::Data& data) {
  return HasContent(data) ? std::max(1, static_cast<int>(data.loader_threads())) : 1;
}

// Returns true if each sample has a class, so that accuracy is defined.
inline bool HasClasses(const v1::Data& data) { return !(data.has_table() && data.table().has_targets()); }

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_DATA_SOURCES_H_
