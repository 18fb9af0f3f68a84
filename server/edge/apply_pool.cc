#include "server/edge/apply_pool.h"

#include <glog/logging.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <utility>

namespace catchment {
namespace {

std::vector<int> UsableProcessors() {
  cpu_set_t set;
  std::vector<int> processors;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) processors.push_back(i);
  }
  return processors;
}

void Pin(std::thread* thread, int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  if (pthread_setaffinity_np(thread->native_handle(), sizeof(set), &set) != 0) {
    LOG(WARNING) << "cannot pin a thread to processor " << processor << "; it runs on any processor";
  }
}

}  // namespace

int DefaultApplyThreads(int processors) { return processors < 4 ? 0 : std::min(8, processors / 2); }

ApplyPool::ApplyPool(const Options& options) {
  const std::vector<int> processors = options.pin ? UsableProcessors() : std::vector<int>();
  for (int i = 0; i < options.threads; ++i) {
    queues_.push_back(std::make_unique<Queue>());
    Queue* const queue = queues_.back().get();
    queue->thread = std::thread([queue] { Run(queue); });
    if (!processors.empty()) Pin(&queue->thread, processors[i % processors.size()]);
  }
}

ApplyPool::~ApplyPool() {
  for (const auto& queue : queues_) {
    MutexLock lock(&queue->mu);
    queue->ending = true;
    queue->changed.Notify();
  }
  for (const auto& queue : queues_) queue->thread.join();
}

void ApplyPool::Submit(std::shared_ptr<Client> client, Request request) {
  if (queues_.empty()) {
    client->Apply(std::move(request));
    return;
  }
  Queue& queue = *queues_[request.contribution.block % queues_.size()];
  MutexLock lock(&queue.mu);
  queue.tasks.push_back({std::move(client), std::move(request)});
  queue.changed.Notify();
}

void ApplyPool::Run(Queue* queue) {
  // The two vectors are swapped, and keep their memory.
  std::vector<Task> tasks;
  while (true) {
    {
      MutexLock lock(&queue->mu);
      queue->changed.Wait(&queue->mu, [queue] { return queue->ending || !queue->tasks.empty(); });
      if (queue->tasks.empty()) return;
      std::swap(tasks, queue->tasks);
    }
    for (Task& task : tasks) {
      ApplyPool::Client& client = *task.client;
      client.Apply(std::move(task.request));
    }
    tasks.clear();
  }
}

}  // namespace catchment
