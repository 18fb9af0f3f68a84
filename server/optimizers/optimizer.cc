#include "server/optimizers/optimizer.h"

#include <glog/logging.h>

#include <limits>

#include "server/optimizers/adadelta.h"
#include "server/optimizers/adagrad.h"
#include "server/optimizers/adam.h"
#include "server/optimizers/adamw.h"
#include "server/optimizers/lamb.h"
#include "server/optimizers/lars.h"
#include "server/optimizers/prepared.h"
#include "server/optimizers/rmsprop.h"
#include "server/optimizers/sgd.h"

namespace catchment {

namespace {

float ClipValue(const v1::Optimizer& config) {
  return config.has_clip_value() ? config.clip_value() : std::numeric_limits<float>::infinity();
}

// Whether clipping and weight decay are in the rule itself.
bool PreparesGradients(v1::Optimizer::Kind kind) {
  return kind == v1::Optimizer::LARS || kind == v1::Optimizer::LAMB;
}

std::unique_ptr<Optimizer> MakeSgd(const v1::Optimizer& config) {
  if (config.momentum() == 0) return std::make_unique<Sgd>();
  if (config.nesterov()) return std::make_unique<Nesterov>(config.momentum());
  return std::make_unique<Momentum>(config.momentum());
}

std::unique_ptr<Optimizer> MakeKind(const v1::Optimizer& config) {
  switch (config.kind()) {
    case v1::Optimizer::SGD:
      return MakeSgd(config);
    case v1::Optimizer::ADAGRAD:
      return std::make_unique<Adagrad>(config.epsilon());
    case v1::Optimizer::ADAM:
      return std::make_unique<Adam>(config.beta1(), config.beta2(), config.epsilon());
    case v1::Optimizer::RMSPROP:
      return std::make_unique<RmsProp>(config.rho(), config.epsilon(), config.momentum(), config.centered());
    case v1::Optimizer::ADADELTA:
      return std::make_unique<Adadelta>(config.rho(), config.epsilon());
    case v1::Optimizer::ADAMW:
      return std::make_unique<AdamW>(config.beta1(), config.beta2(), config.epsilon(), config.weight_decay());
    case v1::Optimizer::LARS:
      return std::make_unique<Lars>(config.momentum(), config.trust(), config.weight_decay(),
                                    ClipValue(config));
    case v1::Optimizer::LAMB:
      return std::make_unique<Lamb>(config.beta1(), config.beta2(), config.epsilon(), config.weight_decay(),
                                    ClipValue(config));
    default:
      LOG(FATAL) << "a job that was not validated: optimizer.kind " << config.kind();
  }
}

}  // namespace

std::unique_ptr<Optimizer> MakeOptimizer(const v1::Optimizer& config) {
  std::unique_ptr<Optimizer> optimizer = MakeKind(config);
  const float coupled_decay = config.kind() == v1::Optimizer::ADAMW ? 0 : config.weight_decay();
  if (PreparesGradients(config.kind()) || (coupled_decay == 0 && !config.has_clip_value())) return optimizer;
  return std::make_unique<Prepared>(ClipValue(config), coupled_decay, std::move(optimizer));
}

}  // namespace catchment
