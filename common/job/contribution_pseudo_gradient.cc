#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/job/contribution_kinds.h"
#include "common/text.h"
#include "optim/optimizer.h"

namespace catchment {
namespace {

uint32_t Period(const v1::Contribution& contribution) { return contribution.pseudo_gradient().local_steps(); }

void FillDefaults(uint32_t workers, v1::Contribution* contribution) {
  CATCHMENT_DEFAULT(contribution->mutable_pseudo_gradient(), local_steps, 16);
  CATCHMENT_DEFAULT(contribution->mutable_pseudo_gradient(), steps_by_speed, false);
}

void Check(const v1::Job& job, Problems* problems) {
  const v1::PseudoGradient& config = job.algorithm().contribution().pseudo_gradient();
  const v1::Optimizer& local = config.local_optimizer();
  const std::string path = "algorithm.contribution.pseudo_gradient";
  problems->AtLeast<uint32_t>(1, path + ".local_steps", config.local_steps());
  if (config.steps_by_speed() && !job.algorithm().consistency().has_asynchronous()) {
    problems->Add(path + ".steps_by_speed",
                  "is true, but only with algorithm.consistency asynchronous {} may workers make different "
                  "numbers of steps; leave it out, or set algorithm.consistency to asynchronous {}");
  }
  // Rewrites "optimizer.kind" in paths and hints to the path of the local optimizer.
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
    problems->Add(path + ".local_optimizer.worker_scaling",
                  "between two rounds each worker trains alone, so the number of workers does not matter; "
                  "leave it out, or set "
                  "optimizer.worker_scaling");
  }
  if (local.schedule().decay() == v1::Schedule::PLATEAU) {
    problems->Add(path + ".local_optimizer.schedule.decay",
                  "is PLATEAU, which only the servers can follow; set it to COSINE or STEP, or "
                  "optimizer.schedule.decay to PLATEAU");
  }
}

std::string Describe(const v1::Job& job) {
  const v1::PseudoGradient& config = job.algorithm().contribution().pseudo_gradient();
  const v1::Optimizer& local = config.local_optimizer();
  std::string text =
      absl::StrCat("Each worker trains its own weights x by ",
                   FindOptimizerKind(local.kind())->describe(local), "; lr ", Short(local.learning_rate()),
                   ", ", v1::Schedule::Decay_Name(local.schedule().decay()), ".", DescribePreparation(local));
  if (local.has_clip_norm()) {
    absl::StrAppend(&text, " Its gradients are scaled to a norm of at most ", Short(local.clip_norm()), ".");
  }
  return absl::StrCat(
      text, " It sends its move, D = x as pulled - x, ", EverySteps(config.local_steps()),
      config.steps_by_speed() ? " (fewer on slower workers, so that all take the same time)" : "",
      ", which the servers treat as a gradient, and continues with fresh weights.");
}

// The weights that were pulled last, and the local optimizer's vectors.
int WorkerVectors(const v1::Job& job) {
  return 1 + OptimizerVectors(job.algorithm().contribution().pseudo_gradient().local_optimizer());
}

google::protobuf::Message* LocalOptimizer(v1::Job* job) {
  return job->mutable_algorithm()
      ->mutable_contribution()
      ->mutable_pseudo_gradient()
      ->mutable_local_optimizer();
}

}  // namespace

const ContributionKind kPseudoGradientContribution = {.kind = v1::Contribution::kPseudoGradient,
                                                      .period = Period,
                                                      .fill_defaults = FillDefaults,
                                                      .check = Check,
                                                      .describe = Describe,
                                                      .worker_vectors = WorkerVectors,
                                                      .learning_rate_of = LocalOptimizer,
                                                      .momentum_of = LocalOptimizer};

}  // namespace catchment
