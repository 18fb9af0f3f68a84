#include "simulation/simulated_server.h"

#include <utility>

#include "common/checkpoint/shard_file.h"

namespace catchment {

SimulatedServer::SimulatedServer(const v1::Job& job, const ParameterLayout& layout, int index,
                                 Shard::Contents contents, EventQueue* events)
    : events_(*events),
      shard_(
          job, layout, index, std::move(contents),
          [this](std::unique_ptr<PendingSnapshot> snapshot) { NoteSnapshot(std::move(snapshot)); },
          /*keeps_values=*/false) {}

uint64_t SimulatedServer::num_parameters() const {
  uint64_t values = 0;
  for (int b = 0; b < shard_.num_blocks(); ++b) values += shard_.block_range(b).size();
  return values;
}

// Without a directory a server saves nothing, and reports the checkpoint at once.
void SimulatedServer::NoteSnapshot(std::unique_ptr<PendingSnapshot> snapshot) {
  const ShardSnapshot taken = snapshot->Finish();
  v1::SavedShard saved;
  saved.set_checkpoint(taken.state.checkpoint());
  saved.set_version(ShardVersion(taken.state));
  AddSteps(taken.state, &saved);
  saved_ = {std::move(saved)};
}

void SimulatedServer::Receive(Request request, double bytes) {
  const double seconds = kServerSecondsPerBlock + kServerSecondsPerByte * bytes;
  const double begin = processor_.Occupy(events_.Now(), seconds);
  events_.At(begin + seconds, [this, request = std::move(request)]() mutable { Handle(std::move(request)); });
}

void SimulatedServer::Handle(Request request) {
  status_.Update(shard_.Handle(std::move(request), events_.Now(), &answers_));
  Conclude(&answers_);
}

void SimulatedServer::Conclude(std::vector<Answer>* answers) {
  Deliver(answers);
  const double next = shard_.NextDeadline();
  if (next >= next_tick_) return;
  next_tick_ = next;
  events_.At(next, [this, next] { Tick(next); });
}

// An event whose time was replaced by an earlier one does nothing.
void SimulatedServer::Tick(double time) {
  if (time != next_tick_) return;
  next_tick_ = Deadlines::kNever;
  std::vector<Answer> answers;
  shard_.Tick(events_.Now(), &answers);
  Conclude(&answers);
}

v1::ShardReport SimulatedServer::Control(const v1::ShardCommand& command) {
  std::vector<Answer> answers;
  shard_.SetRosters(command, events_.Now(), &answers);
  Conclude(&answers);
  v1::ShardReport report = shard_.Report(!command.without_statistics());
  *report.mutable_saved() = {saved_.begin(), saved_.end()};
  return report;
}

}  // namespace catchment
