#include "server/edge/listener.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
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
#include "server/edge/opening.h"
#include "tests/common/base/settable_clock.h"

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
    Call::Accept(queue, Permission("catchment.v1.MasterService.Stop"), {&service_, &Async::RequestStop},
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

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

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
  size_t size() {
    MutexLock lock(&mu_);
    return files_.size();
  }
  void Await(size_t count) {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [&] { return files_.size() >= count; });
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
  // Returns a connection from 127.0.0.host on which so much has been sent.
  Fd Dial(const std::string& opening = kPreface, uint8_t host = 1) {
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    address.sin_port = htons(static_cast<uint16_t>(acceptor_->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(send(fd.get(), opening.data(), opening.size(), MSG_NOSIGNAL), std::ssize(opening));
    return fd;
  }
  // Returns a connection whose peer has made a call.
  Fd DialKnown() {
    Fd fd = Dial();
    std::shared_ptr<PeerAccount> account;
    // Another connection may be passed on before it.
    while ((account = AccountOf(fd)) == nullptr) usleep(1000);
    account->CallBegan();
    account->CallAnswered();
    return fd;
  }
  std::shared_ptr<PeerAccount> AccountOf(const Fd& fd) {
    sockaddr_in own = {};
    socklen_t size = sizeof(own);
    EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &own.sin_addr, text, sizeof(text));
    return accounts_.Find(std::string("ipv4:") + text + ":" + std::to_string(ntohs(own.sin_port)));
  }
  // Waits until the other end has closed the connection.
  static void AwaitEnd(const Fd& fd) {
    char byte;
    EXPECT_LE(recv(fd.get(), &byte, 1, 0), 0);
  }
  static bool HasEnded(const Fd& fd) {
    char byte;
    const ssize_t size = recv(fd.get(), &byte, 1, MSG_DONTWAIT);
    return size == 0 || (size < 0 && errno != EAGAIN);
  }

  const SteadyClock steady_;
  const Clock* clock_ = &steady_;
  PeerAccounts accounts_;
  Passed passed_;
  std::unique_ptr<Acceptor> acceptor_;
};

TEST_F(AcceptorTest, PeersThatMakeNoCallMakeRoomForOthers) {
  Acceptor::Options options;
  options.strangers = 2;
  options.stranger_seconds = 0;
  Start(options);
  const Fd worker = Dial();
  passed_.Await(1);
  AccountOf(worker)->StreamAdmitted();
  const Fd first = Dial();
  passed_.Await(2);
  const Fd second = Dial();
  passed_.Await(3);
  AwaitEnd(first);
  EXPECT_NE(AccountOf(worker), nullptr);
  EXPECT_NE(AccountOf(second), nullptr);
}

// They hold a file, and others are passed on at once.
TEST_F(AcceptorTest, PeersThatBeginNoHandshakeAreNotPassedOn) {
  Acceptor::Options options;
  options.strangers = 8;
  Start(options);
  const std::string half = std::string(kPreface).substr(0, 10);
  std::vector<Fd> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(Dial(i % 2 == 0 ? "" : half));
  const Fd peer = Dial();
  passed_.Await(1);
  EXPECT_NE(AccountOf(peer), nullptr);
  EXPECT_EQ(passed_.size(), 1u);
  const auto open = std::count_if(silent.begin(), silent.end(), [](const Fd& fd) { return !HasEnded(fd); });
  EXPECT_LE(open, 8);
  // The rest of a handshake that has begun late is awaited.
  const Fd late = Dial(half);
  EXPECT_GT(send(late.get(), kPreface + half.size(), sizeof(kPreface) - 1 - half.size(), MSG_NOSIGNAL), 0);
  passed_.Await(2);
  EXPECT_NE(AccountOf(late), nullptr);
}

TEST_F(AcceptorTest, PeersThatSendSomethingElseAreDisconnected) {
  Start({});
  // A handshake in as many pieces as bytes, each of which would be looked at.
  const Fd slow = Dial(std::string("\x16\x03\x01\x3f\xff\x01\x00\x3f\x00", 9));
  while (!HasEnded(slow)) {
    send(slow.get(), "x", 1, MSG_NOSIGNAL);
    usleep(1000);
  }
  AwaitEnd(Dial("GET / HTTP/1.1\r\n\r\n"));
  EXPECT_EQ(passed_.size(), 0u);
}

// However many others of its address hold theirs, a peer gets a handshake if it tries again.
TEST_F(AcceptorTest, HandshakesThatDoNotEndMakeRoomForThoseOfTheSameAddress) {
  Acceptor::Options options;
  options.strangers = 8;
  options.stranger_seconds = options.answered_seconds = 0;
  Start(options);
  std::vector<Fd> held;
  for (int i = 0; i < 100; ++i) held.push_back(Dial());
  Fd peer = Dial();
  while (AccountOf(peer) == nullptr) {
    if (HasEnded(peer)) peer = Dial();
  }
}

TEST_F(AcceptorTest, AnAddressWithFewHandshakesIsPreferred) {
  SettableClock clock;
  clock_ = &clock;
  Acceptor::Options options;
  options.handshakes_at_once = 10;
  options.handshakes_per_second = 1;
  Start(options);
  std::vector<Fd> many;
  for (int i = 0; i < 50; ++i) many.push_back(Dial(kPreface, /*host=*/2));
  passed_.Await(10);
  const Fd peer = Dial();
  // The acceptor may be about to pass one on when it comes.
  size_t handshakes = 10;
  while (AccountOf(peer) == nullptr) {
    clock.Advance(1);
    passed_.Await(++handshakes);
  }
  EXPECT_LE(handshakes, 13u);
  acceptor_->Stop();
}

// One peer that makes a call on each connection cannot hold all files of the server.
TEST_F(AcceptorTest, ConnectionsOfOneAddressHaveABoundThatGrowsWithItsStreams) {
  Acceptor::Options options;
  options.idle_connections = 3;
  Start(options);
  const Fd worker = DialKnown(), other = Dial(kPreface, /*host=*/2);
  AccountOf(worker)->StreamAdmitted();
  std::vector<Fd> idle;
  for (int i = 0; i < 10; ++i) idle.push_back(DialKnown());
  const auto open = [&] {
    return std::count_if(idle.begin(), idle.end(), [](const Fd& fd) { return !HasEnded(fd); });
  };
  while (open() > 4) usleep(1000);
  EXPECT_EQ(open(), 4);
  EXPECT_FALSE(HasEnded(worker));
  EXPECT_FALSE(HasEnded(other));
  AccountOf(worker)->StreamEnded();
  const auto open_in_all = [&] { return open() + (HasEnded(worker) ? 0 : 1); };
  while (open_in_all() > 3) usleep(1000);
  EXPECT_EQ(open_in_all(), 3);
}

// A member of the same address cannot keep it from being served either.
TEST_F(AcceptorTest, APeerThatExceedsItsAccountIsDisconnectedAndItsAddressWatched) {
  SettableClock clock;
  clock_ = &clock;
  Acceptor::Options options;
  options.watched_interval_seconds = 10;
  Start(options);
  const Fd other = Dial(), flood = Dial();
  passed_.Await(2);
  for (int64_t i = 0; i <= options.limits.calls; ++i) AccountOf(flood)->CallBegan();
  clock.Advance(options.check_seconds);
  AwaitEnd(flood);
  EXPECT_NE(AccountOf(other), nullptr);
  const Fd next = Dial();
  // That of another address is passed on although it came later.
  const Fd elsewhere = Dial(kPreface, /*host=*/2);
  passed_.Await(3);
  EXPECT_NE(AccountOf(elsewhere), nullptr);
  EXPECT_EQ(AccountOf(next), nullptr);
  clock.Advance(options.watched_interval_seconds);
  passed_.Await(4);
  EXPECT_NE(AccountOf(next), nullptr);
  acceptor_->Stop();
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

TEST_F(AcceptorTest, AConnectionThatHasWaitedIsCheckedMoreOften) {
  SettableClock clock;
  clock_ = &clock;
  const Acceptor::Options options;
  Start(options);
  for (size_t i = 0; i < 2; ++i) {
    const Fd flood = Dial();
    passed_.Await(i + 1);
    for (int64_t call = 0; call <= options.limits.calls; ++call) AccountOf(flood)->CallBegan();
    clock.Advance(i == 0 ? options.check_seconds : options.check_watched_seconds);
    AwaitEnd(flood);
    clock.Advance(options.watched_interval_seconds);
  }
  acceptor_->Stop();
}

// Bytes count when they are read from the socket.
TEST_F(AcceptorTest, BytesInNoMessageExceedTheAccount) {
  Acceptor::Options options;
  options.limits.short_message_bytes = options.limits.other_bytes = 1000;
  options.limits.bytes_per_second = 0;
  Start(options);
  const std::string bytes = kPreface + std::string(4000, 'x');
  const Fd flood = Dial(bytes);
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
  const std::string bytes = kPreface + std::string(4000, 'x');
  for (size_t i = 0; i < 3; ++i) {
    peers.push_back(Dial(bytes));
    passed_.Await(i + 1);
    if (i == 0) AccountOf(peers[0])->StreamAdmitted();
    EXPECT_EQ(passed_.Read(i, bytes.size()), bytes);
  }
  EXPECT_EQ(send(peers[2].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  EXPECT_EQ(passed_.Read(2, bytes.size()), bytes);
  AwaitEnd(peers[2]);
  EXPECT_NE(AccountOf(peers[0]), nullptr);
  EXPECT_NE(AccountOf(peers[1]), nullptr);
}

// Otherwise a neighbor could keep others of its address out with few connections.
TEST_F(AcceptorTest, AnAddressWhoseHandshakesFailIsNotWatched) {
  Acceptor::Options options;
  options.endings = {.per_second = 0, .burst = 3};
  options.watched_interval_seconds = 1e6;
  Start(options);
  const std::string hello =
      "\x16\x03\x01" + std::string("\x20\x04\x01\x00\x20\x00", 6) + std::string(8192, 'x');
  for (size_t i = 0; i < 10; ++i) {
    const Fd peer = Dial(i % 2 == 0 ? kPreface : hello);
    passed_.Await(i + 1);
    passed_.CloseLast();
    while (AccountOf(peer) != nullptr) usleep(1000);
  }
}

// The peer stays within its account, and connects until its address is watched.
TEST_F(AcceptorTest, BytesInNoMessageCountWhenTheirConnectionEnds) {
  Acceptor::Options options;
  options.endings = {.per_second = 0, .burst = 1e6};
  options.bytes_of_ending = 1e-6;
  options.check_seconds = 0.001;
  options.watched_interval_seconds = 1e6;
  options.opening_seconds = 5;
  Start(options);
  const std::string bytes = kPreface + std::string(4000, 'x');
  for (size_t i = 0;; ++i) {
    const Fd peer = Dial(bytes);
    while (passed_.size() <= i && !HasEnded(peer)) usleep(1000);
    if (passed_.size() <= i) break;
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

TEST(OpeningTest, IsAWholeClientHelloOrThePrefaceOfHttp2) {
  const auto record = [](const std::string& content) {
    const auto size = static_cast<uint16_t>(content.size());
    return std::string("\x16\x03\x01") + static_cast<char>(size >> 8) + static_cast<char>(size & 255) +
           content;
  };
  const std::string hello = std::string("\x01\0\x01\0", 4) + std::string(256, 'x');
  const std::string openings[] = {record(hello), record(hello.substr(0, 2)) + record(hello.substr(2)),
                                  kPreface};
  for (const std::string& opening : openings) {
    for (size_t size = 0; size < opening.size(); ++size)
      EXPECT_EQ(OpeningOf(opening.substr(0, size)), Opening::kIncomplete) << size << " of " << opening.size();
    EXPECT_EQ(OpeningOf(opening), Opening::kComplete);
    EXPECT_EQ(OpeningOf(opening + "more"), Opening::kComplete);
  }
  const std::string others[] = {"GET / HTTP/1.1\r\n\r\n",
                                "PRI * HTTP/1.1\r\n\r\n",
                                std::string(100, '\xff'),
                                "\x16\x02",
                                record(""),
                                record("\x02"),
                                record(hello.substr(0, 10)) + "x",
                                record(std::string("\x01\x01\0\0", 4))};
  for (const std::string& other : others) EXPECT_EQ(OpeningOf(other), Opening::kNone) << other;
}

TEST(ListenerTest, PortZeroPicksAFreePortAndSaysWhich) {
  const absl::StatusOr<Listener> a = ListenOn("127.0.0.1:0"), b = ListenOn("127.0.0.1:0");
  ASSERT_TRUE(a.ok());
  ASSERT_TRUE(b.ok());
  EXPECT_THAT(a->address(), StartsWith("127.0.0.1:"));
  EXPECT_NE(a->address(), "127.0.0.1:0");
  EXPECT_NE(a->address(), b->address());
}

TEST(ListenerTest, PortInUseIsNamedWithTheReasonAndTheRemedy) {
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
  EXPECT_THAT(std::string(ListenOn("192.0.2.1:0").status().message()),
              HasSubstr("cannot listen on 192.0.2.1:0: Cannot assign requested address; "
                        "it is not an address of this machine"));
}

TEST(ListenerTest, WhatIsNotAnAddressIsNamed) {
  for (const char* address : {"", "7000", "localhost", "localhost:"}) {
    const absl::Status status = ListenOn(address).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), "'" + std::string(address) + "' is not HOST:PORT");
  }
}

}  // namespace
}  // namespace catchment
