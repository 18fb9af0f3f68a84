#include "server/host/final_outputs.h"

#include <glog/logging.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint.h"
#include "common/net/snapshot_reader.h"
#include "common/wire/token.h"

namespace catchment {
namespace {

// Values of a checkpoint that are in memory at a time, 64 MiB.
constexpr int64_t kPieceOfModel = int64_t{1} << 24;

absl::Status AddShard(const Shard& shard, ModelWriter* model) {
  for (int block = 0; block < shard.num_blocks(); ++block) {
    const BufferPtr weights = shard.WeightsOfBlock(block);
    RETURN_IF_ERROR(model->Add({weights->data(), static_cast<size_t>(weights->size())}));
  }
  return absl::OkStatus();
}

// Adds the weights of all shards. `*read` is the error if one cannot be read.
absl::Status AddShards(const RunOptions& run, const OutputSources& sources, const ParameterLayout& layout,
                       const FinalOutputs& ended, ModelWriter* model, absl::Status* read) {
  SnapshotReader reader(ended.servers, sources.credentials, run.run_id, &layout,
                        SnapshotReader::kStallSeconds, RegistrationToken(run.token_key, kServersIncarnation));
  for (int s = 0; s < layout.num_shards(); ++s) {
    if (sources.local != nullptr && sources.local->index() == s) {
      RETURN_IF_ERROR(AddShard(*sources.local, model));
      continue;
    }
    absl::Status written;
    *read = reader.ReadShard(s, [&](absl::Span<const float> block) {
      written = model->Add(block);
      return written.ok();
    });
    RETURN_IF_ERROR(written);
    RETURN_IF_ERROR(*read);
  }
  return absl::OkStatus();
}

absl::Status WriteWeights(const RunOptions& run, const OutputSources& sources, const ParameterLayout& layout,
                          const FinalOutputs& ended, Outputs* outputs) {
  const ModelFacts facts = {.score = std::nullopt, .statistics = ended.statistics};
  absl::Status read;
  const absl::Status status = outputs->WriteModel(run.job, layout, facts, [&](ModelWriter* model) {
    return AddShards(run, sources, layout, ended, model, &read);
  });
  // A job that has not failed has recorded a checkpoint with the final weights.
  if (read.ok() || sources.checkpoint_dir.empty() || ended.status.phase() == v1::JobStatus::FAILED)
    return status;
  const absl::StatusOr<FoundCheckpoint> found = FindLatest(sources.checkpoint_dir);
  if (!found.ok() || found->manifest.number() != ended.status.last_checkpoint()) return status;
  LOG(WARNING) << status.message() << "; taking the final weights from checkpoint "
               << found->manifest.number();
  return outputs->WriteModel(run.job, layout, facts, [&](ModelWriter* model) -> absl::Status {
    std::vector<float> weights(std::min(layout.size(), kPieceOfModel));
    for (Range piece; piece.end < layout.size();) {
      piece = {piece.end, std::min(layout.size(), piece.end + kPieceOfModel)};
      RETURN_IF_ERROR(
          ReadParameters(sources.checkpoint_dir, found->manifest, piece, "weights", weights.data()));
      RETURN_IF_ERROR(model->Add(absl::MakeConstSpan(weights).first(piece.size())));
    }
    return absl::OkStatus();
  });
}

}  // namespace

absl::Status WriteFinalOutputs(const RunOptions& run, const OutputSources& sources,
                               const ParameterLayout& layout, const FinalOutputs& ended, Outputs* outputs) {
  RunFacts facts;
  facts.devices = ended.devices;
  facts.computed_samples = ended.computed_samples;
  facts.best_weights = ended.best_evaluation.value_or(0);
  absl::Status status;
  if (outputs->enabled() && ended.has_weights) {
    status = WriteWeights(run, sources, layout, ended, outputs);
    if (!status.ok()) LOG(ERROR) << "cannot write the weights: " << status.message();
  }
  const absl::Status summary = outputs->WriteSummary(ended.status, facts);
  if (!summary.ok()) LOG(ERROR) << "cannot write the summary: " << summary.message();
  return status.ok() ? summary : status;
}

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
