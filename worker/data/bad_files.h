// The files of a data set that cannot be used, which are all named at once, before training.
#ifndef CATCHMENT_WORKER_DATA_BAD_FILES_H_
#define CATCHMENT_WORKER_DATA_BAD_FILES_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace catchment {

// Threads: safe.
class BadFiles {
 public:
  // Adds a file, by its place among all. `why` is an error that names it.
  void Add(int64_t place, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);

  bool any() const ABSL_LOCKS_EXCLUDED(mu_);

  // Returns OK if there are none; the error of a single one; otherwise an error that says how many of `all`
  // are bad, and names the first of them. `field` is that of the job, such as data.table.train, and `kind`
  // what the files are: "files". The code is InvalidArgument if that is the first one's, otherwise DataLoss:
  // NotFound would say that the data set is not on this machine.
  absl::Status Status(const std::string& field, int64_t all, const std::string& kind) const
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable Mutex mu_;
  int64_t count_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int64_t, absl::Status> first_ ABSL_GUARDED_BY(mu_);  // of the lowest places
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_BAD_FILES_H_
