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
// Not thread-safe. Cost: IsOver is a system call of about 0.3 us.
#ifndef EXPORTER_BASE_WORK_BUDGET_H_
#define EXPORTER_BASE_WORK_BUDGET_H_

#include <algorithm>
#include <chrono>

#include "exporter/base/cpu_budget.h"

namespace nccl_pulse {

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

#endif  // EXPORTER_BASE_WORK_BUDGET_H_
