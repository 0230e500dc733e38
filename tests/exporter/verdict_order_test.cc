// Several things are wrong with one communicator: which of them the verdict names.
//
//   process gone > not called, where that is proven > process stopped
//
// A process that is gone never comes back, and nobody can go on without it. Of a rank that runs, is
// idle and has called less it is certain that the others wait for it. What a process has called
// whose background thread stands may not be counted yet, so it is said beside that, and named only
// where nothing else is certain.
#include <set>

#include "exporter/diagnosis/diagnosis.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/simulated_job.h"

namespace nccl_pulse {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kComm = 0xc0;
constexpr int kRanks = 5;
constexpr int64_t kHangAfter = 10 * kSecond;

// Ranks of a job that ran well until now; those in `calling` wait in one more AllReduce.
class VerdictOrder : public testing::Test {
 protected:
  VerdictOrder() : job_(kRanks) {
    job_.AddCommunicator(kComm, {0, 1, 2, 3, 4});
    for (int i = 0; i < 20; ++i) {
      job_.Collective(kComm, "AllReduce", std::vector<int64_t>(kRanks, 0), kMs);
    }
  }

  // `gone` and `stopped` from the moment of the call on.
  Hang HangOf(const std::set<int>& calling, const std::set<int>& gone,
              const std::set<int>& stopped) {
    for (const int rank : calling) job_.Launch(kComm, rank, "AllReduce");
    const int64_t called_ns = job_.now();
    for (const int rank : gone) job_.process(rank).end = ProcessEnd::kLost;
    job_.Advance(kHangAfter);
    for (const int rank : stopped) job_.process(rank).last_poll_realtime_ns = called_ns;
    const DiagnosisResult result = Diagnosis().Update(job_.Set(), job_.now());
    EXPECT_EQ(result.size(), 1u);
    EXPECT_TRUE(result.at(0).hang);
    return result.at(0).hang.value_or(Hang());
  }

  SimulatedJob job_;
};

TEST_F(VerdictOrder, AGoneRankBeforeAStoppedOne) {
  const Hang hang = HangOf({0, 1, 2}, /*gone=*/{4}, /*stopped=*/{3});
  EXPECT_EQ(hang.verdict, HangVerdict::kProcessGone);
  EXPECT_THAT(hang.suspects, ElementsAre(4));
  EXPECT_THAT(hang.waiting, Not(Contains(4)));
}

TEST_F(VerdictOrder, AGoneRankBeforeAStoppedOneWhateverTheirOrder) {
  const Hang hang = HangOf({1, 2, 3}, /*gone=*/{0}, /*stopped=*/{4});
  EXPECT_EQ(hang.verdict, HangVerdict::kProcessGone);
  EXPECT_THAT(hang.suspects, ElementsAre(0));
}

TEST_F(VerdictOrder, AGoneRankBeforeAStoppedOneThatHasCalled) {
  const Hang hang = HangOf({0, 1, 2, 3}, /*gone=*/{4}, /*stopped=*/{3});
  EXPECT_EQ(hang.verdict, HangVerdict::kProcessGone);
  EXPECT_THAT(hang.suspects, ElementsAre(4));
}

TEST_F(VerdictOrder, AGoneRankBeforeOneThatHasNotCalled) {
  const Hang hang = HangOf({0, 1, 2}, /*gone=*/{4}, /*stopped=*/{});
  EXPECT_EQ(hang.verdict, HangVerdict::kProcessGone);
  EXPECT_THAT(hang.suspects, ElementsAre(4));
}

TEST_F(VerdictOrder, ARankProvenNotToHaveCalledBeforeAStoppedOne) {
  const Hang hang = HangOf({0, 1, 2}, /*gone=*/{}, /*stopped=*/{4});
  EXPECT_EQ(hang.verdict, HangVerdict::kRankNotCalled);
  EXPECT_THAT(hang.suspects, ElementsAre(3));
  EXPECT_THAT(hang.waiting, Not(Contains(4)));
  EXPECT_THAT(hang.text, HasSubstr("Rank 4 (pid 104, GPU 4) does not run."));
}

TEST_F(VerdictOrder, AStoppedRankWhereNoOtherIsProven) {
  const Hang hang = HangOf({0, 1, 2, 3}, /*gone=*/{}, /*stopped=*/{4});
  EXPECT_EQ(hang.verdict, HangVerdict::kProcessStopped);
  EXPECT_THAT(hang.suspects, ElementsAre(4));
}

}  // namespace
}  // namespace nccl_pulse
