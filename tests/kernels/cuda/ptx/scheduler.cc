#include "tests/kernels/cuda/ptx/scheduler.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace catchment::ptx {

void Fault(const std::string& message) {
  std::fprintf(stderr, "ptx emulator: %s\n", message.c_str());
  std::abort();
}

void Scheduler::ReadOrder() {
  const char* const variable = std::getenv("CATCHMENT_PTX_ORDER");
  const std::string order = variable == nullptr ? "eager" : variable;
  const std::string random = "random:", first = "first:";
  if (order == "eager") {
    order_ = Order::kEager;
  } else if (order == "lazy") {
    order_ = Order::kLazy;
  } else if (order.compare(0, first.size(), first) == 0) {
    order_ = Order::kFirst;
    first_ = std::strtoull(order.c_str() + first.size(), nullptr, 10);
  } else if (order.compare(0, random.size(), random) == 0) {
    order_ = Order::kRandom;
    random_.seed(std::strtoull(order.c_str() + random.size(), nullptr, 10));
  } else {
    Fault("CATCHMENT_PTX_ORDER is " + order + "; must be eager, lazy, first:N or random:SEED");
  }
}

Stream* Scheduler::MakeStream() {
  if (streams_.empty()) ReadOrder();
  streams_.push_back(new Stream);
  streams_.back()->number_ = made_++;
  return streams_.back();
}

void Scheduler::Destroy(Stream* stream) {
  RunUntil([stream] { return stream->empty(); });
  std::erase(streams_, stream);
  delete stream;
}

void Scheduler::Add(Stream* stream, std::function<void()> operation) {
  stream->operations_.push_back({std::move(operation)});
  Advance();
}

void Scheduler::Record(Event* event, Stream* stream) {
  const uint64_t times = ++event->recorded;
  Add(stream, [event, times] { event->reached = std::max(event->reached, times); });
}

void Scheduler::Wait(Stream* stream, const Event* event) {
  stream->operations_.push_back({nullptr, event, event->recorded});
  Advance();
}

bool Scheduler::Step(Stream* stream) {
  if (stream->empty()) return false;
  Stream::Operation& next = stream->operations_.front();
  if (next.awaited != nullptr && next.awaited->reached < next.times) return false;
  const std::function<void()> run = std::move(next.run);
  stream->operations_.pop_front();
  if (run) run();
  return true;
}

void Scheduler::Drain(Stream* stream) {
  while (Step(stream)) {
  }
}

void Scheduler::Advance() {
  constexpr int kMaxSteps = 6;
  switch (order_) {
    case Order::kLazy:
      return;
    case Order::kEager:
      for (bool any = true; any;) {
        any = false;
        for (Stream* stream : streams_) {
          while (Step(stream)) any = true;
        }
      }
      return;
    case Order::kFirst:
      for (Stream* stream : streams_) {
        if (stream->number_ % 3 == first_) Drain(stream);
      }
      return;
    case Order::kRandom:
      for (uint64_t turns = random_() % 4; turns > 0; --turns) {
        Stream* const stream = streams_[random_() % streams_.size()];
        for (uint64_t steps = random_() % kMaxSteps; steps > 0; --steps) Step(stream);
      }
  }
}

void Scheduler::RunUntil(const std::function<bool()>& done) {
  while (!done()) {
    std::vector<Stream*> streams = streams_;
    std::shuffle(streams.begin(), streams.end(), random_);
    bool any = false;
    for (Stream* stream : streams) {
      if (done()) return;
      any = Step(stream) || any;
    }
    if (!any && !done()) Fault("the host waits for an event that no stream will come to");
  }
}

void Scheduler::RunAll() {
  RunUntil([this] {
    return std::all_of(streams_.begin(), streams_.end(),
                       [](const Stream* stream) { return stream->empty(); });
  });
}

}  // namespace catchment::ptx
