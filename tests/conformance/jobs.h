// Jobs of the presets, as users get them.
#ifndef CATCHMENT_TESTS_CONFORMANCE_JOBS_H_
#define CATCHMENT_TESTS_CONFORMANCE_JOBS_H_

#include <glog/logging.h>
#include <google/protobuf/text_format.h>

#include <string>

#include "common/job/validate.h"

namespace catchment {

// `more`: fields of the job in text format. The learning rate is constant unless they say otherwise.
inline v1::Job PresetJob(const std::string& preset, int workers, const std::string& more = "") {
  const std::string text =
      "model { layers { flatten {} } layers { dense { units: 10 } } } data { drawn_digits {} } "
      "optimizer { schedule { decay: CONSTANT } } algorithm { preset: '" +
      preset + "' } workers: " + std::to_string(workers);
  v1::Job job, additions;
  CHECK(google::protobuf::TextFormat::ParseFromString(text, &job));
  CHECK(google::protobuf::TextFormat::ParseFromString(more, &additions)) << more;
  job.MergeFrom(additions);
  absl::StatusOr<v1::Job> filled = FillDefaultsAndValidate(job);
  CHECK(filled.ok()) << filled.status();
  return *std::move(filled);
}

}  // namespace catchment

#endif  // CATCHMENT_TESTS_CONFORMANCE_JOBS_H_
