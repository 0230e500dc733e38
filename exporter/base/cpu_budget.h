// Limits the CPU time that a thread spends on clients' requests (CpuBudget), and on remote answers
// (WorkBudget).
//
// Not thread-safe.
#ifndef EXPORTER_BASE_CPU_BUDGET_H_
#define EXPORTER_BASE_CPU_BUDGET_H_

#include <algorithm>
#include <chrono>
#include <ctime>

namespace nccl_pulse {

// Returns the CPU time that the calling thread has used.
inline std::chrono::nanoseconds ThreadCpuTime() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

// CpuBudget is a token bucket of CPU time. It fills at `share` of elapsed time, up to `burst` times
// `share`. Work may begin while the bucket is not empty, and may overdraw it, since its cost is
// known only afterwards. So any period T costs at most share * (T + burst), plus one piece of work.
//
// It is never empty for longer than `longest_pause`, because a cost may be wrong: a kernel without
// steal time charges a pause of its virtual machine to the thread that was running. Only pieces of
// work that cost more than share * longest_pause exceed the share.
class CpuBudget {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Nanoseconds = std::chrono::nanoseconds;

  // Starts full. `share`: fraction of one core, above 0.
  CpuBudget(double share, Nanoseconds burst, Time now,
            Nanoseconds longest_pause = std::chrono::minutes(5))
      : share_(share),
        least_ns_(-share * static_cast<double>(longest_pause.count())),
        most_ns_(share * static_cast<double>(burst.count())),
        left_ns_(most_ns_),
        filled_(now) {}

  bool Allows(Time now) {
    Fill(now);
    return left_ns_ > 0;
  }
  void Spend(Nanoseconds cpu, Time now) {
    Fill(now);
    left_ns_ = std::max(left_ns_ - static_cast<double>(cpu.count()), least_ns_);
  }
  // Returns the time from which Allows() is true if nothing more is spent. It is in the past if
  // Allows() is true now.
  Time allows_from() const {
    if (left_ns_ > 0) return filled_;
    const auto wait = static_cast<int64_t>(-left_ns_ / share_) + 1;
    return filled_ + std::chrono::duration_cast<Time::duration>(Nanoseconds(wait));
  }

 private:
  void Fill(Time now) {
    if (now <= filled_) {
      filled_ = now;  // the clock stepped back: fills from its new time
      return;
    }
    left_ns_ += share_ * static_cast<double>(Nanoseconds{now - filled_}.count());
    if (left_ns_ > most_ns_) left_ns_ = most_ns_;
    filled_ = now;
  }

  double share_;
  double least_ns_;
  double most_ns_;
  double left_ns_;
  Time filled_;
};

// Divides CPU time among remote answers, so that none of them delays the others.
//
//   WorkBudget budget(1s);                 // for a round of answers
//   WorkBudget::Share share(&budget);      // for one answer
//   while (...) if (share.IsOver()) return "it takes too long to read";
//
// A share is a quarter of the remaining time, but at least kLeastShare. So a few expensive answers
// cannot use up the time of many cheap ones. All answers together take at most `total`, plus
// kLeastShare each.
//
// Cost: IsOver is a system call of about 0.3 us.
class WorkBudget {
 public:
  using Nanoseconds = std::chrono::nanoseconds;
  // For comparison: reading a node of 8 ranks with 4 communicators each takes 1 ms.
  static constexpr Nanoseconds kLeastShare = std::chrono::milliseconds(5);

  explicit WorkBudget(Nanoseconds total) : left_(total) {}
  WorkBudget(const WorkBudget&) = delete;
  WorkBudget& operator=(const WorkBudget&) = delete;

  // Charges the budget for this thread's CPU time during the object's life.
  class Share {
   public:
    explicit Share(WorkBudget* budget)
        : budget_(*budget),
          begin_(ThreadCpuTime()),
          end_(begin_ + std::max(kLeastShare, budget->left_ / 4)) {}
    ~Share() { budget_.left_ -= ThreadCpuTime() - begin_; }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    bool IsOver() const { return ThreadCpuTime() > end_; }

   private:
    WorkBudget& budget_;
    const Nanoseconds begin_, end_;
  };

 private:
  Nanoseconds left_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_CPU_BUDGET_H_
