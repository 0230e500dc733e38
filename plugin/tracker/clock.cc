#include "plugin/tracker/clock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace nccl_pulse {
namespace {

// Reads the kernel's clock source ("tsc", "kvm-clock", "arch_sys_counter" ...), or "" if unknown. A
// kernel that found the TSCs of its sockets to disagree has moved to another source.
void ReadClockSource(char (&name)[32]) {
  memset(name, 0, sizeof(name));
  const int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                      O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t length = read(fd, name, sizeof(name) - 1);
  close(fd);
  if (length <= 0) name[0] = '\0';
  name[strcspn(name, "\n")] = '\0';
}

}  // namespace

bool Clock::CounterIsTrustworthy() {
  [[maybe_unused]] char source[32];
#if defined(__x86_64__)
  // Invariant TSC: CPUID leaf 0x80000007, EDX bit 8 (AMD APM volume 3, Intel SDM volume 2).
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0x80000007u, &eax, &ebx, &ecx, &edx) == 0 || (edx & 1u << 8) == 0) return false;
  ReadClockSource(source);
  return strcmp(source, "tsc") == 0 || strcmp(source, "kvm-clock") == 0 ||
         strcmp(source, "hyperv_clocksource_tsc_page") == 0;
#elif defined(__aarch64__)
  ReadClockSource(source);
  return strcmp(source, "arch_sys_counter") == 0;
#else
  return false;
#endif
}

Clock::Pair Clock::ReadPair() {
  // Takes the tightest of a few tries: a preemption between the two reads would skew the pair.
  Pair best{};
  uint64_t best_width = UINT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const uint64_t before = ReadCounter();
    const uint64_t ns = MonotonicNs();
    const uint64_t after = ReadCounter();
    if (after - before < best_width) {
      best_width = after - before;
      best = {before + (after - before) / 2, ns};
    }
  }
  return best;
}

void Clock::Initialize(ClockSource source) {
  if (source == ClockSource::kMonotonic || !CounterIsTrustworthy()) return;
  origin_ = ReadPair();
  const timespec pause{0, 2000000};
  nanosleep(&pause, nullptr);
  const Pair now = ReadPair();
  if (now.counter <= origin_.counter || now.ns <= origin_.ns) return;
  scales_.Store({now.counter, now.ns, RateFrom(origin_, now)});
}

uint64_t Clock::RateFrom(const Pair& from, const Pair& to) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(to.ns - from.ns) << 32) /
                               (to.counter - from.counter));
}

void Clock::Correct() {
  ClockScale current;
  if (!scales_.Read(&current)) return;
  const Pair now = ReadPair();
  const uint64_t ours = NsAt(current, now.counter);
  const auto error_ns = static_cast<int64_t>(now.ns - ours);
  const bool is_before_origin = now.counter <= origin_.counter || now.ns <= origin_.ns;
  // A jump (suspended machine, migrated guest, restored process) is corrected at once, a drift over
  // a second.
  constexpr int64_t kJumpNs = 10000000;
  if (is_before_origin || error_ns > kJumpNs || error_ns < -kJumpNs) {
    origin_ = now;
    scales_.Store({now.counter, now.ns, current.ns_per_tick_q32});
    return;
  }
  const uint64_t rate = RateFrom(origin_, now);
  const double steering = 1.0 + static_cast<double>(error_ns) / 1e9;
  scales_.Store({now.counter, ours, static_cast<uint64_t>(static_cast<double>(rate) * steering)});
}

}  // namespace nccl_pulse
