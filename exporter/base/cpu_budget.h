// Limits the processor time that a thread spends on what clients ask of it.
//
// It is a bucket of time. It fills with `share` of the time that passes, up to what `burst` brings,
// and what was spent is taken out. Work may begin while something is left, and may then overdraw:
// how long it takes is known only afterwards. So over any time T no more is spent than
// share * (T + burst) and one piece of work.
//
// Thread: one.
#ifndef EXPORTER_BASE_CPU_BUDGET_H_
#define EXPORTER_BASE_CPU_BUDGET_H_

#include <chrono>
#include <ctime>

namespace nccl_pulse {

// What the thread that calls has used of its core.
inline std::chrono::nanoseconds ThreadCpuTime() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

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
    left_ns_ += share_ * static_cast<double>(Nanoseconds{now - filled_}.count());
    if (left_ns_ > most_ns_) left_ns_ = most_ns_;
    filled_ = now;
  }

  double share_;
  double most_ns_;
  double left_ns_;
  Time filled_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_CPU_BUDGET_H_
