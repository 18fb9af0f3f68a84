// Packets of an attached program (proto/attach.proto): a Hello, a step, scores of a test set.
//
// Input: packets, each with its length.
#include <glog/logging.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/fuzz/input.h"
#include "worker/attach/attached_model.h"

namespace catchment {
namespace {

// As many as a socket holds that is not read.
constexpr int kMaxPackets = 32;

class Observer final : public PassObserver {
 public:
  void BeforeForward(Range range) override { Check(range); }
  void AfterBackward(Range range) override { Check(range); }

 private:
  static void Check(Range range) { CHECK(range.begin >= 0 && range.begin <= range.end && range.end <= 9); }
};

std::unique_ptr<AttachedModel> MakeModel(int fd) {
  auto weights = SharedMemory::Create("weights", 9 * sizeof(float));
  auto gradient = SharedMemory::Create("gradient", 9 * sizeof(float));
  auto plan = PlanBoard::Create(8);
  CHECK(weights.ok() && gradient.ok() && plan.ok());
  const auto look = [](bool closed) {
    return closed ? absl::InternalError("the program is gone") : absl::OkStatus();
  };
  return std::make_unique<AttachedModel>(
      AttachedModel::Options{.job = "job",
                             .tensors = {{"w", {2, 3}}, {"b", {3}}},
                             .train_samples = 100,
                             .test_samples = 10,
                             .batch_size = 8,
                             .seed = 5},
      ProgramChannels{std::make_unique<ProgramLink>(fd, look), *std::move(weights), *std::move(gradient),
                      *std::move(plan)},
      nullptr);
}

void Test(FuzzInput in) {
  int fds[2];
  PCHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) == 0);
  const std::unique_ptr<AttachedModel> model = MakeModel(fds[0]);
  for (int i = 0; i < kMaxPackets && !in.empty(); ++i) {
    const absl::string_view packet = in.Text();
    if (!packet.empty()) send(fds[1], packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  // All packets are still read, and then the end.
  shutdown(fds[1], SHUT_WR);
  if (model->AwaitHello().ok() && model->Welcome(0).ok()) {
    const std::vector<uint32_t> samples = {1, 2, 3};
    model->Plan(samples).IgnoreError();
    const std::vector<float> weights(9);
    std::vector<float> gradient(9);
    Observer observer;
    model->Train(weights, {.samples = 3}, absl::MakeSpan(gradient), &observer);
    model->ScoreTestSet(weights).status().IgnoreError();
    model->statistics();
  }
  close(fds[1]);
}

}  // namespace
}  // namespace catchment

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::Test(catchment::FuzzInput(data, size));
  return 0;
}
