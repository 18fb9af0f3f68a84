#include "server/edge/listener.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/not_ready.h"
#include "common/net/rpc.h"
#include "proto/health.grpc.pb.h"
#include "proto/master.grpc.pb.h"

namespace catchment {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

absl::StatusOr<Listener> ListenOn(const std::string& address) {
  return Listener::Open(address, grpc::InsecureServerCredentials(), {}, {});
}

namespace health = grpc::health::v1;

absl::StatusOr<health::HealthCheckResponse::ServingStatus> AskHealth(const Listener& listener,
                                                                     const std::string& name) {
  const auto stub = health::Health::NewStub(Connect(listener.address(), grpc::InsecureChannelCredentials()));
  const std::unique_ptr<grpc::ClientContext> context = DeadlineContext(30);
  health::HealthCheckRequest request;
  request.set_service(name);
  health::HealthCheckResponse response;
  const grpc::Status status = stub->Check(context.get(), request, &response);
  if (!status.ok()) return FromGrpc(status);
  return response.status();
}

// Returns true if the listener can be reached at this host.
bool IsReachedAt(const std::string& host, const Listener& listener) {
  const std::string port = listener.address().substr(listener.address().rfind(':'));
  const auto stub = health::Health::NewStub(Connect(host + port, grpc::InsecureChannelCredentials()));
  const std::unique_ptr<grpc::ClientContext> context = DeadlineContext(30);
  health::HealthCheckResponse response;
  return stub->Check(context.get(), health::HealthCheckRequest(), &response).ok();
}

// Names of the process's threads.
std::vector<std::string> ThreadNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(entry.path() / "comm");
    std::string name;
    if (std::getline(file, name)) names.push_back(name);
  }
  return names;
}

