// Makes one operation of NCCL in several ways, one process a rank, for visibility.py.
//
//   visibility_program --rank=R --nranks=N --gpu=G --exchange=FOLDER --operation=NAME
//                      --ways=WAY,WAY [--library-path=FOLDER:FOLDER]
//
// Operations: visibility_operations.h. Each way has a communicator of its own, of that name, and a
// stream of its own:
//
//   eager          called, and launched by the call
//   non-blocking   as eager, on a communicator with config.blocking = 0
//   captured-1     a CUDA graph with one call, which is then replayed
//   captured-65    a CUDA graph with 65 calls: as many as NCCL_PULSE_GRAPHS=auto times
//
// Before that each communicator makes what jobs make: the operation, an AllReduce of 4 bytes, and
// the operation again, several times with pauses. A launch that NCCL reports behind one that it does
// not is how the plugin knows the latter, and in the pauses it proves NCCL's counter.
//
// A line on standard input is a task: "call TIMES": so many calls, or replays, in each way, and
// waits for them; "hang": one more of each, of which it waits for none; "wait": for those.
//
// Standard output, a line of JSON each: {"event": "ready"} with NCCL's version; "called", "hanging"
// and "waited" after a task; "error" with its way and text, after which the process waits to be
// ended. It ends itself after two minutes.
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <iostream>
#include <sstream>
#include <string>

#include "tests/gpu/nccl_api.h"
#include "tests/gpu/rank.h"
#include "tests/gpu/visibility_operations.h"

namespace nccl_pulse {
namespace {

constexpr unsigned kLifeSeconds = 120;
constexpr int kManyCalls = 65;
constexpr int kWarmUps = 5;
constexpr useconds_t kWarmUpPauseUs = 150000;

struct Options : RankFlags {
  std::string operation, ways;
};

class Way {
 public:
  Way(const Options& options, const Operation& operation, const std::string& name, int number)
      : operation_(operation),
        name_(name),
        captured_calls_(name == "captured-1"    ? 1
                        : name == "captured-65" ? kManyCalls
                                                : 0) {
    g_way = name;
    const NcclUniqueId id = ExchangeId(options, std::to_string(number));
    NcclConfig config;
    config.comm_name = name_.c_str();
    config.blocking = name == "non-blocking" ? 0 : 1;
    config.cta_policy = operation.cta_policy;
    CheckNccl(g_api.ncclCommInitRankConfig(&comm_, options.nranks, id, options.rank, &config),
              "ncclCommInitRankConfig");
    CheckNccl(Finish(g_api, comm_, kNcclInProgress), "init");
    CheckCuda(g_api.cudaStreamCreateWithFlags(&stream_, kStreamNonBlocking), "cudaStreamCreate");
    arguments_ = {comm_, stream_, options.rank, options.nranks, nullptr, nullptr, nullptr};
    const auto allocate = [&](void** memory) {
      CheckCuda(g_api.cudaMalloc(memory, BufferBytes(options.nranks)), "cudaMalloc");
    };
    if (operation.needs_windows) {
      CheckNccl(MakeWindows(g_api, &arguments_), "windows");
    } else {
      allocate(&arguments_.send);
      allocate(&arguments_.recv);
    }
  }

  // What the first call sets up.
  void WarmUp() {
    g_way = name_;
    void* four_bytes = nullptr;
    CheckCuda(g_api.cudaMalloc(&four_bytes, 4), "cudaMalloc");
    for (int i = 0; i < kWarmUps; ++i) {
      Call();
      CheckNccl(Finish(g_api, comm_, ReduceFourBytes(g_api, arguments_, four_bytes)),
                "ncclAllReduce");
      Call();
      Wait();
      usleep(kWarmUpPauseUs);
    }
    if (captured_calls_ > 0) Capture();
  }
  void Make() {
    g_way = name_;
    if (captured_calls_ == 0) return Call();
    CheckCuda(g_api.cudaGraphLaunch(exec_, stream_), "launch graph");
  }
  void Wait() {
    g_way = name_;
    CheckCuda(g_api.cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

 private:
  void Call() {
    CheckNccl(Finish(g_api, comm_, operation_.call(g_api, arguments_)), operation_.name);
  }
  void Capture() {
    CudaGraph graph = nullptr;
    CheckCuda(g_api.cudaStreamBeginCapture(stream_, kCaptureModeThreadLocal), "begin capture");
    for (int i = 0; i < captured_calls_; ++i) Call();
    CheckCuda(g_api.cudaStreamEndCapture(stream_, &graph), "end capture");
    CheckCuda(g_api.cudaGraphInstantiateWithFlags(&exec_, graph, 0), "instantiate graph");
  }

  const Operation& operation_;
  const std::string name_;
  const int captured_calls_;
  NcclComm comm_ = nullptr;
  CudaStream stream_ = nullptr;
  CudaGraphExec exec_ = nullptr;
  CallArguments arguments_{};
};

void Run(std::deque<Way>* ways) {
  for (std::string task; std::getline(std::cin, task);) {
    if (task.rfind("call ", 0) == 0) {
      const int times = std::atoi(task.c_str() + 5);
      for (Way& way : *ways) {
        for (int i = 0; i < times; ++i) way.Make();
        way.Wait();
      }
      Say("called");
    } else if (task == "hang") {
      for (Way& way : *ways) way.Make();
      Say("hanging");
    } else if (task == "wait") {
      for (Way& way : *ways) way.Wait();
      Say("waited");
    } else {
      Die(kExitUsage, "no task " + task);
    }
  }
}

int Main(int argc, char** argv) {
  Options options;
  ReadFlags(argc, argv, &options,
            {{"--operation", [&](const std::string& v) { options.operation = v; }},
             {"--ways", [&](const std::string& v) { options.ways = v; }}});
  const Operation* operation = FindOperation(options.operation);
  if (operation == nullptr || options.ways.empty()) {
    Die(kExitUsage, "--operation=NAME and --ways=A,B are needed");
  }
  g_stays_after_errors = true;
  Say("loaded", ",\"nccl\":" + std::to_string(Begin(options, kLifeSeconds)));
  std::deque<Way> ways;
  std::istringstream names(options.ways);
  for (std::string name; std::getline(names, name, ',');) {
    ways.emplace_back(options, *operation, name, static_cast<int>(ways.size()));
    ways.back().WarmUp();
  }
  Say("ready");
  Run(&ways);
  _exit(0);  // what hangs would keep a destroy waiting
}

}  // namespace
}  // namespace nccl_pulse

int main(int argc, char** argv) { return nccl_pulse::Main(argc, argv); }
