#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/job/contribution_kinds.h"

namespace catchment {
namespace {

uint32_t Period(const v1::Contribution& contribution) { return 1; }

void FillDefaults(uint32_t workers, v1::Contribution* contribution) {
  v1::EnergyMatching* const config = contribution->mutable_energy_matching();
  CATCHMENT_DEFAULT(config, learning_rate, 0.08f);
  CATCHMENT_DEFAULT(config, momentum, 0.9f);
  CATCHMENT_DEFAULT(config, energy, 1);
}

// The servers add the contributions; everything else happens on the workers.
void CheckServers(const v1::Optimizer& optimizer, const std::string& path, Problems* problems) {
  CheckServersAreSgd(optimizer, "energy_matching", problems);
  problems->Require(
      optimizer.learning_rate() == 1, "optimizer.learning_rate", optimizer.learning_rate(),
      absl::StrCat("must be 1 with contribution energy_matching, which pushes moves of the center; set ",
                   path, ".learning_rate"));
  const std::string hint =
      "does not belong to contribution energy_matching, "
      "which pushes moves of the center and not gradients; leave it out";
  if (optimizer.weight_decay() != 0) problems->Add("optimizer.weight_decay", Reason::kConflict, hint);
  if (optimizer.has_clip_value()) problems->Add("optimizer.clip_value", Reason::kConflict, hint);
  if (optimizer.has_clip_norm()) problems->Add("optimizer.clip_norm", Reason::kConflict, hint);
  if (optimizer.worker_scaling() != v1::Optimizer::NO_SCALING) {
    problems->Add("optimizer.worker_scaling", Reason::kConflict, hint);
  }
}

void Check(const v1::Job& job, Problems* problems) {
  const v1::EnergyMatching& config = job.algorithm().contribution().energy_matching();
  const std::string path = "algorithm.contribution.energy_matching";
  problems->Positive(path + ".learning_rate", config.learning_rate());
  problems->BelowOne(path + ".momentum", config.momentum());
  problems->Positive(path + ".energy", config.energy());
  CheckServers(job.optimizer(), path, problems);
  if (job.algorithm().consistency().has_synchronous()) {
    problems->Add(
        "algorithm.consistency.synchronous", Reason::kConflict,
        "cannot be combined with contribution energy_matching: in synchronous mode there are no concurrent "
        "updates to compensate for; set algorithm.consistency to asynchronous {}, "
        "or use contribution look_ahead");
  }
  if (!job.algorithm().compensation().has_none()) {
    problems->Add("algorithm.compensation", Reason::kConflict,
                  "must be none {} with contribution energy_matching, "
                  "which compensates for concurrent updates itself; leave it out");
  }
  if (job.compression().pull() != v1::Compression::FLOAT32) {
    problems->Add(
        "compression.pull", Reason::kConflict,
        absl::StrCat(
            "is ", v1::Compression::Codec_Name(job.compression().pull()),
            "; must be FLOAT32 with contribution energy_matching: between two pulls the center moves "
            "less than the rounding error of the weights"));
  }
}

std::string Describe(const v1::Job& job) {
  const v1::EnergyMatching& config = job.algorithm().contribution().energy_matching();
  return absl::StrCat(
      "Every step a worker sends a move of the center, -lr * g with lr = ", Short(config.learning_rate()),
      ", times a factor from 0 to 5 for each weight, so that all workers together move it ",
      config.energy() == 1 ? "" : Short(config.energy()) + " times ", "as far as one with momentum ",
      Short(config.momentum()), " would; fresh weights come with the answer.");
}

int WorkerVectors(const v1::Job& job) { return 2; }

google::protobuf::Message* Config(v1::Job* job) {
  return job->mutable_algorithm()->mutable_contribution()->mutable_energy_matching();
}

}  // namespace

const ContributionKind kEnergyMatchingContribution = {.kind = v1::Contribution::kEnergyMatching,
                                                      .period = Period,
                                                      .workers_apply_learning_rate = true,
                                                      .has_weight_decay = false,
                                                      .needs_one_rate = true,
                                                      .fill_defaults = FillDefaults,
                                                      .check = Check,
                                                      .describe = Describe,
                                                      .worker_vectors = WorkerVectors,
                                                      .learning_rate_of = Config,
                                                      .momentum_of = Config};

}  // namespace catchment
