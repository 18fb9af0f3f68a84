#include "common/job/check_optimizer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace catchment {
namespace {

using Kind = v1::Optimizer::Kind;

std::string JoinKinds(const std::vector<Kind>& kinds, const std::string& last) {
  std::string names;
  for (size_t i = 0; i < kinds.size(); ++i) {
    absl::StrAppend(&names,
                    i == 0                 ? ""
                    : i + 1 < kinds.size() ? ", "
                                           : absl::StrCat(" ", last, " "),
                    v1::Optimizer::Kind_Name(kinds[i]));
  }
  return names;
}

// A field that only some kinds have. Returns whether this one is among them.
bool CheckKindHas(const std::string& field, bool set, Kind kind, const std::vector<Kind>& owners,
                  Problems* problems) {
  if (std::find(owners.begin(), owners.end(), kind) != owners.end()) return true;
  if (!set) return false;
  problems->Add("optimizer." + field,
                absl::StrCat("is of ", JoinKinds(owners, "and"), "; ", v1::Optimizer::Kind_Name(kind),
                             " has none, leave it out or set optimizer.kind to ", JoinKinds(owners, "or")));
  return false;
}

void CheckMomentum(const v1::Optimizer& optimizer, Problems* problems) {
  const Kind kind = optimizer.kind();
  if (CheckKindHas("momentum", optimizer.momentum() != 0, kind, {v1::Optimizer::SGD, v1::Optimizer::RMSPROP},
                   problems)) {
    problems->BelowOne("optimizer.momentum", optimizer.momentum());
  }
  if (CheckKindHas("nesterov", optimizer.nesterov(), kind, {v1::Optimizer::SGD}, problems) &&
      optimizer.nesterov() && optimizer.momentum() == 0) {
    problems->Add("optimizer.nesterov",
                  "is true and momentum is 0; Nesterov's step looks ahead along the momentum: "
                  "set momentum above 0, or leave nesterov out");
  }
}

void CheckAverages(const v1::Optimizer& optimizer, Problems* problems) {
  const Kind kind = optimizer.kind();
  if (CheckKindHas("beta1", optimizer.has_beta1(), kind, {v1::Optimizer::ADAM, v1::Optimizer::ADAMW},
                   problems)) {
    problems->BelowOne("optimizer.beta1", optimizer.beta1());
  }
  if (CheckKindHas("beta2", optimizer.has_beta2(), kind, {v1::Optimizer::ADAM, v1::Optimizer::ADAMW},
                   problems)) {
    problems->BelowOne("optimizer.beta2", optimizer.beta2());
  }
  if (CheckKindHas("rho", optimizer.has_rho(), kind, {v1::Optimizer::RMSPROP, v1::Optimizer::ADADELTA},
                   problems)) {
    problems->BelowOne("optimizer.rho", optimizer.rho());
  }
  if (CheckKindHas("epsilon", optimizer.has_epsilon(), kind,
                   {v1::Optimizer::ADAGRAD, v1::Optimizer::RMSPROP, v1::Optimizer::ADADELTA,
                    v1::Optimizer::ADAM, v1::Optimizer::ADAMW},
                   problems)) {
    problems->Positive("optimizer.epsilon", optimizer.epsilon());
  }
}

void CheckDecayAndClipping(const v1::Optimizer& optimizer, Problems* problems) {
  const double decay = optimizer.weight_decay();
  problems->Require(decay >= 0 && std::isfinite(decay), "optimizer.weight_decay", decay,
                    "must be a number, 0 or above");
  if (optimizer.kind() == v1::Optimizer::ADAMW && optimizer.learning_rate() * decay >= 1) {
    problems->Add("optimizer.weight_decay",
                  absl::StrCat("is ", decay, "; with learning_rate ", optimizer.learning_rate(),
                               " one step takes all of the weights away: their product must be below 1"));
  }
  if (optimizer.has_clip_value()) problems->Positive("optimizer.clip_value", optimizer.clip_value());
}

void CheckSchedule(const v1::Schedule& schedule, Problems* problems) {
  problems->Require(v1::Schedule::Decay_IsValid(schedule.decay()), "optimizer.schedule.decay",
                    static_cast<int>(schedule.decay()), "must be CONSTANT or COSINE");
  problems->BelowOne("optimizer.schedule.warmup", schedule.warmup());
  problems->Within<float>(0, 1, "optimizer.schedule.final_fraction", schedule.final_fraction());
}

// The optimizer of elastic averaging runs on the workers, between exchanges with the center.
void CheckElasticOptimizer(const v1::Optimizer& optimizer, Problems* problems) {
  if (optimizer.kind() != v1::Optimizer::SGD) {
    problems->Add(
        "optimizer.kind",
        absl::StrCat("is ", v1::Optimizer::Kind_Name(optimizer.kind()),
                     "; must be SGD with contribution "
                     "elastic: it moves each worker's own weights, and an exchange pulls these away from "
                     "what its running averages describe; for ",
                     v1::Optimizer::Kind_Name(optimizer.kind()), " use preset sync or downpour"));
  } else if (optimizer.momentum() > 0 && !optimizer.nesterov()) {
    problems->Add("optimizer.momentum",
                  absl::StrCat("is ", optimizer.momentum(),
                               " without nesterov; with contribution elastic momentum is "
                               "Nesterov's (EAMSGD): set nesterov to true, or momentum to 0 (EASGD)"));
  }
  const std::string mend =
      "does not belong to contribution elastic, whose workers move by plain gradients; leave it out";
  if (optimizer.weight_decay() != 0) problems->Add("optimizer.weight_decay", mend);
  if (optimizer.has_clip_value()) problems->Add("optimizer.clip_value", mend);
}

}  // namespace

void CheckOptimizer(const v1::Optimizer& optimizer, bool elastic, Problems* problems) {
  if (!v1::Optimizer::Kind_IsValid(optimizer.kind())) {
    return problems->Require(false, "optimizer.kind", static_cast<int>(optimizer.kind()),
                             "must be SGD, ADAGRAD, ADAM, RMSPROP, ADADELTA or ADAMW");
  }
  problems->Positive("optimizer.learning_rate", optimizer.learning_rate());
  CheckMomentum(optimizer, problems);
  CheckAverages(optimizer, problems);
  CheckDecayAndClipping(optimizer, problems);
  CheckSchedule(optimizer.schedule(), problems);
  if (elastic) CheckElasticOptimizer(optimizer, problems);
}

}  // namespace catchment
