#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/checks.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace catchment {
namespace {

using Decay = v1::Schedule::Decay;

std::string Join(const std::vector<std::string>& names, const std::string& last) {
  std::string list;
  for (size_t i = 0; i < names.size(); ++i) {
    absl::StrAppend(&list,
                    i == 0                 ? ""
                    : i + 1 < names.size() ? ", "
                                           : absl::StrCat(" ", last, " "),
                    names[i]);
  }
  return list;
}

// Checks a field that only some choices of another field, `by`, have. Returns true if `choice` has it.
bool CheckChoiceHas(const std::string& path, bool set, const std::string& by, const std::string& choice,
                    const std::vector<std::string>& owners, Problems* problems) {
  if (std::find(owners.begin(), owners.end(), choice) != owners.end()) return true;
  if (!set) return false;
  problems->Add(path, Reason::kUnused,
                absl::StrCat("belongs to ", Join(owners, "and"), "; ", choice,
                             " has none, leave it out or set ", by, " to ", Join(owners, "or")));
  return false;
}

std::vector<std::string> NamesOf(absl::FunctionRef<bool(const OptimizerKind&)> fits) {
  std::vector<std::string> names;
  for (const OptimizerKind* kind : OptimizerKinds()) {
    if (fits(*kind)) names.push_back(v1::Optimizer::Kind_Name(kind->kind));
  }
  return names;
}

// The fields that only some kinds have, and the limits of those that are numbers.
struct KindField {
  const char* name;
  void (Problems::*check)(const std::string& path, double value) = nullptr;
};
constexpr KindField kKindFields[] = {
    {"momentum", &Problems::BelowOne}, {"nesterov"},
    {"beta1", &Problems::BelowOne},    {"beta2", &Problems::BelowOne},
    {"rho", &Problems::BelowOne},      {"centered"},
    {"epsilon", &Problems::Positive},  {"trust_coefficient", &Problems::Positive},
};

// Checks that `field` is not set if the optimizer's kind does not have it, and otherwise its value.
void CheckKindField(const KindField& field, const v1::Optimizer& optimizer, Problems* problems) {
  const google::protobuf::Reflection& reflection = *optimizer.GetReflection();
  const auto* const descriptor = optimizer.GetDescriptor()->FindFieldByName(field.name);
  const bool is_flag = descriptor->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_BOOL;
  // A flag that is false, or a momentum of 0, is what a kind without them does.
  const bool is_set = is_flag ? reflection.GetBool(optimizer, descriptor)
                              : reflection.HasField(optimizer, descriptor) &&
                                    (descriptor->number() != v1::Optimizer::kMomentumFieldNumber ||
                                     optimizer.momentum() != 0);
  const std::vector<std::string> owners =
      NamesOf([&](const OptimizerKind& kind) { return kind.HasField(field.name); });
  const std::string path = absl::StrCat("optimizer.", field.name);
  if (CheckChoiceHas(path, is_set, "optimizer.kind", v1::Optimizer::Kind_Name(optimizer.kind()), owners,
                     problems) &&
      field.check != nullptr) {
    (problems->*field.check)(path, reflection.GetFloat(optimizer, descriptor));
  }
}

// Checks a field that only some decays have.
bool CheckDecayHas(const std::string& field, bool set, Decay decay, const std::vector<Decay>& owners,
                   Problems* problems) {
  std::vector<std::string> names;
  for (Decay owner : owners) names.push_back(v1::Schedule::Decay_Name(owner));
  return CheckChoiceHas("optimizer.schedule." + field, set, "optimizer.schedule.decay",
                        v1::Schedule::Decay_Name(decay), names, problems);
}

void CheckKindFields(const v1::Optimizer& optimizer, Problems* problems) {
  for (const KindField& field : kKindFields) CheckKindField(field, optimizer, problems);
  if (optimizer.kind() == v1::Optimizer::SGD && optimizer.nesterov() && optimizer.momentum() == 0) {
    problems->Add("optimizer.nesterov", Reason::kNeeds,
                  "is true and momentum is 0; Nesterov's step looks ahead along the momentum: "
                  "set momentum above 0, or leave nesterov out");
  }
}

void CheckDecayAndClipping(const v1::Optimizer& optimizer, Problems* problems) {
  const double decay = optimizer.weight_decay();
  problems->Require(decay >= 0 && std::isfinite(decay), "optimizer.weight_decay", decay,
                    "must be a number, 0 or above");
  if (optimizer.kind() == v1::Optimizer::ADAMW && optimizer.learning_rate() * decay >= 1) {
    problems->Add("optimizer.weight_decay", Reason::kConflict,
                  absl::StrCat("is ", decay, "; with learning_rate ", optimizer.learning_rate(),
                               " one step removes all of the weights: their product must be below 1"));
  }
  if (optimizer.has_clip_value()) problems->Positive("optimizer.clip_value", optimizer.clip_value());
  if (optimizer.has_clip_norm()) problems->Positive("optimizer.clip_norm", optimizer.clip_norm());
}

void CheckFinalFraction(const v1::Schedule& schedule, Problems* problems) {
  const std::string path = "optimizer.schedule.final_fraction";
  const float fraction = schedule.final_fraction();
  if (!CheckDecayHas("final_fraction", schedule.has_final_fraction(), schedule.decay(),
                     {v1::Schedule::COSINE, v1::Schedule::EXPONENTIAL, v1::Schedule::POLYNOMIAL,
                      v1::Schedule::ONE_CYCLE, v1::Schedule::PLATEAU},
                     problems)) {
    return;
  }
  if (schedule.decay() != v1::Schedule::EXPONENTIAL) return problems->Within<float>(0, 1, path, fraction);
  problems->Require(fraction > 0 && fraction <= 1, path, fraction,
                    "must be in (0, 1] with decay EXPONENTIAL, because exponential decay never reaches 0");
}

void CheckSchedule(const v1::Schedule& schedule, Problems* problems) {
  const std::string path = "optimizer.schedule";
  const Decay decay = schedule.decay();
  problems->BelowOne(path + ".warmup", schedule.warmup());
  if (!v1::Schedule::Decay_IsValid(decay)) {
    return problems->Require(false, path + ".decay", static_cast<int>(decay),
                             "must be CONSTANT, COSINE, STEP, EXPONENTIAL, POLYNOMIAL, ONE_CYCLE or PLATEAU");
  }
  CheckFinalFraction(schedule, problems);
  const float every = schedule.step_every(), factor = schedule.factor();
  if (CheckDecayHas("step_every", schedule.has_step_every(), decay, {v1::Schedule::STEP}, problems)) {
    problems->Require(every > 0 && every <= 1, path + ".step_every", every,
                      "must be in (0, 1], of the budget");
  }
  if (CheckDecayHas("factor", schedule.has_factor(), decay, {v1::Schedule::STEP, v1::Schedule::PLATEAU},
                    problems)) {
    problems->Require(factor > 0 && factor <= 1, path + ".factor", factor, "must be in (0, 1]");
  }
  if (CheckDecayHas("power", schedule.has_power(), decay, {v1::Schedule::POLYNOMIAL}, problems)) {
    problems->Positive(path + ".power", schedule.power());
  }
  const float share = schedule.pct_start();
  if (CheckDecayHas("pct_start", schedule.has_pct_start(), decay, {v1::Schedule::ONE_CYCLE}, problems)) {
    problems->Require(share > 0 && share < 1, path + ".pct_start", share, "must be in (0, 1)");
  }
  if (CheckDecayHas("initial_lr_fraction", schedule.has_initial_lr_fraction(), decay,
                    {v1::Schedule::ONE_CYCLE}, problems)) {
    problems->Within<float>(0, 1, path + ".initial_lr_fraction", schedule.initial_lr_fraction());
  }
  CheckDecayHas("patience", schedule.has_patience(), decay, {v1::Schedule::PLATEAU}, problems);
  if (CheckDecayHas("threshold", schedule.has_threshold(), decay, {v1::Schedule::PLATEAU}, problems)) {
    problems->BelowOne(path + ".threshold", schedule.threshold());
  }
}

void CheckMomentumCycle(const v1::Optimizer& optimizer, Problems* problems) {
  const v1::Schedule& schedule = optimizer.schedule();
  if (!CheckDecayHas("min_momentum", schedule.has_min_momentum(), schedule.decay(), {v1::Schedule::ONE_CYCLE},
                     problems) ||
      !schedule.has_min_momentum()) {
    return;
  }
  const std::string path = "optimizer.schedule.min_momentum",
                    most = optimizer.has_beta1() ? "beta1" : "momentum";
  const float highest = optimizer.has_beta1() ? optimizer.beta1() : optimizer.momentum();
  if (highest <= 0) {
    return problems->Add(path, Reason::kNeeds,
                         "lowers the momentum at the peak of the learning rate, but there is none; set "
                         "optimizer.momentum above 0 with a kind that has it, or leave it out");
  }
  problems->Require(schedule.min_momentum() >= 0 && schedule.min_momentum() <= highest, path,
                    schedule.min_momentum(),
                    absl::StrCat("must be from 0 to optimizer.", most, ", ", highest));
}

// The optimizer of elastic averaging runs on the workers, between exchanges with the center.
void CheckElasticOptimizer(const v1::Optimizer& optimizer, Problems* problems) {
  if (optimizer.kind() != v1::Optimizer::SGD) {
    problems->Add("optimizer.kind", Reason::kConflict,
                  absl::StrCat("is ", v1::Optimizer::Kind_Name(optimizer.kind()),
                               "; must be SGD with contribution "
                               "elastic: it moves each worker's own weights, and an exchange moves these, so "
                               "its running averages no longer describe them; for ",
                               v1::Optimizer::Kind_Name(optimizer.kind()), " use preset sync or downpour"));
  } else if (optimizer.momentum() > 0 && !optimizer.nesterov()) {
    problems->Add("optimizer.momentum", Reason::kConflict,
                  absl::StrCat("is ", optimizer.momentum(),
                               " without nesterov; with contribution elastic momentum is "
                               "Nesterov's (EAMSGD): set nesterov to true, or momentum to 0 (EASGD)"));
  }
  const std::string hint =
      "does not belong to contribution elastic, whose workers move by plain gradients; leave it out";
  if (optimizer.weight_decay() != 0) problems->Add("optimizer.weight_decay", Reason::kConflict, hint);
  if (optimizer.has_clip_value()) problems->Add("optimizer.clip_value", Reason::kConflict, hint);
  if (optimizer.has_clip_norm()) problems->Add("optimizer.clip_norm", Reason::kConflict, hint);
}

}  // namespace

std::string ListOptimizerKinds(absl::FunctionRef<bool(const OptimizerKind&)> fits) {
  return Join(NamesOf(fits), "or");
}

void CheckOptimizer(const v1::Optimizer& optimizer, bool elastic, Problems* problems) {
  if (FindOptimizerKind(optimizer.kind()) == nullptr) {
    return problems->Require(
        false, "optimizer.kind", static_cast<int>(optimizer.kind()),
        absl::StrCat("must be ", ListOptimizerKinds([](const OptimizerKind&) { return true; })));
  }
  problems->Positive("optimizer.learning_rate", optimizer.learning_rate());
  CheckKindFields(optimizer, problems);
  CheckDecayAndClipping(optimizer, problems);
  CheckSchedule(optimizer.schedule(), problems);
  CheckMomentumCycle(optimizer, problems);
  if (elastic) CheckElasticOptimizer(optimizer, problems);
}

}  // namespace catchment
