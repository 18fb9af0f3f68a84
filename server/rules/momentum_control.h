// Sets the optimizer's momentum so that it and the momentum that asynchrony adds (Mitliagkas et al. 2016,
// arXiv:1605.09774: 1 - 1/g with g workers and exponential service times) together are the job's momentum,
// and bounds the learning rate by the staleness (server/rules/step_bound.h). There is one object for each
// block.
//
// Threads: it has no lock; the owner of the block holds one.
#ifndef CATCHMENT_SERVER_RULES_MOMENTUM_CONTROL_H_
#define CATCHMENT_SERVER_RULES_MOMENTUM_CONTROL_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "proto/job.pb.h"
#include "proto/standby.pb.h"
#include "proto/wire.pb.h"

namespace catchment {

class MomentumControl {
 public:
  // An update that is about to be applied. Of several contributions, version and gradient are the first
  // one's.
  struct Stale {
    uint64_t version = 0;  // at which it was computed
    double tau = 0;        // the mean over the samples
    const float* gradient = nullptr;
    float learning_rate = 0;  // before any factor
  };
  struct Setting {
    std::optional<float> momentum;  // nothing: the optimizer's own
    float rate_factor = 1;          // of the learning rate
  };

  virtual ~MomentumControl() = default;

  // Returns the setting for the step with this update.
  virtual Setting Set(const Stale& stale) = 0;
  // Observes the weights after the step, and their version.
  virtual void Stepped(uint64_t version, const float* weights) {}

  // Returns the measurements and the settings.
  virtual v1::MomentumState state() const = 0;
  virtual void Restore(const v1::MomentumState& state) = 0;
  // Appends the sampled weights of version `from` and later ones. With all of them, an object that a standby
  // restores sets the same bits; after a checkpoint, measuring starts over.
  virtual void SavePoints(uint64_t from,
                          google::protobuf::RepeatedPtrField<v1::MomentumPoint>* points) const {}
  virtual void RestorePoint(const v1::MomentumPoint& point) {}
};

// Returns null if the job's compensation neither sets the momentum nor has a bound. `size` is that of the
// block. `job` is complete and valid.
std::unique_ptr<MomentumControl> MakeMomentumControl(const v1::Job& job, int64_t size);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_RULES_MOMENTUM_CONTROL_H_
