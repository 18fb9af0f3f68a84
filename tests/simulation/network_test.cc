#include "simulation/network.h"

#include <gtest/gtest.h>

#include <vector>

namespace catchment {
namespace {

constexpr NetworkModel kNetwork = {.bytes_per_second = 1000, .latency = 0.5};

class NetworkTest : public testing::Test {
 protected:
  void Send(double bytes, Port* from, Port* to) {
    network_.Send(bytes, from, to, nullptr, [this] { arrivals_.push_back(events_.Now()); });
  }
  void RunAll() {
    while (events_.RunNext()) {
    }
  }

  EventQueue events_;
  SimulatedNetwork network_{kNetwork, &events_};
  Port a_, b_, server_;
  std::vector<double> arrivals_;
};

TEST_F(NetworkTest, OneMessageTakesLatencyAndItsBytes) {
  Send(1000, &a_, &server_);
  RunAll();
  EXPECT_EQ(arrivals_, std::vector<double>({1.5}));
}

TEST_F(NetworkTest, ALinkCarriesOneMessageAfterAnother) {
  Send(1000, &a_, &server_);
  Send(1000, &a_, &server_);
  RunAll();
  EXPECT_EQ(arrivals_, std::vector<double>({1.5, 2.5}));
}

TEST_F(NetworkTest, SendersShareTheLinkOfTheReceiver) {
  Send(1000, &a_, &server_);
  Send(1000, &b_, &server_);
  RunAll();
  EXPECT_EQ(arrivals_, std::vector<double>({1.5, 2.5}));
}

TEST_F(NetworkTest, DirectionsDoNotShareALink) {
  Send(1000, &a_, &server_);
  Send(1000, &server_, &a_);
  RunAll();
  EXPECT_EQ(arrivals_, std::vector<double>({1.5, 1.5}));
}

TEST_F(NetworkTest, TheSenderIsFreeWhenItsLinkIs) {
  double left = 0;
  network_.Send(
      1000, &a_, &server_, [&] { left = events_.Now(); }, [] {});
  RunAll();
  EXPECT_EQ(left, 1);
}

TEST(UnlimitedNetworkTest, TakesTheLatencyAlone) {
  EventQueue events;
  SimulatedNetwork network({.bytes_per_second = 0, .latency = 0.25}, &events);
  Port a, b;
  double arrived = 0;
  network.Send(1e12, &a, &b, nullptr, [&] { arrived = events.Now(); });
  while (events.RunNext()) {
  }
  EXPECT_EQ(arrived, 0.25);
}

}  // namespace
}  // namespace catchment