TEST(ListenerTest, HealthIsServingFromTheBeginningForTheProcess) {
  const absl::StatusOr<Listener> listener = ListenOn("127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  const auto status = AskHealth(*listener, "");
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(*status, health::HealthCheckResponse::SERVING);
}

TEST(ListenerTest, HealthOfANameIsWhatItWasLastSetTo) {
  absl::StatusOr<Listener> listener = ListenOn("127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  EXPECT_EQ(AskHealth(*listener, "shard-0").status().code(), absl::StatusCode::kNotFound);
  listener->SetServing("shard-0", false);
  EXPECT_EQ(AskHealth(*listener, "shard-0").value(), health::HealthCheckResponse::NOT_SERVING);
  listener->SetServing("shard-0", true);
  EXPECT_EQ(AskHealth(*listener, "shard-0").value(), health::HealthCheckResponse::SERVING);
  EXPECT_EQ(AskHealth(*listener, "shard-1").status().code(), absl::StatusCode::kNotFound);
}

// A service whose calls lead to the run that is served now, and that answers when the run says so.
class OfRuns final : public CallService {
 public:
  grpc::Service* grpc_service() override { return &service_; }
  void Accept(CallQueue* queue) override {
    using Call = DeferredCall<Async, v1::StopRequest, v1::StopReply>;
    Call::Accept(queue, Permission("catchment.v1.MasterService.Stop"), &service_, &Async::RequestStop,
                 [this](const v1::StopRequest&, Call::Respond respond) { Get()(std::move(respond)); });
  }
  using Handler = std::function<void(std::function<void(absl::StatusOr<v1::StopReply>)>)>;
  void Serve(Handler handler) {
    MutexLock lock(&mu_);
    handler_ = std::move(handler);
  }

 private:
  Handler Get() {
    MutexLock lock(&mu_);
    return handler_;
  }
  using Async = v1::MasterService::WithAsyncMethod_Stop<v1::MasterService::Service>;
  Async service_;
  Mutex mu_;
  Handler handler_ ABSL_GUARDED_BY(mu_);
};

TEST(ListenerTest, ListensAtTheAddressesOfItsHostOrEverywhere) {
  for (const bool everywhere : {false, true}) {
    const absl::StatusOr<Listener> listener =
        Listener::Open("127.0.0.2:0", grpc::InsecureServerCredentials(), {}, {.everywhere = everywhere});
    ASSERT_TRUE(listener.ok()) << listener.status();
    EXPECT_TRUE(IsReachedAt("127.0.0.2", *listener));
    EXPECT_EQ(IsReachedAt("127.0.0.1", *listener), everywhere);
  }
}

TEST(ListenerTest, ListensBeforeItsFirstRunAndKeepsItsPortBetweenRuns) {
  OfRuns service;
  Listener::Options options;
  options.waits = "this server is reading its shard";
  absl::StatusOr<Listener> listener =
      Listener::Open("127.0.0.1:0", grpc::InsecureServerCredentials(), {&service}, options);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto stub =
      v1::MasterService::NewStub(Connect(listener->address(), grpc::InsecureChannelCredentials()));
  const auto call = [&] {
    const std::unique_ptr<grpc::ClientContext> context = DeadlineContext(60);
    v1::StopReply reply;
    return FromGrpc(stub->Stop(context.get(), v1::StopRequest(), &reply));
  };
  const auto serve = [&service](const std::string& run) {
    service.Serve([run](auto respond) { respond(absl::NotFoundError(run)); });
  };
  const absl::Status before = call();
  EXPECT_TRUE(absl::IsUnavailable(before) && IsNotReady(before)) << before;
  EXPECT_EQ(before.message(), options.waits);
  EXPECT_EQ(AskHealth(*listener, "").value(), health::HealthCheckResponse::SERVING);
  serve("run 1");
  listener->BeginRun();
  EXPECT_FALSE(IsNotReady(call()));
  EXPECT_EQ(call().message(), "run 1");
  for (const std::string run : {"run 2", "run 3"}) {
    listener->EndRun(/*grace_seconds=*/0);
    const absl::Status between = call();
    EXPECT_TRUE(absl::IsUnavailable(between) && IsNotReady(between)) << between;
    EXPECT_THAT(std::string(between.message()), HasSubstr("between two runs of its job"));
    EXPECT_EQ(AskHealth(*listener, "").value(), health::HealthCheckResponse::SERVING);
    serve(run);
    listener->BeginRun();
    EXPECT_EQ(call().message(), run);
  }
}

// No object of a run is reached by a call after the run has ended.
TEST(ListenerTest, EndOfARunWaitsForItsCalls) {
  OfRuns service;
  std::promise<std::function<void(absl::StatusOr<v1::StopReply>)>> arrived;
  service.Serve([&](auto respond) { arrived.set_value(std::move(respond)); });
  absl::StatusOr<Listener> listener =
      Listener::Open("127.0.0.1:0", grpc::InsecureServerCredentials(), {&service}, {});
  ASSERT_TRUE(listener.ok()) << listener.status();
  std::thread caller([address = listener->address()] {
    const auto stub = v1::MasterService::NewStub(Connect(address, grpc::InsecureChannelCredentials()));
    const std::unique_ptr<grpc::ClientContext> context = DeadlineContext(60);
    v1::StopReply reply;
    EXPECT_EQ(stub->Stop(context.get(), v1::StopRequest(), &reply).error_code(), grpc::StatusCode::CANCELLED);
  });
  auto respond = arrived.get_future().get();
  std::atomic<bool> ended = false;
  std::thread end([&] {
    listener->EndRun(/*grace_seconds=*/0);
    ended = true;
  });
  caller.join();
  EXPECT_FALSE(ended) << "the call is cancelled, and its handler has not answered";
  respond(v1::StopReply());
  end.join();
}

// Services of gRPC's callback API would start threads that wait beside them ("nexting_thread"), which take
// events from them and pass them on.
TEST(ListenerTest, OnlyItsOwnThreadsWaitForConnections) {
  const absl::StatusOr<Listener> listener = ListenOn("127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  EXPECT_TRUE(AskHealth(*listener, "").ok());
  EXPECT_THAT(ThreadNames(), Contains("listener"));
  EXPECT_THAT(ThreadNames(), Not(Contains("nexting_thread")));
}

// The messages of a peer are found in its account, by its address of IPv4, IPv6, or IPv4 at a socket of IPv6:
// otherwise its connection would be ended for their bytes.
TEST(ListenerTest, ManyMessagesEndNoConnection) {
  const std::pair<const char*, const char*> kAddresses[] = {{"127.0.0.1:0", "127.0.0.1"},
                                                            {"[::1]:0", "[::1]"},
                                                            {"[::]:0", "127.0.0.1"},
                                                            {"0.0.0.0:0", "127.0.0.1"}};
  for (const auto& [at, host] : kAddresses) {
    const absl::StatusOr<Listener> listener = ListenOn(at);
    if (!listener.ok()) {
      // A machine without IPv6.
      ASSERT_THAT(std::string(at), StartsWith("[::1]")) << listener.status();
      continue;
    }
    const std::string port = listener->address().substr(listener->address().rfind(':'));
    const auto stub = health::Health::NewStub(Connect(host + port, grpc::InsecureChannelCredentials()));
    health::HealthCheckRequest request;
    request.set_service(std::string(100'000, 'x'));
    for (int i = 0; i < 200; ++i) {
      health::HealthCheckResponse response;
      const grpc::Status status = stub->Check(DeadlineContext(60).get(), request, &response);
      ASSERT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
          << at << ": " << status.error_message();
    }
  }
}

TEST(ListenerTest, MethodsThatItDoesNotHaveAreUnimplemented) {
  const absl::StatusOr<Listener> listener = ListenOn("127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  const auto stub =
      v1::MasterService::NewStub(Connect(listener->address(), grpc::InsecureChannelCredentials()));
  for (int i = 0; i < 3; ++i) {
    v1::StopReply reply;
    const grpc::Status status = stub->Stop(DeadlineContext(60).get(), {}, &reply);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_THAT(status.error_message(), HasSubstr("the master is the server with --index=0"));
  }
}

// Connections that an acceptor passes on, in order.
class Passed {
 public:
  Acceptor::OnConnection Add() {
    return [this](int fd) {
      MutexLock lock(&mu_);
      files_.emplace_back(fd);
      changed_.Notify();
    };
  }
  std::string Read(size_t connection, size_t bytes) {
    MutexLock lock(&mu_);
    std::string read(bytes, '\0');
    const ssize_t size = recv(files_[connection].get(), read.data(), bytes, MSG_WAITALL);
    read.resize(std::max<ssize_t>(size, 0));
    return read;
  }
  void CloseLast() {
    MutexLock lock(&mu_);
    files_.back() = Fd();
  }
  void Await(size_t count) {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [&] { return files_.size() >= count; });
  }
  // Returns false if the other end closes the connection first.
  bool AwaitOrEnd(size_t count, const Fd& connection) {
    char byte;
    const auto ended = [&] {
      const ssize_t size = recv(connection.get(), &byte, 1, MSG_DONTWAIT);
      return size == 0 || (size < 0 && errno != EAGAIN);
    };
    MutexLock lock(&mu_);
    while (!changed_.WaitFor(&mu_, 0.001, [&] { return files_.size() >= count; })) {
      if (ended()) return false;
    }
    return true;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<Fd> files_ ABSL_GUARDED_BY(mu_);
};

class AcceptorTest : public testing::Test {
 protected:
  void Start(const Acceptor::Options& options) { Start(options, passed_.Add()); }
  void Start(const Acceptor::Options& options, Acceptor::OnConnection on_connection) {
    absl::StatusOr<ListeningSockets> sockets = ListenAt("127.0.0.1", "0");
    ASSERT_TRUE(sockets.ok()) << sockets.status();
    acceptor_ = std::make_unique<Acceptor>(*std::move(sockets), options, &accounts_, clock_);
    acceptor_->Start(std::move(on_connection));
  }
  Fd Dial() {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(acceptor_->port()));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    return fd;
  }
  std::shared_ptr<PeerAccount> AccountOf(const Fd& fd) {
    sockaddr_in own = {};
    socklen_t size = sizeof(own);
    EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
    return accounts_.Find("ipv4:127.0.0.1:" + std::to_string(ntohs(own.sin_port)));
  }
  // Waits until the other end has closed the connection.
  static void AwaitEnd(const Fd& fd) {
    char byte;
    EXPECT_LE(recv(fd.get(), &byte, 1, 0), 0);
  }

  const SteadyClock steady_;
  const Clock* clock_ = &steady_;
  PeerAccounts accounts_;
  Passed passed_;
  std::unique_ptr<Acceptor> acceptor_;
};

TEST_F(AcceptorTest, TheOldestPeersThatMakeNoCallMakeRoomForOthers) {
  Acceptor::Options options;
  options.strangers = 2;
  options.stranger_seconds = 0;
  Start(options);
  const Fd worker = Dial();
  passed_.Await(1);
  AccountOf(worker)->StreamAdmitted();
  const Fd first = Dial();
  passed_.Await(2);
  const Fd second = Dial(), third = Dial();
  passed_.Await(4);
  AwaitEnd(first);
  EXPECT_NE(AccountOf(worker), nullptr);
  EXPECT_NE(AccountOf(third), nullptr);
}

TEST_F(AcceptorTest, APeerThatExceedsItsAccountIsDisconnectedAndItsAddressWatched) {
  Acceptor::Options options;
  options.watched_waiting = 0;
  Start(options);
  const Fd other = Dial(), flood = Dial();
  passed_.Await(2);
  for (int64_t i = 0; i <= options.limits.calls; ++i) AccountOf(flood)->CallBegan();
  AwaitEnd(flood);
  // No connection from the address may wait, so that the next one is closed.
  AwaitEnd(Dial());
  EXPECT_NE(AccountOf(other), nullptr);
}

TEST_F(AcceptorTest, ConnectionsFromAWatchedAddressAreAcceptedLater) {
  Acceptor::Options options;
  options.watched_interval_seconds = 0.01;
  Start(options);
  const Fd flood = Dial();
  passed_.Await(1);
  for (int64_t i = 0; i <= options.limits.calls; ++i) AccountOf(flood)->CallBegan();
  AwaitEnd(flood);
  const Fd a = Dial(), b = Dial();
  passed_.Await(3);
  EXPECT_NE(AccountOf(a), nullptr);
  EXPECT_NE(AccountOf(b), nullptr);
}

// A time that the test sets while the acceptor's thread reads it.
class SetClock final : public Clock {
 public:
  double Now() const override { return now_; }
  void Advance(double seconds) { now_ = now_ + seconds; }

 private:
  std::atomic<double> now_{1000};
};

TEST_F(AcceptorTest, AConnectionThatHasWaitedIsCheckedMoreOften) {
  SetClock clock;
  clock_ = &clock;
  const Acceptor::Options options;
  Start(options);
  for (size_t i = 0; i < 2; ++i) {
    const Fd flood = Dial();
    passed_.Await(i + 1);
    for (int64_t call = 0; call <= options.limits.calls; ++call) AccountOf(flood)->CallBegan();
    clock.Advance(i == 0 ? options.check_seconds : options.check_watched_seconds);
    AwaitEnd(flood);
  }
  acceptor_->Stop();
}

// Bytes count when they are read from the socket.
TEST_F(AcceptorTest, BytesInNoMessageExceedTheAccount) {
  Acceptor::Options options;
  options.limits.short_message_bytes = options.limits.other_bytes = 1000;
  options.limits.bytes_per_second = 0;
  Start(options);
  const Fd flood = Dial();
  const std::string bytes(4000, 'x');
  EXPECT_EQ(send(flood.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  passed_.Await(1);
  EXPECT_EQ(passed_.Read(0, bytes.size()), bytes);
  AwaitEnd(flood);
}

// gRPC begins to read on the thread that passes a connection to it.
TEST_F(AcceptorTest, APeerIsDisconnectedThatHoldsTheThreadOfItsConnection) {
  const auto read_to_the_end = [](int file) {
    const Fd fd(file);
    pollfd readable = {fd.get(), POLLIN, 0};
    std::string bytes(1 << 16, '\0');
    while (poll(&readable, 1, -1) > 0 && recv(fd.get(), bytes.data(), bytes.size(), 0) > 0) {
    }
  };
  Start({}, read_to_the_end);
  for (int i = 0; i < 2; ++i) {
    const Fd flood = Dial();
    const std::string bytes(1 << 16, 'x');
    while (send(flood.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
    }
  }
}

// However little each of them has sent.
TEST_F(AcceptorTest, PeersWithoutStreamHaveABoundTogether) {
  Acceptor::Options options;
  options.bytes_without_stream = 10'000;
  options.limits.bytes_per_second = 0;
  Start(options);
  std::vector<Fd> peers;
  const std::string bytes(4000, 'x');
  for (size_t i = 0; i < 3; ++i) {
    peers.push_back(Dial());
    passed_.Await(i + 1);
    if (i == 0) AccountOf(peers[0])->StreamAdmitted();
    EXPECT_EQ(send(peers[i].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
    EXPECT_EQ(passed_.Read(i, bytes.size()), bytes);
  }
  EXPECT_EQ(send(peers[2].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  EXPECT_EQ(passed_.Read(2, bytes.size()), bytes);
  AwaitEnd(peers[2]);
  EXPECT_NE(AccountOf(peers[0]), nullptr);
  EXPECT_NE(AccountOf(peers[1]), nullptr);
}

TEST_F(AcceptorTest, AnAddressThatConnectsWithoutACallAgainAndAgainIsWatched) {
  Acceptor::Options options;
  options.endings = {.per_second = 0, .burst = 3};
  options.watched_waiting = 0;
  Start(options);
  for (size_t i = 0; i < 4; ++i) {
    const Fd peer = Dial();
    passed_.Await(i + 1);
    passed_.CloseLast();
    while (AccountOf(peer) != nullptr) usleep(1000);
  }
  // No connection from the address may wait, so that the next one is closed.
  AwaitEnd(Dial());
}

// The peer stays within its account, and connects until its address is watched.
TEST_F(AcceptorTest, BytesInNoMessageCountWhenTheirConnectionEnds) {
  Acceptor::Options options;
  options.endings = {.per_second = 0, .burst = 1e6};
  options.bytes_of_ending = 1e-6;
  options.check_seconds = 0.001;
  options.watched_waiting = 0;
  Start(options);
  const std::string bytes(4000, 'x');
  for (size_t i = 0;; ++i) {
    const Fd peer = Dial();
    send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (!passed_.AwaitOrEnd(i + 1, peer)) break;
    EXPECT_EQ(passed_.Read(i, bytes.size()), bytes);
    usleep(5000);  // a check is likely
    passed_.CloseLast();
    while (AccountOf(peer) != nullptr) usleep(1000);
  }
}

TEST_F(AcceptorTest, AfterStopNoConnectionIsAccepted) {
  Start({});
  const int port = acceptor_->port();
  acceptor_->Stop();
  const absl::StatusOr<ListeningSockets> again = ListenAt("127.0.0.1", std::to_string(port));
  EXPECT_TRUE(again.ok()) << again.status();
}

TEST(ListenerTest, PortZeroPicksAFreePortAndSaysWhich) {
  const absl::StatusOr<Listener> a = ListenOn("127.0.0.1:0"), b = ListenOn("127.0.0.1:0");
  ASSERT_TRUE(a.ok());
  ASSERT_TRUE(b.ok());
  EXPECT_THAT(a->address(), StartsWith("127.0.0.1:"));
  EXPECT_NE(a->address(), "127.0.0.1:0");
  EXPECT_NE(a->address(), b->address());
}

TEST(ListenerTest, PortInUseIsNamedWithTheReasonAndTheMend) {
  const absl::StatusOr<Listener> first = ListenOn("127.0.0.1:0");
  ASSERT_TRUE(first.ok());
  const absl::StatusOr<Listener> second = ListenOn(first->address());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::string(second.status().message()),
            "cannot listen on " + first->address() +
                ": Address already in use; choose another port, or 0 for a free one");
}

TEST(ListenerTest, AddressOfAnotherMachineIsNamedWithTheReason) {
  // TEST-NET-1, which is reserved for documentation.
  EXPECT_THAT(
      std::string(ListenOn("192.0.2.1:0").status().message()),
      HasSubstr("cannot listen on 192.0.2.1:0: Cannot assign requested address; it is not an address of this "
                "machine"));
}

TEST(ListenerTest, WhatIsNoAddressIsNamed) {
  for (const char* address : {"", "7000", "localhost", "localhost:"}) {
    const absl::Status status = ListenOn(address).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), "'" + std::string(address) + "' is not HOST:PORT");
  }
}

}  // namespace
}  // namespace catchment
