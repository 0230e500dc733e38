// A job in which faults are injected, one process a rank, for inject.py.
//
//   inject_program --rank=R --nranks=N --gpu=G --exchange=FOLDER [--library-path=FOLDER:FOLDER]
//                  [--queued=1] [--broadcast=ROOT] [--together=1] [--control=FILE]
//                  [--load=COMMUNICATORS --rate=CALLS]
//                  [--graph=CALLS [--hold-at=CALL] [--ahead=REPLAYS]]
//
// It trains: steps of an AllReduce of 4 MiB and an AllGather of 1 KiB on the communicator "train",
// and an AllReduce of 64 KiB on "other", each waited for before the next is called (--queued=1:
// only the step is). The two sizes of "train" make NCCL choose different protocols, so that ranks
// which mix them up wait for each other in different buffers, for ever. With --broadcast a step
// begins with a Broadcast of 1 KiB on "train", which a rank leaves as soon as it has handed it on:
// the ranks before one that has not called go on, those behind it wait.
//
// A line on standard input is a fault, which this rank has from its next step on:
//
//   never          it calls nothing any more
//   order          it calls the AllGather before the AllReduce
//   size           its AllReduce is of 1 KiB
//   crossed        it calls on "other" before it calls on "train"
//   kernel         a kernel of its own that does not end is queued before the AllReduce
//   kernel-waited  the same, and it waits for that kernel before it calls
//   abort          at once, what a watchdog does: it aborts "train" and ends the process
//
// These are no faults. With --together=1 rank 0 reads them, all ranks follow in one and the same
// step, and "release" lets a rank go on:
//
//   run-ahead      all ranks queue such a kernel and the AllReduce behind it
//   kernel-alone   rank 0 runs such a kernel; no rank calls anything meanwhile
//   finalized      rank 0 finalizes "train" after a Broadcast from it; no rank calls anything meanwhile
//
// With --control it has no faults, but is late. The file's one line, written by rename, is "CASE
// RANK MILLISECONDS": the AllReduces of a case are made on a communicator of their own, and RANK
// makes them so much later than the others.
//
// With --load it makes AllReduces of 1 KiB on so many communicators in turn, CALLS a second in all,
// and waits for them 20 times a second: for node_load.py.
//
// With --graph a step is a replay of a CUDA graph of so many AllReduces of 16 KiB on "train"
// (--ahead: so many replays are launched before they are waited for), and the faults are others:
//
//   never   it launches no replay any more
//   kernel  a kernel of its own that does not end is queued before the replay
//   held    a kernel within the graph, behind --hold-at AllReduces, does not end; all ranks have it,
//           and pass it else
//
// With --control besides the line has a fourth number: behind how many AllReduces of each replay
// the rank's GPU is late; -1: its program launches each replay late.
//
// Standard output, a line of JSON each: {"event": "running"} once all calls have been made five
// times, with NCCL's version; "case", with its number, the same for a case; "fault"; "held" when
// the GPU has come to where it is held; "went_on" when the step of the fault has ended; "error"
// with its text, after which the process waits as a program does whose watchdog has not noticed
// yet. It ends itself after four minutes.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/inject_graphs.h"
#include "tests/gpu/nccl_api.h"
#include "tests/gpu/rank.h"
#include "tests/gpu/spinner.h"

namespace nccl_pulse {
namespace {

constexpr unsigned kLifeSeconds = 240;
constexpr int kWarmSteps = 5;
constexpr uint64_t kLargeBytes = 4 << 20;  // NCCL's protocol Simple
constexpr uint64_t kSmallBytes = 1 << 10;  // LL
constexpr uint64_t kMediumBytes = 64 << 10;
constexpr uint64_t kSpinNs = 40'000'000'000;
constexpr std::chrono::milliseconds kPause(2);
constexpr const char* kShared[] = {"run-ahead", "kernel-alone", "finalized"};
enum { kRunAhead = 1, kKernelAlone, kFinalized };  // as in kShared

struct Options : RankFlags {
  bool queued = false;
  int broadcast_root = -1;  // -1: no Broadcast
  bool together = false;
  int load = 0;      // communicators; 0: none
  int rate = 10000;  // calls a second
  std::string control;
  GraphOptions graph;
};

class Job {
 public:
  explicit Job(const Options& options) : options_(options) {}

