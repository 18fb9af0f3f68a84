#include "server/host/final_outputs.h"

#include <glog/logging.h>

#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/net/snapshot_reader.h"
#include "common/wire/token.h"

namespace catchment {
namespace {

absl::Status ReadFinalWeights(const RunOptions& run, const OutputSources& sources,
                              const ParameterLayout& layout, const FinalOutputs& ended,
                              absl::Span<float> weights) {
  SnapshotReader reader(ended.servers, sources.credentials, run.run_id, &layout,
                        SnapshotReader::kStallSeconds, RegistrationToken(run.token_key, kServersIncarnation));
  absl::Status status = reader.Read(weights);
  // A job that has not failed has recorded a checkpoint with the final weights.
  if (status.ok() || sources.checkpoint_dir.empty() || ended.status.phase() == v1::JobStatus::FAILED)
    return status;
  const absl::StatusOr<FoundCheckpoint> found = FindLatest(sources.checkpoint_dir);
  if (!found.ok() || found->manifest.number() != ended.status.last_checkpoint()) return status;
  LOG(WARNING) << status.message() << "; taking the final weights from checkpoint "
               << found->manifest.number();
  return ReadParameters(sources.checkpoint_dir, found->manifest, {0, layout.size()}, "weights",
                        weights.data());
}

}  // namespace

absl::Status WriteFinalOutputs(const RunOptions& run, const OutputSources& sources,
                               const ParameterLayout& layout, const FinalOutputs& ended, Outputs* outputs) {
  Outputs::SummaryFacts facts;
  facts.servers = run.num_servers;
  facts.devices = ended.devices;
  facts.computed_samples = ended.computed_samples;
  facts.best_weights = ended.best_evaluation.value_or(0);
  absl::Status status;
  if (outputs->enabled() && ended.has_weights) {
    std::vector<float> weights(layout.size());
    status = ReadFinalWeights(run, sources, layout, ended, absl::MakeSpan(weights));
    if (status.ok())
      status = outputs->WriteModel(run.job, layout, weights,
                                   {.score = std::nullopt, .statistics = ended.statistics});
    if (!status.ok()) LOG(ERROR) << "cannot write the weights: " << status.message();
  }
  const absl::Status summary = outputs->WriteSummary(run.job, ended.status, facts);
  if (!summary.ok()) LOG(ERROR) << "cannot write the summary: " << summary.message();
  return status.ok() ? summary : status;
}

}  // namespace catchment
