#include "server/host/manifests.h"

#include <glog/logging.h>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint.h"

namespace catchment {
namespace {

v1::Manifest MakeManifest(const RunOptions& run, const ParameterLayout& layout,
                          const CompleteCheckpoint& checkpoint) {
  v1::Manifest manifest;
  manifest.set_number(checkpoint.number);
  manifest.set_run_id(run.run_id);
  *manifest.mutable_job() = run.job;
  manifest.set_fingerprint(layout.fingerprint());
  for (const TensorSpec& tensor : layout.tensors()) {
    v1::TensorInfo* info = manifest.add_tensors();
    info->set_name(tensor.name);
    info->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  }
  *manifest.mutable_shards() = {checkpoint.shards.begin(), checkpoint.shards.end()};
  *manifest.mutable_master() = checkpoint.state;
  return manifest;
}

}  // namespace

absl::Status RecordCheckpoint(const std::string& directory, const RunOptions& run,
                              const ParameterLayout& layout, const CompleteCheckpoint& checkpoint) {
  if (directory.empty()) return absl::OkStatus();
  const v1::Manifest manifest = MakeManifest(run, layout, checkpoint);
  if (const auto shards = OpenShards(directory, manifest); !shards.ok()) {
    const char* const hint = absl::IsNotFound(shards.status())
                                 ? "; is --checkpoint_dir the same directory, shared, for all servers?"
                                 : "";
    return absl::Status(
        shards.status().code(),
        absl::StrCat("the master cannot read what the servers saved: ", shards.status().message(), hint));
  }
  RETURN_IF_ERROR(WriteManifest(directory, manifest));
  const absl::Status pruned = Prune(directory, static_cast<int>(run.job.checkpoint().keep()));
  LOG_IF(ERROR, !pruned.ok()) << "cannot delete old checkpoints: " << pruned.message();
  return absl::OkStatus();
}

}  // namespace catchment
