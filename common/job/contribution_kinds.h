// The kinds of contributions that workers make (proto/job.proto, Contribution): one entry in a table states
// everything that validation, defaults, explanations and searches need to know about a kind. What a kind
// computes is in worker/algorithms and server/rules.
//
// To add a kind: a message in Contribution's oneof (proto/job.proto), a source file here that defines its
// ContributionKind, its name below and in BUILD, its algorithm in worker/algorithms, and, unless the servers
// apply it as they apply a gradient, its rule in server/rules/rule.h.
#ifndef CATCHMENT_COMMON_JOB_CONTRIBUTION_KINDS_H_
#define CATCHMENT_COMMON_JOB_CONTRIBUTION_KINDS_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "common/job/checks.h"
#include "proto/job.pb.h"

namespace catchment {

// Returns the job's optimizer.
google::protobuf::Message* ServersOptimizer(v1::Job* job);

struct ContributionKind {
  v1::Contribution::KindCase kind;
  // Returns the number of steps of one worker from one of its contributions to the next, at least 1 once
  // defaults are filled in.
  uint32_t (*period)(const v1::Contribution& contribution);
  // A worker makes its contribution at the start of a period, from the steps before it, instead of at the
  // end.
  bool contributes_first = false;
  // The workers apply the learning rate, so that the servers cannot change it in the course of the job.
  bool workers_apply_learning_rate = false;
  bool has_weight_decay = true;
  // Compares moves of the center with steps of one learning rate, so that groups of parameters cannot have
  // others.
  bool needs_one_rate = false;
  // Sets the fields that have a default and are not set. `workers`: Job.workers.
  void (*fill_defaults)(uint32_t workers, v1::Contribution* contribution);
  // Checks a job with a contribution of this kind whose defaults are filled in.
  void (*check)(const v1::Job& job, Problems* problems);
  // Returns sentences about what the workers of a valid job send and receive.
  std::string (*describe)(const v1::Job& job);
  // Returns the number of vectors as long as the weights that a worker keeps in addition to weights and
  // gradient.
  int (*worker_vectors)(const v1::Job& job);
  // Return the messages whose fields learning_rate and momentum a search over hyperparameters sets.
  google::protobuf::Message* (*learning_rate_of)(v1::Job* job) = ServersOptimizer;
  google::protobuf::Message* (*momentum_of)(v1::Job* job) = ServersOptimizer;
};

// Each is defined in contribution_NAME.cc.
extern const ContributionKind kGradientContribution;
extern const ContributionKind kElasticContribution;
extern const ContributionKind kPseudoGradientContribution;
extern const ContributionKind kEnergyMatchingContribution;
extern const ContributionKind kLookAheadContribution;

inline constexpr const ContributionKind* kContributionKinds[] = {
    &kGradientContribution, &kElasticContribution, &kPseudoGradientContribution, &kEnergyMatchingContribution,
    &kLookAheadContribution};

// Returns the entry of the contribution's kind, or that of the gradient if it has none.
const ContributionKind& KindOf(const v1::Contribution& contribution);

// Returns how many vectors as long as the weights the optimizer keeps.
int OptimizerVectors(const v1::Optimizer& optimizer);

// Checks that the servers add up the contributions of workers with their own momentum. `contribution`: its
// field.
void CheckServersAreSgd(const v1::Optimizer& optimizer, const std::string& contribution, Problems* problems);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_CONTRIBUTION_KINDS_H_
