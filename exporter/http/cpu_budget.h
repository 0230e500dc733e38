// How much processor time a thread may take for what strangers ask of it.
//
// A bucket of time: it fills with `share` of what goes by on the clock, up to `burst` of it, and
// what was spent is taken out. Work may begin while there is something left, and may then overdraw:
// how long it takes is known afterwards. So over any time T no more is spent than share * (T +
// burst), and one piece of work.
//
// Thread: one.
#ifndef EXPORTER_HTTP_CPU_BUDGET_H_
#define EXPORTER_HTTP_CPU_BUDGET_H_

#include <chrono>

namespace nccl_pulse {

class CpuBudget {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Nanoseconds = std::chrono::nanoseconds;

  // Full at first. share: of one core, above 0.
  CpuBudget(double share, Nanoseconds burst, Time now)
      : share_(share),
        most_ns_(share * static_cast<double>(burst.count())),
        left_ns_(most_ns_),
        filled_(now) {}

  bool Allows(Time now) {
    Fill(now);
    return left_ns_ > 0;
  }
  void Spend(Nanoseconds cpu, Time now) {
    Fill(now);
    left_ns_ -= static_cast<double>(cpu.count());
  }
  // From when on Allows holds if nothing more is spent; in the past when it does already.
  Time allows_from() const {
    if (left_ns_ > 0) return filled_;
    const auto wait = static_cast<int64_t>(-left_ns_ / share_) + 1;
    return filled_ + std::chrono::duration_cast<Time::duration>(Nanoseconds(wait));
  }

 private:
  void Fill(Time now) {
    if (now <= filled_) {
      filled_ = now;  // a clock that was set back fills from there
      return;
    }
    left_ns_ += share_ * static_cast<double>(Nanoseconds(now - filled_).count());
    if (left_ns_ > most_ns_) left_ns_ = most_ns_;
    filled_ = now;
  }

  double share_;
  double most_ns_;
  double left_ns_;
  Time filled_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_CPU_BUDGET_H_
