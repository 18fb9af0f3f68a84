// The accounts of connections: honest peers of every kind stay far below the limits however long they live,
// and each kind of flood exceeds them, with times and numbers of bytes from outside.
#include "server/edge/peer_account.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace catchment {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kSecondsBetweenChecks = 0.02;

// A connection, whose time and bytes the test makes.
class Peer {
 public:
  explicit Peer(const PeerAccount::Limits& limits = {}) : account_(limits) {}

  void Send(uint64_t bytes) { traffic_.read += bytes; }
  void Receive(uint64_t bytes) { traffic_.acknowledged += bytes; }
  // A message of so many bytes, in frames with `around` bytes.
  void SendMessage(uint64_t bytes, uint64_t around) {
    Send(bytes + around);
    account_.MessageArrived(bytes);
  }
  // Returns what it exceeds after so many seconds.
  std::string After(double seconds) {
    now_ += seconds;
    return account_.Check([this] { return traffic_; }, now_);
  }
  // Returns the number of times `act` happens before the account is exceeded; `most` if it never is.
  template <typename Act>
  int64_t TimesBeforeTheEnd(int64_t most, double seconds, Act act) {
    for (int64_t i = 0; i < most; ++i) {
      act();
      why_ = After(seconds);
      if (!why_.empty()) return i;
    }
    return most;
  }

  PeerAccount* account() { return &account_; }
  const std::string& why() const { return why_; }

 private:
  PeerAccount account_;
  PeerAccount::Traffic traffic_;
  double now_ = 1000;
  std::string why_;
};

TEST(PeerAccountTest, WorkersThatTrainForDaysStayBelowIt) {
  // Steps of small and of large blocks, with the frames of HTTP/2 and TLS around them.
  const struct {
    uint64_t bytes, around, answer;
  } kSteps[] = {{200, 120, 200}, {16 << 10, 200, 16 << 10}, {64 << 20, 200 << 10, 64 << 20}};
  for (const auto& step : kSteps) {
    Peer peer;
    peer.account()->CallBegan();
    peer.account()->StreamAdmitted();
    const int64_t most = 1'000'000;
    EXPECT_EQ(peer.TimesBeforeTheEnd(most, kSecondsBetweenChecks,
                                     [&] {
                                       peer.Send(step.bytes / 2);  // half a block is on its way
                                       peer.SendMessage(step.bytes, step.around);
                                       peer.Receive(step.answer);
                                       // Window updates, and a ping for the bandwidth.
                                       peer.Send(60);
                                       peer.account()->MessageArrived(step.bytes / 2);
                                     }),
              most)
        << peer.why();
  }
}

TEST(PeerAccountTest, MembersThatOnlySendHeartbeatsAndPingsStayBelowIt) {
  Peer peer;
  EXPECT_EQ(peer.TimesBeforeTheEnd(1'000'000, 2,
                                   [&] {
                                     peer.account()->CallBegan();
                                     peer.SendMessage(20, 400);
                                     peer.account()->CallAnswered();
                                     peer.Send(17 + 29);
                                   }),
            1'000'000)
      << peer.why();
}

TEST(PeerAccountTest, ReadersOfSnapshotsStayBelowIt) {
  Peer peer;
  peer.account()->CallBegan();
  peer.SendMessage(30, 300);
  EXPECT_EQ(peer.TimesBeforeTheEnd(1'000'000, kSecondsBetweenChecks,
                                   [&] {
                                     peer.Receive(20 << 20);
                                     peer.Send(100 * (13 + 29));
                                   }),
            1'000'000)
      << peer.why();
}

