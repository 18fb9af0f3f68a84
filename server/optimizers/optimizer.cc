#include "server/optimizers/optimizer.h"

#include <glog/logging.h>

#include "server/optimizers/adagrad.h"
#include "server/optimizers/adam.h"
#include "server/optimizers/sgd.h"

namespace catchment {

std::unique_ptr<Optimizer> MakeOptimizer(const v1::Optimizer& config) {
  switch (config.kind()) {
    case v1::Optimizer::SGD:
      if (config.momentum() == 0) return std::make_unique<Sgd>();
      if (config.nesterov()) return std::make_unique<Nesterov>(config.momentum());
      return std::make_unique<Momentum>(config.momentum());
    case v1::Optimizer::ADAGRAD:
      return std::make_unique<Adagrad>(config.epsilon());
    case v1::Optimizer::ADAM:
      return std::make_unique<Adam>(config.beta1(), config.beta2(), config.epsilon());
    default:
      LOG(FATAL) << "a job that was not validated: optimizer.kind " << config.kind();
  }
}

}  // namespace catchment
