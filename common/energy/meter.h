// The energy that this host uses: of its processors by RAPL, which Linux has at /sys/class/powercap, and of
// its NVIDIA GPUs by NVML, which is opened when it is needed. Neither needs a privilege of ours, but most
// kernels let only root read RAPL.
//
// Units: joules. Errors: none; what cannot be read is absent.
#ifndef CATCHMENT_COMMON_ENERGY_METER_H_
#define CATCHMENT_COMMON_ENERGY_METER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "proto/master.pb.h"

namespace catchment {

// Threads: safe.
class EnergyMeter {
 public:
  // Returns the energy that GPUs have used since any fixed time; nothing if it cannot be read.
  using GpuJoules = std::function<std::optional<double>()>;

  // Counts from now on. `powercap`: a directory like /sys/class/powercap. RAPL's counters wrap around, after
  // about ten minutes or more: Read must be called more often.
  EnergyMeter(const std::string& powercap, std::string host, GpuJoules gpus);

  // Counts the GPUs, too, from now on.
  void CountGpus();
  v1::Energy Read();

 private:
  // A package of processors, whose counter includes those of its parts.
  struct Package {
    std::string counter;  // file
    uint64_t range = 0;   // microjoules at which it wraps around
    uint64_t last = 0;
  };

  const std::string host_;
  const GpuJoules gpus_;
  Mutex mu_;
  std::vector<Package> packages_ ABSL_GUARDED_BY(mu_);
  double processor_joules_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<double> gpus_at_start_ ABSL_GUARDED_BY(mu_);
};

// Returns the meter of this process, which counts from the first call on.
EnergyMeter& HostEnergy();

}  // namespace catchment

#endif  // CATCHMENT_COMMON_ENERGY_METER_H_
