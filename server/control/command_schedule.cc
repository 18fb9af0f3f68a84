#include "server/control/command_schedule.h"

#include <algorithm>
#include <cmath>

#include "common/base/rounding.h"

namespace catchment {

void CommandSchedule::Tick() {
  ++ticks_;
  allowance_ = std::min<int64_t>(allowance_ + kStatisticsPerTick, kStatisticsPerTick);
  for (Server& server : servers_) {
    ++server.since_sent;
    ++server.since_statistics;
  }
}

int CommandSchedule::Period(const Wanted& wanted, int num_workers) const {
  if (wanted.phase != v1::JobStatus::TRAINING) return 1;
  const uint64_t servers = servers_.size();
  return static_cast<int>(
      std::max(CeilDivide(servers, kServersPerTick), CeilDivide(servers * num_workers, kMarksPerTick)));
}

int CommandSchedule::StatisticsPeriod(const Wanted& wanted, int num_workers) const {
  if (wanted.phase != v1::JobStatus::TRAINING) return 0;
  return static_cast<int>(static_cast<int64_t>(servers_.size()) * num_workers / kStatisticsPerTick);
}

bool CommandSchedule::IsDueAtOnce(int server, const Wanted& wanted) const {
  const Server& s = servers_[server];
  return !s.in_flight && s.failures == 0 && !(s.sent == wanted);
}

bool CommandSchedule::IsDueNow(int server, const Wanted& wanted, int num_workers) const {
  const Server& s = servers_[server];
  if (s.in_flight) return false;
  if (IsDueAtOnce(server, wanted)) return true;
  if (s.since_sent == 0) return false;
  return s.failures > 0 || (ticks_ + server) % Period(wanted, num_workers) == 0;
}

std::optional<CommandSchedule::Content> CommandSchedule::Begin(int server, const Wanted& wanted,
                                                               int num_workers) {
  if (!IsDueNow(server, wanted, num_workers)) return std::nullopt;
  Server& s = servers_[server];
  s.in_flight = true;
  const int period = StatisticsPeriod(wanted, num_workers);
  s.asked_for_statistics = period == 0 || (s.since_statistics >= period && allowance_ > 0);
  if (s.asked_for_statistics) allowance_ -= num_workers;
  s.sent = wanted;
  s.since_sent = 0;
  const double patience = wanted.stop ? kAnswerSeconds : std::ldexp(kAnswerSeconds, std::min(s.failures, 8));
  return Content{s.acknowledged != wanted.generation, s.asked_for_statistics,
                 std::min(patience, kLongestAnswerSeconds)};
}

void CommandSchedule::End(int server, const v1::ShardReport* report) {
  Server& s = servers_[server];
  s.in_flight = false;
  s.failures = report == nullptr ? s.failures + 1 : 0;
  if (report == nullptr) {
    s.since_sent = 0;
    s.acknowledged = 0;
    return;
  }
  s.acknowledged = report->generation();
  if (s.asked_for_statistics) s.since_statistics = 0;
}

void CommandSchedule::Forget(int server) {
  const bool in_flight = servers_[server].in_flight;
  servers_[server] = Server();
  servers_[server].in_flight = in_flight;
}

}  // namespace catchment