  [[noreturn]] void Train() {
    Spinner spinner;
    for (int i = 0; i < kWarmSteps; ++i) {
      Step("");
      if (options_.together) Share({});
    }
    int version = 0;
    CheckNccl(g_api.ncclGetVersion(&version), "ncclGetVersion");
    Say("running", ",\"nccl\":" + std::to_string(version));
    std::thread([this, &spinner] { ReadFaults(&spinner); }).detach();
    while (true) {
      if (const int shared =
              options_.together ? static_cast<int>(Share({shared_.exchange(0)})[0]) : 0;
          shared > 0) {
        RunTogether(shared, &spinner);
        Say("went_on");
        if (shared == kFinalized) WaitForEver();
        continue;
      }
      if (!has_fault_.load()) {
        Step("");
        continue;
      }
      Say("fault", ",\"fault\":\"" + fault_ + "\"");
      if (fault_ == "never") WaitForEver();
      if (fault_.rfind("kernel", 0) == 0) spinner.Launch(buffers_.stream(), kSpinNs);
      if (fault_ == "kernel-waited") Synchronize();
      Step(fault_);
      Synchronize();
      Say("went_on");
      WaitForEver();
    }
  }

  [[noreturn]] void BeLate() {
    int number = -1;
    int steps = 0;
    while (true) {
      const Control control = Agree();
      if (control.number != number) steps = 0;
      number = control.number;
      std::this_thread::sleep_for(2 * kPause);
      if (control.rank == options_.rank) {
        std::this_thread::sleep_for(std::chrono::duration<float, std::milli>(control.delay_ms));
      }
      AllReduce(Communicator("case-" + std::to_string(number)), kMediumBytes);
      Synchronize();
      if (++steps == kWarmSteps) Say("case", ",\"case\":" + std::to_string(number));
    }
  }

  [[noreturn]] void Load() {
    using Clock = std::chrono::steady_clock;
    constexpr int kBurstsPerSecond = 20;
    const int burst = std::max(1, options_.rate / kBurstsPerSecond);
    std::vector<NcclComm> comms(options_.load);
    for (int i = 0; i < options_.load; ++i) comms[i] = Communicator("load-" + std::to_string(i));
    Share({});
    int next = 0;
    Clock::time_point begin = Clock::now();
    for (uint64_t bursts = 0;; ++bursts) {
      if (bursts == kWarmSteps) Say("running");
      if (bursts % kBurstsPerSecond == 0 && bursts > 0) {
        // Behind its rate it does not hurry to make up for it, and says how many it made.
        const std::chrono::duration<double> took = Clock::now() - begin;
        Say("rate",
            ",\"calls_per_second\":" + std::to_string(kBurstsPerSecond * burst / took.count()));
        begin = Clock::now();
      }
      const Clock::time_point due = begin + (bursts % kBurstsPerSecond + 1) *
                                                std::chrono::milliseconds(1000) / kBurstsPerSecond;
      for (int i = 0; i < burst; ++i) AllReduce(comms[next++ % comms.size()], kSmallBytes);
      Synchronize();
      std::this_thread::sleep_until(due);
    }
  }

 private:
  struct Control {
    int number = 0;
    int rank = -1;
    float delay_ms = 0;
  };

  void ReadFaults(Spinner* spinner) {
    for (std::string line; std::getline(std::cin, line);) {
      if (line == "release") {
        spinner->End();
      } else if (line == "abort") {
        std::thread(g_api.ncclCommAbort, Communicator("train")).detach();  // may never return
        std::this_thread::sleep_for(50 * kPause);
        _exit(kExitApi);
      } else if (const auto* shared = std::find(std::begin(kShared), std::end(kShared), line);
                 shared != std::end(kShared) && options_.together && options_.rank == 0) {
        shared_.store(static_cast<float>(1 + shared - std::begin(kShared)));
      } else {
        SetFault(line);
      }
    }
  }

  void SetFault(const std::string& line) {
    const auto known = {"never", "order", "size", "crossed", "kernel", "kernel-waited"};
    if (std::find(known.begin(), known.end(), line) == known.end()) {
      Die(kExitUsage, "no fault " + line);
    }
    fault_ = line;
    has_fault_.store(true);
  }

