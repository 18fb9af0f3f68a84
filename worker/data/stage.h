// A copy of data files in a directory of this machine, which its processes share (--stage).
//
//   DIR/catchment-stage-UID/   mode 0700
//     CHECKSUM/                the copies, under the absolute paths of their files; appears when complete
//     CHECKSUM.part/           while a process copies
//     CHECKSUM.lock            locked exclusively by the process that copies, and shared by those that read
//
// CHECKSUM is of the files' paths, sizes and times, so files that have changed are copied anew. The last
// process that reads the copies removes them. Those of processes that were killed stay, and the next process
// with the same files uses them.
#ifndef CATCHMENT_WORKER_DATA_STAGE_H_
#define CATCHMENT_WORKER_DATA_STAGE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"

namespace catchment {

// Threads: not thread-safe. Processes: any number may stage the same files.
class Stage {
 public:
  // Copies `files`, absolute paths, unless the copies are there, and waits while another process copies them.
  // Logs its progress. Errors, each with the reason: NotFound or FailedPrecondition for a directory that does
  // not exist, is not writable or is another user's; ResourceExhausted without room for the files; those of a
  // file that cannot be copied; Cancelled if `is_stopped` returns true, which is called from several threads.
  static absl::StatusOr<std::unique_ptr<Stage>> Copy(const std::string& directory,
                                                     const std::vector<std::string>& files,
                                                     const Clock& clock,
                                                     absl::FunctionRef<bool()> is_stopped);
  // Removes the copies if no other process reads them.
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // Returns the directory in which the copy of /a/b is a/b.
  const std::string& root() const { return root_; }

 private:
  class Copier;
  Stage(std::string root, int lock) : root_(std::move(root)), lock_(lock) {}

  const std::string root_;
  const int lock_;  // a descriptor
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_STAGE_H_
