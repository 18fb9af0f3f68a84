#include "common/net/completion.h"

#include <pthread.h>

namespace catchment {

CompletionThread::CompletionThread(std::unique_ptr<grpc::CompletionQueue> queue, const std::string& name)
    : queue_(std::move(queue)), thread_([queue = queue_.get()] {
        void* tag;
        for (bool ok; queue->Next(&tag, &ok);) Completion::Run(tag, ok);
      }) {
  pthread_setname_np(thread_.native_handle(), name.c_str());
}

CompletionThread::~CompletionThread() {
  queue_->Shutdown();
  thread_.join();
}

}  // namespace catchment
