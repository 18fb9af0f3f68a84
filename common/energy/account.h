// Adds up the energy of a job's hosts from the reports of its processes. Of a host with several processes,
// the largest value counts, which is that of the process that was started first.
//
// Units: joules. Threads: safe. Errors: none.
#ifndef CATCHMENT_COMMON_ENERGY_ACCOUNT_H_
#define CATCHMENT_COMMON_ENERGY_ACCOUNT_H_

#include <algorithm>
#include <map>
#include <string>

#include "common/base/mutex.h"
#include "proto/master.pb.h"

namespace catchment {

class EnergyAccount {
 public:
  static constexpr size_t kMaxHosts = 10'000;

  // Adds a report; further hosts than kMaxHosts are ignored.
  void Add(const v1::Energy& energy) {
    if (!energy.has_processor_joules() && !energy.has_gpu_joules()) return;
    MutexLock lock(&mu_);
    if (hosts_.size() >= kMaxHosts && hosts_.count(energy.host()) == 0) return;
    v1::Energy& host = hosts_[energy.host()];
    if (energy.has_processor_joules())
      host.set_processor_joules(std::max(host.processor_joules(), energy.processor_joules()));
    if (energy.has_gpu_joules()) host.set_gpu_joules(std::max(host.gpu_joules(), energy.gpu_joules()));
  }

  // Sets the fields of the status, if there are reports.
  void Fill(v1::JobStatus* status) const {
    MutexLock lock(&mu_);
    status->set_energy_hosts(static_cast<uint32_t>(hosts_.size()));
    for (const auto& [name, host] : hosts_) {
      if (host.has_processor_joules())
        status->set_processor_joules(status->processor_joules() + host.processor_joules());
      if (host.has_gpu_joules()) status->set_gpu_joules(status->gpu_joules() + host.gpu_joules());
    }
  }

 private:
  mutable Mutex mu_;
  std::map<std::string, v1::Energy> hosts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_ENERGY_ACCOUNT_H_
