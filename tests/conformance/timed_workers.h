// Asynchronous workers in virtual time: each has its own time for every gradient, pushes it, and goes
// on from the weights that come back. On the core alone: no threads, no network, no clock.
#ifndef CATCHMENT_TESTS_CONFORMANCE_TIMED_WORKERS_H_
#define CATCHMENT_TESTS_CONFORMANCE_TIMED_WORKERS_H_

#include <glog/logging.h>

#include <functional>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "server/shard/shard.h"

namespace catchment {

class TimedWorkers {
 public:
  // Returns the time of a worker's next gradient, in any unit.
  using ServiceTime = std::function<double(int worker)>;
  using Gradient = std::function<void(const std::vector<float>& weights, std::vector<float>* gradient)>;

  // `job`: complete and valid, asynchronous, with contribution gradient; its workers are these. `seen`: the
  // weights that they take their first gradients at; none: the initial ones.
  TimedWorkers(const v1::Job& job, const std::vector<float>& initial, ServiceTime service_time,
               Gradient gradient, const std::vector<float>& seen = {})
      : layout_(*ParameterLayout::Create({{"w", {static_cast<int64_t>(initial.size())}}}, 1, 1 << 18)),
        shard_(job, layout_, 0, ContentsOf(initial), [](std::unique_ptr<PendingSnapshot>) {}),
        service_time_(std::move(service_time)),
        gradient_(std::move(gradient)),
        buffer_(initial.size()) {
    v1::ShardCommand command;
    command.set_generation(1);
    v1::Roster* const roster = command.add_rosters();
    for (uint32_t w = 0; w < job.workers(); ++w) {
      v1::Member* const member = roster->add_members();
      member->set_worker(w);
      member->set_incarnation(1);
      workers_.push_back(std::make_shared<Worker>(seen.empty() ? initial : seen));
      events_.push({service_time_(static_cast<int>(w)), static_cast<int>(w)});
    }
    std::vector<Answer> answers;
    shard_.SetRosters(command, /*now=*/0, &answers);
  }

  // The next push.
  void Step() {
    const auto [time, w] = events_.top();
    events_.pop();
    Worker& worker = *workers_[w];
    gradient_(worker.weights, &buffer_);
    const BlockHeader header{.operation = v1::Block::PUSH_PULL,
                             .sequence = ++worker.pushes,
                             .version = worker.version,
                             .samples = 1,
                             .steps = worker.pushes};
    Request request = MakeRequest(static_cast<uint32_t>(w), 1, header, workers_[w]);
    const absl::string_view bytes(reinterpret_cast<const char*>(buffer_.data()),
                                  buffer_.size() * sizeof(float));
    const PayloadView payload({&bytes, 1}, 0, bytes.size());
    CHECK(shard_.ReadPayload(payload, header.scale, &request.contribution).ok());
    CHECK(shard_.Handle(std::move(request), /*now=*/0, &answers_).ok());
    Deliver(&answers_);
    events_.push({time + service_time_(w), w});
  }

  std::vector<float> Weights() const { return shard_.Weights(); }
  const Shard& shard() const { return shard_; }

 private:
  struct Worker final : AnswerSink {
    explicit Worker(const std::vector<float>& weights) : weights(weights) {}
    void Deliver(Answer answer) override {
      std::copy_n(answer.payload->data(), weights.size(), weights.begin());
      version = answer.header.version;
    }

    std::vector<float> weights;
    uint64_t version = 0;
    uint64_t pushes = 0;
  };
  using Event = std::pair<double, int>;  // time, worker

  static Shard::Contents ContentsOf(const std::vector<float>& initial) {
    Shard::Contents contents;
    contents.weights = initial;
    return contents;
  }

  const ParameterLayout layout_;
  Shard shard_;
  const ServiceTime service_time_;
  const Gradient gradient_;
  std::vector<float> buffer_;
  std::vector<std::shared_ptr<Worker>> workers_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Answer> answers_;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_CONFORMANCE_TIMED_WORKERS_H_
