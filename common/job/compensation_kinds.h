// The kinds of compensation for staleness (proto/job.proto, Compensation): one entry in a table states
// everything that validation, defaults and explanations need to know about a kind. What a kind computes is in
// server/rules.
//
// To add a kind: a message in Compensation's oneof (proto/job.proto), an entry in compensation_kinds.cc, and
// its formula in server/rules/gradient_compensation.h, staleness_factor.cc or momentum_control.h, or an
// optimizer of its own that server/rules/rule.cc makes.
#ifndef CATCHMENT_COMMON_JOB_COMPENSATION_KINDS_H_
#define CATCHMENT_COMMON_JOB_COMPENSATION_KINDS_H_

#include <string>

#include "common/job/checks.h"
#include "proto/job.pb.h"

namespace catchment {

struct CompensationKind {
  v1::Compensation::KindCase kind;
  // Gradients are corrected by the move of the center since their workers were sent their weights, so that
  // the servers keep what each worker was sent.
  bool corrects_gradients = false;
  bool scales = false;          // multiplies a contribution or its step by a factor of its staleness
  bool sets_momentum = false;   // of the servers' SGD
  bool reads_momentum = false;  // computes with the momentum of the servers' SGD
  bool needs_nesterov = false;  // the momentum of the servers' SGD must be Nesterov's
  // Counts contributions or compares two in a row, so each must make an update.
  bool needs_each = false;
  bool needs_one_rate = false;  // as of contributions
  // Sets the fields that have a default and are not set. Null: there are none.
  void (*fill_defaults)(uint32_t workers, v1::Compensation* compensation) = nullptr;
  // Checks the ranges of the kind's fields. `path`: its own, without a point at the end. Null: it has no
  // fields.
  void (*check)(const v1::Job& job, const std::string& path, Problems* problems) = nullptr;
  // Returns a sentence about a valid job's compensation. `copies`: the memory for the weights sent to
  // workers.
  std::string (*describe)(const v1::Job& job, const std::string& copies);
  // Returns the number of vectors as long as the weights that a server keeps, except those sent to workers.
  // Null: none.
  int (*vectors)(const v1::Compensation& compensation) = nullptr;

  // Returns true if the servers' SGD must have momentum.
  bool needs_momentum() const { return sets_momentum || reads_momentum || needs_nesterov; }
};

// Returns the entry of the compensation's kind, or that of `none` if it has none.
const CompensationKind& KindOf(const v1::Compensation& compensation);

// Returns true if contributions or their steps are multiplied by a factor of their staleness.
bool Scales(const v1::Compensation& compensation);

// Sets the fields of algorithm.compensation that have a default and are not set, of the kind and of its
// additions. One without a kind becomes `none`. The job's other axes are filled in.
void FillCompensation(v1::Job* job);

// Returns sentences about what a valid job does about staleness. `copies`: as in CompensationKind.
std::string DescribeCompensation(const v1::Job& job, const std::string& copies);

// Checks algorithm.compensation of a job whose defaults are filled in.
void CheckCompensation(const v1::Job& job, Problems* problems);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_COMPENSATION_KINDS_H_
