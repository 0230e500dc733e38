// SimulatedJob is a job in simulated time, as the processes of a node would have measured it, for
// tests of the diagnosis. Minutes take milliseconds.
#ifndef EXPORTER_DIAGNOSIS_TESTING_SIMULATED_JOB_H_
#define EXPORTER_DIAGNOSIS_TESTING_SIMULATED_JOB_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "exporter/diagnosis/facts/snapshot_set.h"
#include "metrics/histogram_geometry.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

inline constexpr int64_t kUs = 1000;
inline constexpr int64_t kMs = 1000 * kUs;
inline constexpr int64_t kSecond = 1000 * kMs;
inline constexpr int64_t kStart = 1760000000 * kSecond;

class SimulatedJob {
 public:
  // `processes`: one per rank of the job.
  explicit SimulatedJob(int processes) : processes_(processes) {
    for (int i = 0; i < processes; ++i) {
      processes_[i].pid = 100 + i;
      processes_[i].global_rank = std::to_string(i);
      processes_[i].sampling_exponent = 0;
      processes_[i].last_poll_realtime_ns = kStart;
      processes_[i].static_labels = "job=j" + std::to_string(i);
    }
  }

  int64_t now() const { return now_; }
  ProcessSnapshot& process(int index) { return processes_[index]; }

  // Adds a communicator. The processes with the indices `members` become its ranks 0, 1, ...
  // `nranks` 0: as many as members.
  void AddCommunicator(uint64_t id, std::vector<int> members, int nranks = 0, int nnodes = 1) {
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      CommunicatorSnapshot communicator;
      communicator.comm_id = id;
      communicator.rank = static_cast<int>(rank);
      communicator.nranks = nranks == 0 ? static_cast<int>(members.size()) : nranks;
      communicator.nnodes = nnodes;
      communicator.gpu = std::to_string(members[rank]);
      communicator.init_realtime_ns = kStart;
      communicator.has_heartbeat = true;
      processes_[members[rank]].communicators.push_back(communicator);
    }
    members_.push_back({id, std::move(members)});
  }

  CommunicatorSnapshot& Of(uint64_t id, int rank) {
    ProcessSnapshot& process = processes_[Members(id)[rank]];
    return *std::find_if(process.communicators.begin(), process.communicators.end(),
                         [id](const auto& each) { return each.comm_id == id; });
  }

  void Advance(int64_t ns) {
    now_ += ns;
    for (ProcessSnapshot& process : processes_) {
      if (process.end == ProcessEnd::kLive) process.last_poll_realtime_ns = now_;
    }
  }

  // Makes a call of one rank, in flight until Complete.
  void Launch(uint64_t id, int rank, const std::string& op, int size_class = 4) {
    CommunicatorSnapshot& communicator = Of(id, rank);
    ++CallsOf(&communicator, op, size_class)->calls;
    communicator.last_call_op = op;
    communicator.last_call_size_class = size_class;
    communicator.last_launch_realtime_ns = now_;
    if (communicator.launches == communicator.launches_completed) {
      communicator.oldest_inflight_realtime_ns = now_;
    }
    ++communicator.launches;
    communicator.unreported_calls = 0;
    communicator.unreported_since_realtime_ns = 0;
  }

  // Makes a call of one rank whose launch is not reported.
  void Call(uint64_t id, int rank, const std::string& op, int size_class = 4) {
    CommunicatorSnapshot& communicator = Of(id, rank);
    ++CallsOf(&communicator, op, size_class)->calls;
    communicator.last_call_op = op;
    communicator.last_call_size_class = size_class;
    ++communicator.unreported_calls;
    communicator.unreported_since_realtime_ns = now_;
  }

  // Makes a call without effect, such as a failed one, of an operation that NCCL reports.
  void Fail(uint64_t id, int rank, const std::string& op, int size_class = 4) {
    CommunicatorSnapshot& communicator = Of(id, rank);
    ++CallsOf(&communicator, op, size_class)->calls;
    communicator.algorithms.push_back({op, "RING", "SIMPLE", 1});
    communicator.untimed.push_back({op, UntimedReason::kUnreported, 1});
  }

  void Complete(uint64_t id, int rank) {
    CommunicatorSnapshot& communicator = Of(id, rank);
    communicator.launches_completed = communicator.launches;
    communicator.oldest_inflight_realtime_ns = 0;
    communicator.oldest_launch = OldestLaunch::kUnknown;
    communicator.last_completion_realtime_ns = now_;
  }

  // Makes a call of all ranks, which arrive `arrivals_ns` from now. The call ends on all ranks
  // `work_ns` after the last arrival.
  void Collective(uint64_t id, const std::string& op, const std::vector<int64_t>& arrivals_ns,
                  int64_t work_ns, int size_class = 4) {
    const int64_t last_ns = *std::max_element(arrivals_ns.begin(), arrivals_ns.end());
    for (std::size_t rank = 0; rank < arrivals_ns.size(); ++rank) {
      Launch(id, static_cast<int>(rank), op, size_class);
      Time(id, static_cast<int>(rank), op, size_class, last_ns - arrivals_ns[rank] + work_ns,
           now_ + last_ns + work_ns);
    }
    Advance(last_ns + work_ns);
    for (std::size_t rank = 0; rank < arrivals_ns.size(); ++rank) {
      Complete(id, static_cast<int>(rank));
    }
  }

  SnapshotSet Set() const { return SnapshotSet(processes_); }

 private:
  struct Group {
    uint64_t id;
    std::vector<int> members;
  };

  const std::vector<int>& Members(uint64_t id) const {
    return std::find_if(members_.begin(), members_.end(),
                        [id](const Group& each) { return each.id == id; })
        ->members;
  }

  static CallCountSnapshot* CallsOf(CommunicatorSnapshot* communicator, const std::string& op,
                                    int size_class) {
    for (CallCountSnapshot& call : communicator->calls) {
      if (call.op == op && call.size_class == size_class) return &call;
    }
    communicator->calls.push_back({op, size_class, "ncclFloat32", false, 0, 0});
    return &communicator->calls.back();
  }

  // Times the call if it is sampled: the same calls on all ranks with the same exponent.
  void Time(uint64_t id, int rank, const std::string& op, int size_class, int64_t duration_ns,
            int64_t end_ns) {
    CommunicatorSnapshot& communicator = Of(id, rank);
    const uint64_t call = CallsOf(&communicator, op, size_class)->calls - 1;
    uint64_t mix = (call + 1) * 0x9e3779b97f4a7c15ULL;
    mix ^= mix >> 29;
    mix *= 0xbf58476d1ce4e5b9ULL;
    mix ^= mix >> 32;
    const int exponent = processes_[Members(id)[rank]].sampling_exponent;
    if ((mix & ((uint64_t{1} << exponent) - 1)) != 0) return;
    auto& latencies = communicator.latencies;
    auto latency = std::find_if(latencies.begin(), latencies.end(), [&](const auto& each) {
      return each.op == op && each.size_class == size_class;
    });
    if (latency == latencies.end()) {
      latencies.emplace_back();
      latency = latencies.end() - 1;
      latency->kind = LatencyKind::kDurationStream;
      latency->op = op;
      latency->size_class = size_class;
    }
    ++latency->histogram.cells[CellIndex(duration_ns)];
    latency->histogram.sum_ns += duration_ns;
    TimedCallSnapshot timed;
    timed.op = op;
    timed.kind = LatencyKind::kDurationStream;
    timed.size_class = size_class;
    timed.call_number = call & 0xffffffff;
    timed.duration_ns = duration_ns;
    timed.end_realtime_ns = end_ns;
    communicator.timed_calls.push_back(timed);
    constexpr std::size_t kRing = 32;
    if (communicator.timed_calls.size() > kRing) {
      communicator.timed_calls.erase(communicator.timed_calls.begin());
    }
  }

  std::vector<ProcessSnapshot> processes_;
  std::vector<Group> members_;
  int64_t now_ = kStart;
};

