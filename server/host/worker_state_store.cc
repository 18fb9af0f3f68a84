#include "server/host/worker_state_store.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/rounding.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

constexpr double kPollSeconds = 0.5;          // while a call waits for another worker's turn
constexpr uint64_t kValuesPerPart = 1 << 18;  // 1 MiB
constexpr uint64_t kAllParts = UINT64_MAX;

// Returns part `index` of the state, or nothing after the last part. The parts are the numbers by name, then
// the vectors by name, each in parts of kValuesPerPart.
std::optional<v1::WorkerStatePart> PartOf(const SavedWorker& state, uint64_t index) {
  v1::WorkerStatePart part;
  if (index < state.numbers.size()) {
    const auto& [name, number] = *std::next(state.numbers.begin(), static_cast<std::ptrdiff_t>(index));
    part.set_name(name);
    part.set_number(number);
    return part;
  }
  index -= state.numbers.size();
  for (const auto& [name, values] : state.vectors) {
    const uint64_t begin = index * kValuesPerPart;
    if (begin < values.size()) {
      part.set_name(name);
      part.mutable_values()->set_begin(begin);
      const size_t count = std::min<size_t>(kValuesPerPart, values.size() - begin);
      part.mutable_values()->set_values(values.data() + begin, count * sizeof(float));
      return part;
    }
    index -= CeilDivide(values.size(), kValuesPerPart);
  }
  return std::nullopt;
}

absl::Status TooMany(const char* what, size_t most) {
  return absl::InvalidArgumentError(
      absl::StrCat("a worker's state has more than ", most, " ", what, "; it is not saved"));
}

absl::Status JobHasEnded() { return absl::UnavailableError("the job has ended"); }

}  // namespace

WorkerStateStore::WorkerStateStore(Options options, Owner owner, const Clock* clock)
    : options_(std::move(options)), owner_(std::move(owner)), clock_(*clock) {
  thread_ = std::thread([this] { Run(); });
}

WorkerStateStore::~WorkerStateStore() {
  End();
  thread_.join();
}

void WorkerStateStore::End() {
  MutexLock lock(&mu_);
  ending_ = true;
  changed_.Notify();
}

void WorkerStateStore::Answer(const v1::Call& call, Respond respond) {
  {
    MutexLock lock(&mu_);
    if (!ending_) {
      calls_.push_back({call, std::move(respond)});
      changed_.Notify();
      return;
    }
  }
  respond(JobHasEnded());
}

bool WorkerStateStore::MayGo(const v1::Call& call) const {
  const bool saves = call.has_save_worker_state();
  const Turns& turn = saves ? save_turn_ : load_turn_;
  if (turn.of == 0 || clock_.Now() - turn.heard >= kTurnSeconds) return true;
  return turn.of == (saves ? call.save_worker_state().incarnation() : call.load_worker_state().incarnation());
}

std::optional<WorkerStateStore::Waiting> WorkerStateStore::TakeNext() {
  const auto next = std::find_if(calls_.begin(), calls_.end(),
                                 [this](const Waiting& waiting) { return ending_ || MayGo(waiting.call); });
  if (next == calls_.end()) return std::nullopt;
  Waiting waiting = std::move(*next);
  calls_.erase(next);
  return waiting;
}

std::optional<WorkerStateStore::Waiting> WorkerStateStore::WaitForCall() {
  MutexLock lock(&mu_);
  while (true) {
    if (std::optional<Waiting> next = TakeNext()) return next;
    if (ending_) return std::nullopt;
    const size_t seen = calls_.size();
    const auto changed = [this, seen] { return ending_ || calls_.size() > seen; };
    if (seen == 0) {
      changed_.Wait(&mu_, changed);
    } else {
      changed_.WaitFor(&mu_, kPollSeconds, changed);
    }
  }
}

void WorkerStateStore::Run() {
  while (const std::optional<Waiting> waiting = WaitForCall()) waiting->respond(Handle(waiting->call));
}

absl::StatusOr<v1::Reply> WorkerStateStore::Handle(const v1::Call& call) {
  {
    MutexLock lock(&mu_);
    if (ending_) return JobHasEnded();
  }
  if (call.has_load_worker_state()) return MakeReply(HandleLoad(call.load_worker_state()));
  RETURN_IF_ERROR(HandleSave(call.save_worker_state()));
  return MakeReply<v1::SaveWorkerStateReply>(v1::SaveWorkerStateReply());
}

absl::Status WorkerStateStore::HandleSave(const v1::SaveWorkerStateRequest& request) {
  RETURN_IF_ERROR(BeginTurn(request));
  const bool last = !request.has_part();
  const absl::Status status = last ? Write() : TakePart(request.part());
  if (last || !status.ok()) EndTurn(status);
  return status;
}

