#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/job/checks.h"

namespace catchment {
namespace {

// Workers that have momentum of their own need servers that add up what they send.
void CheckServersAreSgd(const v1::Optimizer& optimizer, const std::string& contribution, Problems* problems) {
  const std::string why =
      absl::StrCat(" with contribution ", contribution,
                   ", whose workers have momentum of their own: averaged on the servers once more, it would "
                   "count twice; the workers' is algorithm.contribution.",
                   contribution, ".momentum");
  if (optimizer.kind() != v1::Optimizer::SGD) {
    problems->Add("optimizer.kind",
                  absl::StrCat("is ", v1::Optimizer::Kind_Name(optimizer.kind()), "; must be SGD", why));
  } else if (optimizer.momentum() != 0) {
    problems->Add("optimizer.momentum", absl::StrCat("is ", optimizer.momentum(), "; must be 0", why));
  }
}

}  // namespace

void CheckPseudoGradient(const v1::Job& job, Problems* problems) {
  const v1::PseudoGradient& config = job.algorithm().contribution().pseudo_gradient();
  const v1::Optimizer& local = config.local_optimizer();
  const std::string path = "algorithm.contribution.pseudo_gradient";
  problems->AtLeast<uint32_t>(1, path + ".local_steps", config.local_steps());
  // Where the servers' has "optimizer.kind" it is this one's, in the path and in what is to be done.
  Problems of_local;
  CheckOptimizer(local, /*elastic=*/false, &of_local);
  for (const std::string& line : of_local.lines()) {
    problems->AddLines(absl::StrReplaceAll(line, {{"optimizer.", path + ".local_optimizer."}}));
  }
  if (NeedsWholeTensors(local)) {
    problems->Add(
        path + ".local_optimizer.kind",
        absl::StrCat("is ", v1::Optimizer::Kind_Name(local.kind()),
                     ", which is for the large batches of many workers together; must be ",
                     ListOptimizerKinds([](const OptimizerKind& kind) { return !kind.whole_tensors; })));
  }
  if (local.worker_scaling() != v1::Optimizer::NO_SCALING) {
    problems->Add(
        path + ".local_optimizer.worker_scaling",
        "a worker trains by itself between two rounds, however many there are; leave it out, or set "
        "optimizer.worker_scaling");
  }
}

void CheckEnergyMatching(const v1::Job& job, Problems* problems) {
  const v1::EnergyMatching& config = job.algorithm().contribution().energy_matching();
  const v1::Optimizer& optimizer = job.optimizer();
  const std::string path = "algorithm.contribution.energy_matching";
  problems->Positive(path + ".learning_rate", config.learning_rate());
  problems->BelowOne(path + ".momentum", config.momentum());
  problems->Positive(path + ".energy", config.energy());
  CheckServersAreSgd(optimizer, "energy_matching", problems);
  problems->Require(
      optimizer.learning_rate() == 1, "optimizer.learning_rate", optimizer.learning_rate(),
      absl::StrCat("must be 1 with contribution energy_matching, which pushes moves of the center; "
                   "set ",
                   path, ".learning_rate"));
  const std::string hint =
      "does not belong to contribution energy_matching, which pushes moves of the center and not gradients; "
      "leave it out";
  if (optimizer.weight_decay() != 0) problems->Add("optimizer.weight_decay", hint);
  if (optimizer.has_clip_value()) problems->Add("optimizer.clip_value", hint);
  if (optimizer.has_clip_norm()) problems->Add("optimizer.clip_norm", hint);
  if (optimizer.worker_scaling() != v1::Optimizer::NO_SCALING)
    problems->Add("optimizer.worker_scaling", hint);
  if (job.algorithm().consistency().groups() == 1) {
    problems->Add(
        "algorithm.consistency.groups",
        "is 1; with contribution energy_matching it must not be: synchronous workers have no moves of "
        "others to make room for; set it to 0, or use contribution look_ahead");
  }
  if (!job.algorithm().compensation().has_none()) {
    problems->Add(
        "algorithm.compensation",
        "must be none {} with contribution energy_matching, which makes room for the moves of others "
        "by itself; leave it out");
  }
  if (job.compression().pull() != v1::Compression::FLOAT32) {
    problems->Add(
        "compression.pull",
        absl::StrCat("is ", v1::Compression::Codec_Name(job.compression().pull()),
                     "; must be FLOAT32 with contribution energy_matching: the center's move from one "
                     "pull to the next is smaller than rounded weights can tell"));
  }
}

void CheckLookAhead(const v1::Job& job, Problems* problems) {
  const v1::LookAheadMomentum& config = job.algorithm().contribution().look_ahead();
  problems->BelowOne("algorithm.contribution.look_ahead.momentum", config.momentum());
  CheckServersAreSgd(job.optimizer(), "look_ahead", problems);
}

}  // namespace catchment
