#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/job/contribution_kinds.h"

namespace catchment {
namespace {

uint32_t Period(const v1::Contribution& contribution) { return 1; }

void FillDefaults(uint32_t workers, v1::Contribution* contribution) {
  CATCHMENT_DEFAULT(contribution->mutable_look_ahead(), momentum, 0.9f);
}

void Check(const v1::Job& job, Problems* problems) {
  const v1::LookAheadMomentum& config = job.algorithm().contribution().look_ahead();
  problems->BelowOne("algorithm.contribution.look_ahead.momentum", config.momentum());
  CheckServersAreSgd(job.optimizer(), "look_ahead", problems);
}

std::string Describe(const v1::Job& job) {
  const std::string mu = Short(job.algorithm().contribution().look_ahead().momentum());
  return absl::StrCat("Each worker keeps its own momentum, v = ", mu, " * v + g, and sends g + ", mu,
                      " * v every step; fresh weights come with the answer.");
}

int WorkerVectors(const v1::Job& job) { return 1; }

google::protobuf::Message* Config(v1::Job* job) {
  return job->mutable_algorithm()->mutable_contribution()->mutable_look_ahead();
}

}  // namespace

const ContributionKind kLookAheadContribution = {.kind = v1::Contribution::kLookAhead,
                                                 .period = Period,
                                                 .fill_defaults = FillDefaults,
                                                 .check = Check,
                                                 .describe = Describe,
                                                 .worker_vectors = WorkerVectors,
                                                 .momentum_of = Config};

}  // namespace catchment