absl::Status WorkerStateStore::BeginTurn(const v1::SaveWorkerStateRequest& request) {
  const bool same = turn_.has_value() && turn_->incarnation == request.incarnation() &&
                    turn_->checkpoint == request.checkpoint();
  if (!same) {
    if (turn_.has_value()) {
      EndTurn(
          absl::DeadlineExceededError(absl::StrCat("worker ", turn_->worker, " has sent only a part of it")));
    }
    ASSIGN_OR_RETURN(const uint32_t worker, owner_.admit(request.incarnation(), request.checkpoint()));
    turn_ = Turn{.worker = worker,
                 .incarnation = request.incarnation(),
                 .checkpoint = request.checkpoint(),
                 .state = {}};
  }
  MutexLock lock(&mu_);
  save_turn_ = {request.incarnation(), clock_.Now()};
  return absl::OkStatus();
}

void WorkerStateStore::EndTurn(const absl::Status& status) {
  const Turn turn = *std::exchange(turn_, std::nullopt);
  {
    MutexLock lock(&mu_);
    save_turn_ = {};
  }
  owner_.saved(turn.incarnation, turn.checkpoint, status);
}

absl::Status WorkerStateStore::TakePart(const v1::WorkerStatePart& part) {
  SavedWorker& state = turn_->state;
  if (part.has_number()) {
    if (state.numbers.count(part.name()) == 0 && state.numbers.size() >= kMaxNumbers)
      return TooMany("numbers", kMaxNumbers);
    state.numbers[part.name()] = part.number();
    return absl::OkStatus();
  }
  const auto known = state.vectors.find(part.name());
  if (known == state.vectors.end() && state.vectors.size() >= kMaxVectors)
    return TooMany("vectors", kMaxVectors);
  const uint64_t received = known == state.vectors.end() ? 0 : known->second.size();
  const std::string& bytes = part.values().values();
  const uint64_t begin = part.values().begin();
  const uint64_t size = bytes.size() / sizeof(float);
  const uint64_t num_values = static_cast<uint64_t>(options_.num_values);
  const bool fits =
      size > 0 && bytes.size() % sizeof(float) == 0 && begin <= num_values && size <= num_values - begin;
  if (fits && begin + size == received) return absl::OkStatus();  // a duplicate
  if (!fits || begin != received) {
    return absl::InvalidArgumentError(
        absl::StrCat("vector \"", part.name(), "\" of a worker's state: received ", bytes.size(),
                     " bytes from value ", begin, ", expected value ", received, " of ", num_values));
  }
  std::vector<float>& vector = state.vectors[part.name()];
  vector.reserve(num_values);
  vector.resize(begin + size);
  std::memcpy(vector.data() + begin, bytes.data(), bytes.size());
  return absl::OkStatus();
}

absl::Status WorkerStateStore::Write() const {
  for (const auto& [name, values] : turn_->state.vectors) {
    if (static_cast<int64_t>(values.size()) == options_.num_values) continue;
    return absl::InvalidArgumentError(absl::StrCat("vector \"", name, "\" of a worker's state ended after ",
                                                   values.size(), " of ", options_.num_values, " values"));
  }
  if (options_.directory.empty()) return absl::OkStatus();
  return WriteWorkerState(options_.directory, turn_->checkpoint, turn_->worker, turn_->state);
}

absl::StatusOr<SavedWorker> WorkerStateStore::StateOf(uint32_t worker) const {
  if (options_.directory.empty() || options_.resumed == 0) {
    return absl::FailedPreconditionError("the job was not resumed from a checkpoint");
  }
  absl::StatusOr<SavedWorker> state = ReadWorkerState(options_.directory, options_.resumed, worker);
  if (!state.ok()) return absl::DataLossError(state.status().message());
  for (const auto& [name, values] : state->vectors) {
    if (static_cast<int64_t>(values.size()) == options_.num_values) continue;
    return absl::DataLossError(
        absl::StrCat("vector \"", name, "\" of worker ", worker, "'s state in checkpoint ", options_.resumed,
                     " has ", values.size(), " values, and the model has ", options_.num_values));
  }
  return state;
}

absl::StatusOr<v1::LoadWorkerStateReply> WorkerStateStore::HandleLoad(
    const v1::LoadWorkerStateRequest& request) {
  const uint64_t incarnation = request.incarnation();
  ASSIGN_OR_RETURN(const uint32_t worker, owner_.index_of(incarnation));
  uint64_t& due = next_parts_[incarnation];
  if (due == kAllParts) return v1::LoadWorkerStateReply();
  // The last part is requested again if its answer was lost.
  const bool again = due > 0 && request.part() == due - 1;
  if (request.part() != due && !again) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", worker, " asks for part ", request.part(),
                                                   " of its state, and part ", due, " is due"));
  }
  if (loaded_of_ != incarnation) {
    ASSIGN_OR_RETURN(loaded_, StateOf(worker));
    loaded_of_ = incarnation;
  }
  due = request.part() + 1;
  v1::LoadWorkerStateReply reply;
  const std::optional<v1::WorkerStatePart> part = PartOf(loaded_, request.part());
  if (part) {
    *reply.mutable_part() = *part;
  } else {
    // Frees the memory until another worker loads its state.
    due = kAllParts;
    loaded_of_ = 0;
    loaded_ = {};
  }
  MutexLock lock(&mu_);
  load_turn_ = part ? Turns{incarnation, clock_.Now()} : Turns();
  return reply;
}

}  // namespace catchment
