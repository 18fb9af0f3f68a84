// A network between network namespaces, with a bandwidth, a delay and losses: each host has a TUN device, and
// this program carries its IP packets. It does what the kernel's netem does, which not every kernel has.
//
//   network_switch --mbit=100 --delay_ms=10 --loss=0.01 --seed=1 NAMESPACE...
//
// In the namespaces, which must be there, it makes a device wire0: host i of the list has
// address 10.213.77.(i + 1)/24. A host sends --mbit (10^6 bits a second, whole packets); what it sends beyond
// that waits, up to 200 ms of it, and is then dropped; each packet that leaves is lost with probability
// --loss, and arrives --delay_ms later. SIGUSR1 cuts all hosts off from each other, SIGUSR2 joins them again.
// It prints "ready" when the devices are there. SIGTERM ends it.
#include <fcntl.h>
#include <glog/logging.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <netinet/ip.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/program/command_line.h"

namespace catchment {
namespace {

struct Options {
  double mbit = 1000;
  double delay_ms = 0;
  double loss = 0;
  int seed = 1;
};

constexpr double kQueueSeconds = 0.2;
constexpr size_t kLargestPacket = 1 << 16;

volatile std::sig_atomic_t cut_off = 0;
volatile std::sig_atomic_t ended = 0;

struct Packet {
  double arrives = 0;
  size_t to = 0;
  std::string bytes;
};

struct Host {
  int device = -1;
  double idle_at = 0;  // when all that it has sent has left
};

int OpenOrDie(const std::string& path, int flags) {
  const int file = open(path.c_str(), flags | O_CLOEXEC);
  PCHECK(file >= 0) << path;
  return file;
}

void RunOrDie(const std::string& command) { CHECK_EQ(std::system(command.c_str()), 0) << command; }

// A TUN device in a namespace; its file stays good in ours.
int OpenDevice(const std::string& name_space, size_t host) {
  const int home = OpenOrDie("/proc/self/ns/net", O_RDONLY);
  const int there = OpenOrDie("/run/netns/" + name_space, O_RDONLY);
  PCHECK(setns(there, CLONE_NEWNET) == 0) << name_space;
  const int device = OpenOrDie("/dev/net/tun", O_RDWR | O_NONBLOCK);
  ifreq request = {};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::snprintf(request.ifr_name, sizeof(request.ifr_name), "wire0");
  PCHECK(ioctl(device, TUNSETIFF, &request) == 0) << "a TUN device in " << name_space;
  RunOrDie(absl::StrCat("ip address add 10.213.77.", host + 1, "/24 dev wire0"));
  RunOrDie("ip link set wire0 up");
  PCHECK(setns(home, CLONE_NEWNET) == 0);
  close(home);
  close(there);
  return device;
}

class Switch {
 public:
  Switch(const Options& options, const std::vector<std::string>& name_spaces)
      : options_(options), random_(options.seed) {
    for (size_t i = 0; i < name_spaces.size(); ++i) hosts_.push_back({OpenDevice(name_spaces[i], i)});
    for (const Host& host : hosts_) polled_.push_back({host.device, POLLIN, 0});
  }

  void Run() {
    while (!ended) {
      Deliver();
      const timespec pause = UntilNextArrival();
      if (ppoll(polled_.data(), polled_.size(), &pause, nullptr) <= 0) continue;
      for (size_t i = 0; i < hosts_.size(); ++i) {
        if ((polled_[i].revents & POLLIN) != 0) TakeAll(&hosts_[i]);
      }
    }
  }

 private:
  void TakeAll(Host* host) {
    char buffer[kLargestPacket];
    for (ssize_t size; (size = read(host->device, buffer, sizeof(buffer))) > 0;) {
      Send(host, std::string(buffer, size));
    }
  }

  // Forwards by the last byte of the destination; packets other than IPv4 are dropped.
  void Send(Host* from, std::string bytes) {
    if (bytes.size() < sizeof(iphdr) || (bytes[0] & 0xf0) != 0x40) return;
    const size_t to = static_cast<uint8_t>(bytes[offsetof(iphdr, daddr) + 3]) - size_t{1};
    if (to >= hosts_.size() || cut_off) return;
    const double now = clock_.Now();
    const double starts = std::max(now, from->idle_at);
    if (starts - now > kQueueSeconds) return;
    from->idle_at = starts + static_cast<double>(bytes.size()) * 8 / (options_.mbit * 1e6);
    if (std::bernoulli_distribution(options_.loss)(random_)) return;
    const double arrives = from->idle_at + options_.delay_ms / 1000;
    // Hosts take turns: nearly in order, so the place is near the end.
    auto place = underway_.end();
    while (place != underway_.begin() && std::prev(place)->arrives > arrives) --place;
    underway_.insert(place, {arrives, to, std::move(bytes)});
  }

  void Deliver() {
    for (const double now = clock_.Now(); !underway_.empty() && underway_.front().arrives <= now;) {
      const Packet& packet = underway_.front();
      // A full device drops it, as a network would.
      if (!cut_off) (void)!write(hosts_[packet.to].device, packet.bytes.data(), packet.bytes.size());
      underway_.pop_front();
    }
  }

  timespec UntilNextArrival() const {
    constexpr double kMost = 0.05;  // a signal between the look at `ended` and the wait is seen so late
    const double seconds =
        underway_.empty() ? kMost : std::clamp(underway_.front().arrives - clock_.Now(), 0.0, kMost);
    return {0, static_cast<long>(seconds * 1e9)};
  }

  const Options options_;
  const SteadyClock clock_;
  std::mt19937_64 random_;
  std::vector<Host> hosts_;
  std::vector<pollfd> polled_;
  std::deque<Packet> underway_;  // by arrival
};

}  // namespace
}  // namespace catchment

int main(int argc, char** argv) {
  catchment::Options options;
  catchment::FlagSet flags;
  flags.AddNumber("mbit", &options.mbit,
                  "Rate at which each host sends, in 10^6 bits a second. Default 1000.");
  flags.AddNumber("delay_ms", &options.delay_ms,
                  "Time from one host to another, in milliseconds. Default 0.");
  flags.AddNumber("loss", &options.loss, "Probability that a packet is lost. Default 0.");
  flags.AddInt("seed", "N", 0, &options.seed, "Seed of the losses. Default 1.");
  const auto namespaces = flags.Parse({argv + 1, argv + argc});
  CHECK(namespaces.ok()) << namespaces.status();
  CHECK_GE(namespaces->size(), 2)
      << "usage: network_switch [--mbit=..] [--delay_ms=..] [--loss=..] NAMESPACE NAMESPACE...";
  std::signal(SIGUSR1, [](int) { catchment::cut_off = 1; });
  std::signal(SIGUSR2, [](int) { catchment::cut_off = 0; });
  std::signal(SIGTERM, [](int) { catchment::ended = 1; });
  catchment::Switch network(options, *namespaces);
  std::puts("ready");
  std::fflush(stdout);
  network.Run();
}
