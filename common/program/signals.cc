#include <glog/logging.h>
#include <pthread.h>
#include <signal.h>

#include "common/program/daemon.h"

namespace catchment {
namespace {

// The signal that ends the thread; it is sent only to that thread.
constexpr int kEnd = SIGUSR2;

// Returns true if SIGHUP is ignored. Linux queues a blocked signal even if it is ignored, so a process under
// nohup must not wait for SIGHUP.
bool IgnoresHangup() {
  struct sigaction action;
  return sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  if (!IgnoresHangup()) sigaddset(&signals, SIGHUP);
  sigaddset(&signals, kEnd);
  return signals;
}

}  // namespace

void BlockSignals() {
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

SignalThread::SignalThread(std::function<void(int signal)> on_signal)
    : on_signal_(std::move(on_signal)), thread_([this] {
        const sigset_t signals = Signals();
        for (int signal = 0; sigwait(&signals, &signal) == 0 && signal != kEnd;) {
          LOG(INFO) << "received SIG" << sigabbrev_np(signal);
          on_signal_(signal);
        }
      }) {}

SignalThread::~SignalThread() {
  pthread_kill(thread_.native_handle(), kEnd);
  thread_.join();
}

}  // namespace catchment
