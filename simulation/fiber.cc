#include "simulation/fiber.h"

#include <glog/logging.h>
#include <sys/mman.h>

#include <utility>

namespace catchment {
namespace {

// The lowest value of a stack shows whether the stack was too small.
constexpr uint64_t kLowest = 0x636174636d656e74;

thread_local Fiber* running = nullptr;

}  // namespace

Fiber::Fiber(std::function<void()> work) : work_(std::move(work)) {
  stack_ =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  PCHECK(stack_ != MAP_FAILED) << "no memory for the stack of a simulated worker";
  *static_cast<uint64_t*>(stack_) = kLowest;
  getcontext(&own_);
  own_.uc_stack.ss_sp = stack_;
  own_.uc_stack.ss_size = kStackBytes;
  own_.uc_link = nullptr;
  makecontext(&own_, &Fiber::Enter, 0);
}

Fiber::~Fiber() {
  CHECK(ended_ || !begun_) << "a fiber is destroyed that has not ended";
  CHECK_EQ(*static_cast<uint64_t*>(stack_), kLowest) << "the stack of a simulated worker is too small";
  munmap(stack_, kStackBytes);
}

void Fiber::Enter() {
  Fiber* const self = running;
  self->work_();
  self->ended_ = true;
  // Never returns: an ended fiber is not resumed.
  swapcontext(&self->own_, &self->caller_);
}

void Fiber::Resume() {
  CHECK(!ended_ && running == nullptr);
  begun_ = true;
  do {
    if (outside_ != nullptr) (*std::exchange(outside_, nullptr))();
    running = this;
    swapcontext(&caller_, &own_);
    running = nullptr;
  } while (outside_ != nullptr);
}

void Fiber::Pause() {
  Fiber* const self = running;
  CHECK(self != nullptr) << "only a fiber can pause";
  swapcontext(&self->own_, &self->caller_);
}

void Fiber::CallOutside(absl::FunctionRef<void()> function) {
  if (running == nullptr) return function();
  running->outside_ = &function;
  Pause();
}

}  // namespace catchment