TEST(PeerAccountTest, CallsThatAreGivenUpNowAndThenStayBelowIt) {
  Peer peer;
  EXPECT_EQ(peer.TimesBeforeTheEnd(100'000, 1,
                                   [&] {
                                     for (int i = 0; i < 10; ++i) peer.account()->CallBegan();
                                   }),
            100'000)
      << peer.why();
}

TEST(PeerAccountTest, AMessageOnItsWayMayBeAsLongAsTheServerTakesOne) {
  Peer peer;
  peer.Send(4 << 20);
  EXPECT_THAT(peer.After(1), IsEmpty());
  peer.account()->CallBegan();
  peer.Send(4 << 20);
  EXPECT_THAT(peer.After(1), IsEmpty());
  peer.account()->StreamAdmitted();
  peer.Send(24 << 20);
  EXPECT_THAT(peer.After(1), IsEmpty());
  // Half of it has arrived, so that as much more may be on its way.
  peer.account()->MessageArrived(16 << 20);
  peer.Send(32 << 20);
  EXPECT_THAT(peer.After(1), IsEmpty());
  peer.Send(2 << 20);
  EXPECT_THAT(peer.After(1), HasSubstr("KiB that are not part of any message"));
}

TEST(PeerAccountTest, FramesWithoutMessagesExceedItHoweverSlowlyTheyCome) {
  for (const uint64_t bytes_per_second : {2'000, 1'000'000, 1'000'000'000}) {
    Peer peer;
    const auto bytes = static_cast<uint64_t>(static_cast<double>(bytes_per_second) * kSecondsBetweenChecks);
    const int64_t times =
        peer.TimesBeforeTheEnd(10'000'000, kSecondsBetweenChecks, [&] { peer.Send(bytes); });
    EXPECT_LT(times * bytes, 6 << 20) << bytes_per_second;
    EXPECT_THAT(peer.why(), HasSubstr("KiB that are not part of any message"));
  }
}

// Unused allowance is not saved up: after days of messages a peer may not flood for longer than in its first
// second.
TEST(PeerAccountTest, MessagesOfThePastDoNotCount) {
  Peer peer;
  for (int i = 0; i < 100'000; ++i) {
    peer.SendMessage(1 << 20, 0);
    ASSERT_THAT(peer.After(10), IsEmpty());
  }
  EXPECT_LT(peer.TimesBeforeTheEnd(1000, kSecondsBetweenChecks, [&] { peer.Send(1 << 20); }), 6);
}

TEST(PeerAccountTest, CallsThatAreResetExceedIt) {
  Peer peer;
  EXPECT_LT(peer.TimesBeforeTheEnd(1000, kSecondsBetweenChecks,
                                   [&] {
                                     for (int i = 0; i < 100; ++i) peer.account()->CallBegan();
                                   }),
            4);
  EXPECT_THAT(peer.why(), HasSubstr("calls that it has ended before their answers"));
}

// The bytes of a message that arrives while the account is read are counted before the message.
TEST(PeerAccountTest, AMessageThatArrivesDuringACheckIsNotCountedTwice) {
  PeerAccount account{PeerAccount::Limits()};
  uint64_t read = 0;
  for (int i = 0; i < 10'000; ++i) {
    const auto traffic = [&] {
      account.MessageArrived(1 << 20);
      return PeerAccount::Traffic{read += 1 << 20, 0};
    };
    ASSERT_THAT(account.Check(traffic, i + 1), IsEmpty()) << i;
  }
}

TEST(PeerAccountTest, OnlyAPeerWithAnAnswerOrAStreamIsKnown) {
  PeerAccount silent{PeerAccount::Limits()}, answered{PeerAccount::Limits()}, worker{PeerAccount::Limits()};
  silent.CallBegan();
  silent.MessageArrived(10);
  EXPECT_FALSE(silent.known());
  answered.CallBegan();
  answered.CallAnswered();
  EXPECT_TRUE(answered.known());
  worker.StreamAdmitted();
  EXPECT_TRUE(worker.known());
}

TEST(PeerAccountTest, KeysAreThoseOfTheNamesThatGrpcHas) {
  EXPECT_EQ(KeyOfPeer("ipv4:10.0.0.1:7000"), "10.0.0.1 7000");
  EXPECT_EQ(KeyOfPeer("ipv6:%5B2001:db8::1%5D:7000"), "2001:db8::1 7000");
  EXPECT_EQ(KeyOfPeer("ipv6:[2001:db8::1]:7000"), "2001:db8::1 7000");
  EXPECT_EQ(KeyOfPeer("ipv6:%5Bfe80::1%25eth0%5D:7000"), "fe80::1 7000");
  EXPECT_EQ(KeyOfPeer("unix:/run/socket"), "unix:/run/socket");
}

TEST(PeerAccountTest, AccountsAreFoundByThePeer) {
  PeerAccounts accounts;
  const auto first = std::make_shared<PeerAccount>(PeerAccount::Limits());
  const auto second = std::make_shared<PeerAccount>(PeerAccount::Limits());
  EXPECT_EQ(accounts.Find("ipv4:10.0.0.1:7000"), nullptr);
  accounts.Add("10.0.0.1 7000", first);
  EXPECT_EQ(accounts.Find("ipv4:10.0.0.1:7000"), first);
  accounts.Add("10.0.0.1 7000", second);
  accounts.Remove("10.0.0.1 7000", first.get());
  EXPECT_EQ(accounts.Find("ipv4:10.0.0.1:7000"), second);
  accounts.Remove("10.0.0.1 7000", second.get());
  EXPECT_EQ(accounts.Find("ipv4:10.0.0.1:7000"), nullptr);
}

}  // namespace
}  // namespace catchment
