// Jobs of the presets, as users get them.
#ifndef CATCHMENT_TESTS_CONFORMANCE_JOBS_H_
#define CATCHMENT_TESTS_CONFORMANCE_JOBS_H_

#include <glog/logging.h>
#include <google/protobuf/text_format.h>

#include <string>

#include "common/job/validate.h"

namespace catchment {

// Any small model and data, and a constant learning rate.
inline v1::Job JobWithModel() {
  v1::Job job;
  CHECK(google::protobuf::TextFormat::ParseFromString(
      "model { layers { flatten {} } layers { dense { units: 10 } } } data { drawn_digits {} } "
      "optimizer { schedule { decay: CONSTANT } }",
      &job));
  return job;
}

// Returns such a job with these fields and all defaults. The learning rate is constant unless the fields set
// it.
inline v1::Job Complete(const v1::Job& fields) {
  v1::Job job = JobWithModel();
  job.MergeFrom(fields);
  absl::StatusOr<v1::Job> filled = FillDefaultsAndValidate(job);
  CHECK(filled.ok()) << filled.status();
  return *std::move(filled);
}

// `more`: fields of the job in text format.
inline v1::Job PresetJob(const std::string& preset, int workers, const std::string& more = "") {
  v1::Job job, additions;
  job.mutable_algorithm()->set_preset(preset);
  job.set_workers(workers);
  CHECK(google::protobuf::TextFormat::ParseFromString(more, &additions)) << more;
  job.MergeFrom(additions);
  return Complete(job);
}

}  // namespace catchment

#endif  // CATCHMENT_TESTS_CONFORMANCE_JOBS_H_
