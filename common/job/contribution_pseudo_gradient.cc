#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/text.h"
#include "common/job/algorithm_facts.h"
#include "common/job/contribution_kinds.h"
#include "optim/optimizer.h"

namespace catchment {
namespace {

uint32_t Period(const v1::Contribution& contribution) { return contribution.pseudo_gradient().local_steps(); }

void FillDefaults(uint32_t workers, v1::Contribution* contribution) {
  CATCHMENT_DEFAULT(contribution->mutable_pseudo_gradient(), local_steps, 16);
  CATCHMENT_DEFAULT(contribution->mutable_pseudo_gradient(), steps_by_speed, false);
  CATCHMENT_DEFAULT(contribution->mutable_pseudo_gradient(), fragments, 1);
  CATCHMENT_DEFAULT(contribution->mutable_pseudo_gradient(), overlap_steps, 0);
  CATCHMENT_DEFAULT(contribution->mutable_pseudo_gradient(), blend, 0);
}

// Checks fragments and overlap, which only some consistencies support.
void CheckStreaming(const v1::Job& job, const std::string& path, Problems* problems) {
  const v1::PseudoGradient& config = job.algorithm().contribution().pseudo_gradient();
  const v1::Consistency& consistency = job.algorithm().consistency();
  problems->Within<uint32_t>(1, std::max(1u, config.local_steps()), path + ".fragments", config.fragments());
  if (config.overlap_steps() > 0 && config.overlap_steps() >= config.local_steps()) {
    problems->Add(path + ".overlap_steps", Reason::kRange,
                  absl::StrCat("is ", config.overlap_steps(),
                               ", so that a fragment would be sent again "
                               "before its answer is used; must be below local_steps, ",
                               config.local_steps()));
  }
  if (!(config.blend() >= 0 && config.blend() < 1)) {
    problems->Add(path + ".blend", Reason::kRange,
                  absl::StrCat("is ", Short(config.blend()), "; must be in [0, 1)"));
  } else if (config.blend() > 0 && config.overlap_steps() == 0) {
    problems->Add(path + ".blend", Reason::kNeeds,
                  absl::StrCat("is ", Short(config.blend()),
                               ", but without overlap_steps a worker has made no steps that an answer could "
                               "be blended with; set overlap_steps, or leave blend out"));
  }
  const bool supported = IsSynchronous(consistency) || consistency.has_quorum() ||
                         (consistency.has_asynchronous() && consistency.asynchronous().emulated_delay() == 0);
  if (supported) return;
  for (const auto& [field, is_set] : {std::pair<const char*, bool>{".fragments", config.fragments() > 1},
                                      {".overlap_steps", config.overlap_steps() > 0}}) {
    if (!is_set) continue;
    problems->Add(
        path + field, Reason::kNeeds,
        "needs algorithm.consistency synchronous {} without backup workers, asynchronous {} without "
        "emulated_delay, or quorum {}; set one of them, or leave it out");
  }
}

void Check(const v1::Job& job, Problems* problems) {
  const v1::PseudoGradient& config = job.algorithm().contribution().pseudo_gradient();
  const v1::Optimizer& local = config.local_optimizer();
  const std::string path = "algorithm.contribution.pseudo_gradient";
  problems->AtLeast<uint32_t>(1, path + ".local_steps", config.local_steps());
  CheckStreaming(job, path, problems);
  if (config.steps_by_speed() && !job.algorithm().consistency().has_asynchronous()) {
    problems->Add(path + ".steps_by_speed", Reason::kNeeds,
                  "is true, but only with algorithm.consistency asynchronous {} may workers make different "
                  "numbers of steps; leave it out, or set algorithm.consistency to asynchronous {}");
  }
  // Rewrites "optimizer.kind" in paths and hints to the path of the local optimizer.
  Problems of_local;
  CheckOptimizer(local, /*elastic=*/false, &of_local);
  const auto of_worker = [&path](const std::string& text) {
    return absl::StrReplaceAll(text, {{"optimizer.", path + ".local_optimizer."}});
  };
  for (const Problem& problem : of_local.list())
    problems->Add(of_worker(problem.path), problem.reason, of_worker(problem.text));
  if (NeedsWholeTensors(local)) {
    problems->Add(
        path + ".local_optimizer.kind", Reason::kRange,
        absl::StrCat("is ", v1::Optimizer::Kind_Name(local.kind()),
                     ", which is for the large batches of many workers together; must be ",
                     ListOptimizerKinds([](const OptimizerKind& kind) { return !kind.whole_tensors; })));
  }
  if (local.worker_scaling() != v1::Optimizer::NO_SCALING) {
    problems->Add(path + ".local_optimizer.worker_scaling", Reason::kUnused,
                  "between two rounds each worker trains alone, so the number of workers does not matter; "
                  "leave it out, or set optimizer.worker_scaling");
  }
  if (local.schedule().decay() == v1::Schedule::PLATEAU) {
    problems->Add(path + ".local_optimizer.schedule.decay", Reason::kConflict,
                  "is PLATEAU, which only the servers can follow; set it to COSINE or STEP, or "
                  "optimizer.schedule.decay to PLATEAU");
  }
}

std::string DescribeFragments(const v1::PseudoGradient& config) {
  if (config.fragments() <= 1) return "";
  return absl::StrCat(", one of ", config.fragments(), " fragments of the weights after another");
}

std::string DescribeUse(const v1::Job& job) {
  const v1::PseudoGradient& config = job.algorithm().contribution().pseudo_gradient();
  if (config.overlap_steps() == 0) return ", and continues with fresh weights.";
  const std::string when = !IsSynchronous(job.algorithm().consistency())
                               ? "when it has arrived"
                               : absl::StrCat(config.overlap_steps(),
                                              config.overlap_steps() == 1 ? " step later" : " steps later");
  if (config.blend() == 0)
    return absl::StrCat(". It continues with its own weights, and replaces them by the answer ", when, ".");
  return absl::StrCat(". It continues with its own weights, and blends ", Short(config.blend()),
                      " of them with the answer ", when, ".");
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
      DescribeFragments(config), ", which the servers treat as a gradient", DescribeUse(job));
}

// Counts the weights that were pulled last, with overlap the move that is being sent, and the local
// optimizer's vectors.
int WorkerVectors(const v1::Job& job) {
  return 1 + (Overlaps(job) ? 1 : 0) +
         OptimizerVectors(job.algorithm().contribution().pseudo_gradient().local_optimizer());
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
