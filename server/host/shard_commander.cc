#include "server/host/shard_commander.h"

#include <pthread.h>

#include <memory>
#include <utility>

#include "common/net/completion.h"
#include "common/net/message_limits.h"
#include "common/net/rpc.h"

namespace catchment {

class ShardCommander::Call final : public Completion {
 public:
  Call(ShardCommander* commander, v1::ShardCommand command, double seconds, OnAnswer on_answer)
      : commander_(*commander),
        command_(std::move(command)),
        on_answer_(std::move(on_answer)),
        context_(DeadlineContext(seconds)) {}

  void Start(v1::ShardService::Stub* stub) {
    reader_ = stub->AsyncControl(context_.get(), command_, &commander_.queue_);
    reader_->Finish(&report_, &status_, Tag());
  }
  void Cancel() { context_->TryCancel(); }

  void Done(bool) override {
    // After this the commander no longer cancels the call.
    commander_.Leave(this);
    absl::Status status = FromGrpc(status_);
    if (status.ok()) status = CheckLimits(report_);
    if (status.ok()) {
      on_answer_(command_, std::move(report_));
    } else {
      on_answer_(command_, status);
    }
    delete this;
  }

 private:
  ShardCommander& commander_;
  const v1::ShardCommand command_;
  const OnAnswer on_answer_;
  const std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::ShardReport>> reader_;
  v1::ShardReport report_;
  grpc::Status status_;
};

ShardCommander::ShardCommander() : thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "commands");
}

ShardCommander::~ShardCommander() {
  {
    MutexLock lock(&mu_);
    ending_ = true;
    for (Call* call : calls_) call->Cancel();
    changed_.Notify();
  }
  thread_.join();
  queue_.Shutdown();
  void* tag;
  for (bool ok; queue_.Next(&tag, &ok);) Completion::Run(tag, ok);
}

void ShardCommander::Run() {
  void* tag;
  for (bool ok; AwaitCall() && queue_.Next(&tag, &ok);) Completion::Run(tag, ok);
}

bool ShardCommander::AwaitCall() {
  MutexLock lock(&mu_);
  changed_.Wait(&mu_, [this] { return ending_ || !calls_.empty(); });
  return !calls_.empty();
}

void ShardCommander::Send(v1::ShardService::Stub* stub, v1::ShardCommand command, double seconds,
                          OnAnswer on_answer) {
  Call* const call = new Call(this, std::move(command), seconds, std::move(on_answer));
  {
    MutexLock lock(&mu_);
    calls_.insert(call);
    changed_.Notify();
  }
  call->Start(stub);
}

void ShardCommander::Leave(Call* call) {
  MutexLock lock(&mu_);
  calls_.erase(call);
}

}  // namespace catchment
