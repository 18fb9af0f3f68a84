#include "worker/loop/state_transfer.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "proto/master.pb.h"

namespace catchment {
namespace {

constexpr size_t kValuesPerPart = 1 << 18;  // 1 MiB
// Time limit of a call: the master serves one worker at a time, and its disk may be slow.
constexpr double kCallSeconds = 120;

class Saver {
 public:
  Saver(const StateOwner& owner, uint64_t checkpoint, MasterClient* master) : master_(*master) {
    request_.set_worker(owner.worker);
    request_.set_incarnation(owner.incarnation);
    request_.set_checkpoint(checkpoint);
  }

  absl::Status Send(const WorkerState::Number& number) {
    request_.mutable_part()->Clear();
    request_.mutable_part()->set_name(number.name);
    request_.mutable_part()->set_number(*number.value);
    return Call();
  }

  absl::Status Send(const WorkerState::Vector& vector) {
    for (size_t begin = 0; begin < vector.values.size(); begin += kValuesPerPart) {
      const absl::Span<const float> values = vector.values.subspan(begin, kValuesPerPart);
      request_.mutable_part()->set_name(vector.name);
      v1::WorkerStatePart::Values* const sent = request_.mutable_part()->mutable_values();
      sent->set_begin(static_cast<uint64_t>(vector.begin) + begin);
      sent->set_values(values.data(), values.size() * sizeof(float));
      RETURN_IF_ERROR(Call());
    }
    return absl::OkStatus();
  }

  absl::Status End() {
    request_.clear_part();
    return Call();
  }

 private:
  absl::Status Call() {
    return master_.Call(&MasterClient::Stub::SaveWorkerState, request_, nullptr, kCallSeconds).status();
  }

  MasterClient& master_;
  v1::SaveWorkerStateRequest request_;
};

// Copies the values of `part` that lie in `vector`. `part` is values first .. first+count-1 of the whole
// vector.
void CopyOverlap(int64_t first, int64_t count, const char* part, const WorkerState::Vector& vector) {
  const int64_t begin = std::max(first, vector.begin);
  const int64_t end = std::min(first + count, vector.begin + static_cast<int64_t>(vector.values.size()));
  if (begin >= end) return;
  std::memcpy(vector.values.data() + (begin - vector.begin), part + (begin - first) * sizeof(float),
              static_cast<size_t>(end - begin) * sizeof(float));
}

absl::Status Restore(const v1::WorkerStatePart& part, WorkerState* state) {
  if (part.has_number()) {
    for (const WorkerState::Number& number : state->numbers) {
      if (number.name == part.name()) *number.value = part.number();
    }
    return absl::OkStatus();
  }
  const std::string& bytes = part.values().values();
  if (bytes.size() % sizeof(float) != 0) {
    return absl::DataLossError(absl::StrCat(
        "vector \"", part.name(), "\" of the worker's saved state came in ", bytes.size(), " bytes"));
  }
  for (const WorkerState::Vector& vector : state->vectors) {
    if (vector.name != part.name()) continue;
    CopyOverlap(static_cast<int64_t>(part.values().begin()),
                static_cast<int64_t>(bytes.size() / sizeof(float)), bytes.data(), vector);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SaveState(const WorkerState& state, const StateOwner& owner, uint64_t checkpoint,
                       MasterClient* master) {
  Saver saver(owner, checkpoint, master);
  for (const WorkerState::Number& number : state.numbers) {
    RETURN_IF_ERROR(saver.Send(number));
  }
  for (const WorkerState::Vector& vector : state.vectors) {
    RETURN_IF_ERROR(saver.Send(vector));
  }
  return saver.End();
}

absl::Status LoadState(const StateOwner& owner, MasterClient* master, WorkerState* state) {
  v1::LoadWorkerStateRequest request;
  request.set_worker(owner.worker);
  request.set_incarnation(owner.incarnation);
  for (uint64_t part = 0;; ++part) {
    request.set_part(part);
    ASSIGN_OR_RETURN(const v1::LoadWorkerStateReply reply,
                     master->Call(&MasterClient::Stub::LoadWorkerState, request, nullptr, kCallSeconds));
    if (!reply.has_part()) return absl::OkStatus();
    RETURN_IF_ERROR(Restore(reply.part(), state));
  }
}

}  // namespace catchment
