#include "simulation/event_queue.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "simulation/process.h"

namespace catchment {
namespace {

TEST(EventQueueTest, CarriesOutEventsByTimeAndThenInTheirOrder) {
  EventQueue events;
  std::string order;
  events.At(2, [&] { order += "d"; });
  events.At(1, [&] {
    order += "a";
    events.After(0, [&] { order += "c"; });
  });
  events.At(1, [&] { order += "b"; });
  while (events.RunNext()) {
  }
  EXPECT_EQ(order, "abcd");
  EXPECT_EQ(events.Now(), 2);
  EXPECT_EQ(events.events_run(), 4u);
}

TEST(EventQueueTest, TakesATimeThatHasPassedAsNow) {
  EventQueue events;
  double at = 0;
  events.At(5, [&] { events.At(1, [&] { at = events.Now(); }); });
  while (events.RunNext()) {
  }
  EXPECT_EQ(at, 5);
}

TEST(ProcessTest, SleepsAndWaitsInVirtualTime) {
  EventQueue events;
  std::vector<double> times;
  bool open = false;
  SimulatedProcess process(&events, [&] {
    process.SleepUntil(1);
    times.push_back(events.Now());
    while (!open) process.Wait();
    times.push_back(events.Now());
  });
  process.Start();
  events.At(3, [&] { process.Wake(); });  // for nothing
  events.At(4, [&] {
    open = true;
    process.Wake();
  });
  while (events.RunNext()) {
  }
  EXPECT_TRUE(process.ended());
  EXPECT_EQ(times, std::vector<double>({1, 4}));
}

TEST(ProcessTest, AnInterruptionEndsASleep) {
  EventQueue events;
  double ended = 0;
  SimulatedProcess process(&events, [&] {
    process.SleepUntil(100);
    ended = events.Now();
    process.SleepUntil(200);
  });
  process.Start();
  events.At(2, [&] { process.Interrupt(); });
  while (!process.ended()) ASSERT_TRUE(events.RunNext());
  EXPECT_EQ(ended, 2);
}

TEST(FiberTest, CallsAFunctionOnTheStackOfItsDriver) {
  int depth = 0;
  Fiber fiber([&] {
    Fiber::CallOutside([&] {
      // More than the stack of a fiber holds.
      volatile char large[3 * Fiber::kStackBytes];
      for (size_t i = 0; i < sizeof(large); i += 4096) large[i] = 1;
      depth = large[0];
    });
    Fiber::Pause();
    depth = 2;
  });
  fiber.Resume();
  EXPECT_EQ(depth, 1);
  EXPECT_FALSE(fiber.ended());
  fiber.Resume();
  EXPECT_EQ(depth, 2);
  EXPECT_TRUE(fiber.ended());
}

}  // namespace
}  // namespace catchment
