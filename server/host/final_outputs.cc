#include "server/host/final_outputs.h"

#include <glog/logging.h>

#include <vector>

#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint.h"
#include "common/net/snapshot_reader.h"
#include "common/wire/token.h"

namespace catchment {
namespace {

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
    std::vector<float> weights(layout.size());
    RETURN_IF_ERROR(ReadParameters(sources.checkpoint_dir, found->manifest, {0, layout.size()}, "weights",
                                   weights.data()));
    return model->Add(weights);
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

}  // namespace catchment
