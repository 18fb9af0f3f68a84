#include "server/edge/sweeper.h"

#include <malloc.h>

namespace catchment {
namespace {

constexpr double kSweepSeconds = 1;
constexpr double kTrimPeriodSeconds = 10;

}  // namespace

Sweeper::Sweeper(ShardService* service, Shard* shard, const Clock* clock)
    : service_(*service), shard_(*shard), clock_(*clock), thread_([this] { Run(); }) {}

Sweeper::~Sweeper() {
  {
    MutexLock lock(&mu_);
    ending_ = true;
    changed_.Notify();
  }
  thread_.join();
}

void Sweeper::Run() {
  MemoryTrimmer memory(shard_.pool());
  double last_trim = clock_.Now();
  while (true) {
    {
      MutexLock lock(&mu_);
      if (changed_.WaitFor(&mu_, kSweepSeconds, [this] { return ending_; })) return;
    }
    const double now = clock_.Now();
    service_.Sweep(now);
    if (now - last_trim < kTrimPeriodSeconds) continue;
    last_trim = now;
    memory.Trim(shard_.bytes_moved());
  }
}

void MemoryTrimmer::Trim(uint64_t traffic) {
  pool_.Trim();
  const bool idle = traffic == traffic_;
  traffic_ = traffic;
  if (idle && !trimmed_) malloc_trim(0);
  trimmed_ = idle;
}

}  // namespace catchment
