#include <glog/logging.h>
#include <pthread.h>
#include <signal.h>

#include "common/program/daemon.h"
#include "common/program/ending_signals.h"

namespace catchment {
namespace {

// Wakes the thread that waits for signals. The same signal may come from elsewhere.
constexpr int kWake = SIGUSR2;

sigset_t Signals() {
  sigset_t signals = EndingSignals();
  sigaddset(&signals, kWake);
  return signals;
}

bool IsAwaited(int signal) {
  const sigset_t signals = EndingSignals();
  return sigismember(&signals, signal) == 1;
}

}  // namespace

void BlockSignals() {
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

SignalThread::SignalThread(std::function<void(int signal)> on_signal)
    : on_signal_(std::move(on_signal)), thread_([this] {
        const sigset_t signals = Signals();
        for (int signal = 0; sigwait(&signals, &signal) == 0 && !ended_;) {
          if (!IsAwaited(signal)) continue;
          LOG(INFO) << "received SIG" << sigabbrev_np(signal)
                    << (IsPlainWarning(signal) ? ", which ends no daemon; SIGTERM does" : "");
          if (IsPlainWarning(signal)) continue;
          on_signal_(signal);
        }
      }) {}

SignalThread::~SignalThread() {
  ended_ = true;
  pthread_kill(thread_.native_handle(), kWake);
  thread_.join();
}

}  // namespace catchment