  void RunTogether(int shared, Spinner* spinner) {
    NcclComm train = Communicator("train");
    if (shared == kRunAhead || (shared == kKernelAlone && options_.rank == 0)) {
      spinner->Launch(buffers_.stream(), kSpinNs);
    }
    if (shared == kRunAhead) return Step("");
    if (shared == kFinalized) {
      Broadcast(train, 0);
      Synchronize();
      // NCCL keeps rank 0 in here until the others finalize, too.
      if (options_.rank == 0) CheckNccl(g_api.ncclCommFinalize(train), "ncclCommFinalize");
    }
    while (!spinner->IsEnded()) std::this_thread::sleep_for(kPause);
    if (shared == kFinalized && options_.rank != 0) {
      CheckNccl(g_api.ncclCommFinalize(train), "ncclCommFinalize");
    }
  }

  NcclComm Communicator(const std::string& name) { return communicators_.Get(name); }

  void Synchronize() const { buffers_.Synchronize(); }
  void AllReduce(NcclComm comm, uint64_t bytes) const { buffers_.AllReduce(comm, bytes); }
  void Broadcast(NcclComm comm, int root) const {
    CheckNccl(g_api.ncclBroadcast(buffers_.send(), buffers_.recv(), kSmallBytes / 4, kFloat32, root,
                                  comm, buffers_.stream()),
              "ncclBroadcast");
  }

  void Step(const std::string& fault) {
    NcclComm train = Communicator("train");
    NcclComm other = Communicator("other");
    const auto wait = [this] {
      if (!options_.queued) Synchronize();
    };
    const auto reduce = [&] {
      AllReduce(train, fault == "size" ? kSmallBytes : kLargeBytes);
      wait();
    };
    const auto gather = [&] {
      CheckNccl(g_api.ncclAllGather(buffers_.send(), buffers_.recv(), kSmallBytes / 4, kFloat32,
                                    train, buffers_.stream()),
                "ncclAllGather");
      wait();
    };
    const auto reduce_other = [&] {
      AllReduce(other, kMediumBytes);
      wait();
    };
    if (options_.broadcast_root >= 0) {
      Broadcast(train, options_.broadcast_root);
      wait();
    }
    if (fault == "crossed") reduce_other();
    if (fault == "order") gather();
    reduce();
    if (fault != "order") gather();
    if (fault != "crossed") reduce_other();
    Synchronize();
    std::this_thread::sleep_for(kPause);
  }

  using Words = std::array<float, 3>;

  // Each step begins together.
  Words Share(const Words& mine) { return buffers_.Sum(Communicator("control"), mine); }

  // What rank 0 reads, known to all.
  Control Agree() {
    Words mine{};
    if (options_.rank == 0) {
      std::ifstream file(options_.control);
      if (!(file >> mine[0] >> mine[1] >> mine[2])) Die(kExitUsage, "bad " + options_.control);
    }
    const Words all = Share(mine);
    return {static_cast<int>(all[0]), static_cast<int>(all[1]), all[2]};
  }

  const Options options_;
  const Buffers buffers_{kLargeBytes};
  NamedCommunicators communicators_{options_};
  std::string fault_;  // written before has_fault_
  std::atomic<bool> has_fault_{false};
  std::atomic<float> shared_{0};  // from 1 on, what of kShared comes next
};

[[noreturn]] void RunGraphs(const Options& options) {
  GraphJob job(options, options.graph);
  if (!options.control.empty()) job.BeLate(options.control);
  std::thread([&job] {
    for (std::string line; std::getline(std::cin, line);) {
      if (!job.SetFault(line)) Die(kExitUsage, "no fault " + line);
    }
  }).detach();
  job.Train();
}

int Main(int argc, char** argv) {
  Options options;
  ReadFlags(argc, argv, &options,
            {{"--queued", [&](const std::string& v) { options.queued = v == "1"; }},
             {"--broadcast", SetInt(&options.broadcast_root)},
             {"--together", [&](const std::string& v) { options.together = v == "1"; }},
             {"--load", SetInt(&options.load)},
             {"--rate", SetInt(&options.rate)},
             {"--control", [&](const std::string& v) { options.control = v; }},
             {"--graph", SetInt(&options.graph.calls)},
             {"--hold-at", SetInt(&options.graph.hold_at)},
             {"--ahead", SetInt(&options.graph.ahead)}});
  if (options.rate <= 0) Die(kExitUsage, "--rate is 1 or more");
  g_stays_after_errors = true;
  Begin(options, kLifeSeconds);
  if (options.graph.calls > 0) RunGraphs(options);
  Job job(options);
  if (options.load > 0) job.Load();
  if (options.control.empty()) job.Train();
  job.BeLate();
}

}  // namespace
}  // namespace nccl_pulse

int main(int argc, char** argv) { return nccl_pulse::Main(argc, argv); }