// Returns a wait that ended with progress, in a call of Launch's default size, and is recent enough
// to excuse others.
inline LongestWaitSnapshot WaitedBefore(const std::string& op, uint64_t ns) {
  return {op, 4, ns, kStart + 1000000 * kSecond};
}

// Returns a job of two ranks: rank 0's process was killed, rank 1's has been stopped for 60 s.
inline SimulatedJob LostAndStoppedJob(uint64_t id) {
  SimulatedJob job(2);
  job.AddCommunicator(id, {0, 1});
  job.Collective(id, "AllReduce", {0, 0}, kMs);
  job.process(0).end = ProcessEnd::kLost;
  job.process(0).end_realtime_ns = job.now();
  const int64_t stopped = job.now();
  job.Advance(60 * kSecond);
  job.process(1).last_poll_realtime_ns = stopped;
  return job;
}

// Returns a job of four ranks in which ranks 1 and 3 are late by turns, by 2 ms in 10 ms.
inline SimulatedJob TwoLateByTurnsJob(uint64_t id, int calls) {
  SimulatedJob job(4);
  job.AddCommunicator(id, {0, 1, 2, 3});
  for (int i = 0; i < calls; ++i) {
    std::vector<int64_t> arrivals(4);
    arrivals[i % 2 == 0 ? 1 : 3] = 2 * kMs;
    job.Collective(id, "AllReduce", arrivals, kMs);
    job.Advance(7 * kMs);
  }
  return job;
}

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_TESTING_SIMULATED_JOB_H_
