// JobMember is one rank's membership in a communicator, as the rank's plugin would have measured
// it.
//
// Thread: one.
#ifndef BENCH_JOBS_JOB_MEMBER_H_
#define BENCH_JOBS_JOB_MEMBER_H_

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "bench/jobs/job_layout.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

// Repeatable random numbers.
class JobRandom {
 public:
  explicit JobRandom(uint64_t seed) : state_(seed * 2 + 1) {}
  uint64_t Next();
  double Share();  // in [0, 1)

 private:
  uint64_t state_;
};

// Times are nanoseconds since kJobStart. A launch is identified by its time.
class JobMember {
 public:
  CommunicatorSnapshot& snapshot() { return snapshot_; }
  // Timed latencies, for the pages of a scraped endpoint.
  const std::vector<LatencySnapshot>& latencies() const { return latencies_; }

  // `peers`: for an exchange, the ranks with which this rank exchanges messages; otherwise empty.
  void Launch(const JobStep& step, const std::vector<int>& peers, int64_t now_ns);
  // Counts a call that fails and launches nothing.
  void Fail(const JobStep& step);
  // Notes that the GPU has reached the launch.
  void Begin(int64_t launched_ns, int64_t begun_ns);
  // Ends the oldest launch. One launch in 2^`sampling_exponent` is timed.
  void Finish(const JobStep& step, int64_t launched_ns, int64_t begun_ns, int64_t end_ns,
              int sampling_exponent);
  // Sets the period during which the communicator's network steps progress.
  void Move(int64_t from_ns, int64_t until_ns) { moves_ = {from_ns, until_ns}; }
  // Returns the snapshot, including work in flight. Call once, at the end.
  CommunicatorSnapshot Take(int64_t now_ns);

  uint64_t next_instance = 0;  // index of this communicator's next call that the rank's GPU reaches

 private:
  struct Outstanding {
    int64_t launched_ns, begun_ns;
    bool is_gated;  // an event before it shows whether the GPU has reached it
  };
  struct LastCall {
    const char* op;
    int size_class;
    uint64_t collective;  // number among the collectives, from 1; 0: Send or Recv
    uint64_t launch;
    int64_t launched_ns;
    int root, peer;
    bool is_of_group;
    uint64_t bytes = 0;  // 0: the largest of its size class

    uint64_t Bytes() const { return bytes != 0 ? bytes : uint64_t{4096} << 2 * size_class; }
  };
  struct Timed {  // a kind of calls
    const char* op;
    int size_class;
    uint64_t calls;
  };
  // The one timed call of a second that all ranks keep (metrics/agreed_call.h).
  struct Agreed {
    TimedCallSnapshot timed;
    uint64_t hash;
  };

  void Count(const char* op, int size_class, uint64_t calls);
  // Returns the call's number among the calls of its kind, from 0. `row`: set to the kind's index.
  uint64_t NumberOfKind(const char* op, int size_class, std::size_t* row);
  void CountReported(const char* op);
  void CountUnreported(const std::string& op, uint64_t calls);
  void Remember(const JobStep& step, int64_t now_ns);
  int CallsOf(const JobStep& step) const;
  // Keeps the call with this root, of a step that makes one call per root (JobStep::is_list).
  void KeepCallOfRoot(const JobStep& step, int root, uint64_t launch);
  void Keep(const LastCall& call);
  void CountOfPeer(const LastCall& call);
  void RememberWait(int64_t begin_ns, int64_t end_ns);
  void Time(const char* op, int size_class, int64_t duration_ns, int64_t end_ns,
            int sampling_exponent);
  void Sum(const char* op, int size_class, int64_t duration_ns);
  // Keeps the call if it is the agreed call of its second. `row`: index of its kind.
  void KeepIfAgreed(const TimedCallSnapshot& timed, uint32_t row);
  void TakeTimedCalls();

  CommunicatorSnapshot snapshot_;
  std::deque<Outstanding> launches_;
  std::deque<LastCall> last_calls_;
  uint64_t collectives_ = 0;
  std::string hidden_op_;        // operation of the latest calls whose launch NCCL does not report
  int64_t waited_until_ns_ = 0;  // end of the last long wait
  int64_t looked_ = -1;          // number of the background thread's poll at the last launch
  int hurried_gates_ = 0;        // launches in quick succession that still get a gate in this poll
  std::pair<int64_t, int64_t> moves_;  // period during which network steps progress
  std::vector<Timed> timed_;
  std::deque<Agreed> agreed_calls_;  // one per second, oldest first
  std::vector<LatencySnapshot> latencies_;
};

}  // namespace nccl_pulse

#endif  // BENCH_JOBS_JOB_MEMBER_H_
