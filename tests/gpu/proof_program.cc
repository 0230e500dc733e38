// NCCL work whose timing is known, one process a rank, for what prove.py proves.
//
//   proof_program --rank=R --nranks=N --gpu=G --exchange=FOLDER --phases=A,B,...
//                 [--library-path=FOLDER:FOLDER] [--sizes=64,512,...] [--delays-ms=0,1,...]
//                 [--repeats=N] [--pause-us=N] [--seconds=S]
//
// As nccl_program: after each phase one line of JSON, then it waits for a line on standard input.
// The calls of each size or delay have a communicator of their own, so that a page tells them apart
// whatever their size class. Phases:
//
//   warm       makes the communicators of the phases that follow, and five calls on each
//   sizes      for each size --repeats AllReduces, one at a time. Before each comes an AllReduce on
//              the communicator "align", so that all ranks' GPUs begin together and launching takes
//              no part in what is measured.
//   loop       for each size AllReduces without a pause; says what one took by the host's clock
//   straggler  for each delay --repeats AllReduces of 64 KiB that the last rank calls so much later
//   coverage   AllReduce, AllGather and Broadcast in all sizes for --seconds, on "coverage"; before
//              that half as long on "before", so that the rate is steady
//   capture    --repeats graphs, each captured in global mode (the strictest) while a collective is
//              in flight on another communicator, which the last rank joins only after its own
//              capture: what the plugin's thread asks of the driver meanwhile must not end the
//              capture. Each graph is replayed five times with new values and its results are
//              compared.
//   hang       the last rank never calls; what the others have called never ends
//
// It ends itself after five minutes. Exit status as nccl_program.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/nccl_api.h"
#include "tests/gpu/rank.h"

namespace nccl_pulse {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr unsigned kLifeSeconds = 900;  // of a rank that nobody ends: longer than a test may take
constexpr int kWarmCalls = 5;
constexpr uint64_t kAlignBytes = 1 << 20;  // takes the GPU longer than the next launch the host
constexpr uint64_t kStragglerBytes = 64 << 10;
constexpr int64_t kBeforeCaptureUs = 50000;
constexpr int64_t kCaptureUs = 100000;  // the plugin's thread looks every 20 ms meanwhile

void SleepMicroseconds(int64_t microseconds) {
  if (microseconds > 0) std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

double SecondsSince(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

struct Options : RankFlags {
  std::vector<std::string> phases;
  std::vector<uint64_t> sizes = {64, 512, 4096, 32768, 262144, 2097152, 16777216};
  std::vector<uint64_t> delays_ms = {0, 1, 5, 20};
  int repeats = 100;
  int pause_us = 3000;
  double seconds = 5;
};

class Program {
 public:
  explicit Program(const Options& options) : options_(options) {}

  // False: there is no such phase. What it adds to its report is in `report`.
  bool Run(const std::string& phase, std::ostringstream* report) {
    if (phase == "warm") {
      Warm();
    } else if (phase == "sizes") {
      for (const uint64_t size : options_.sizes) Repeat(Communicator(Sized(size)), size, 0);
    } else if (phase == "loop") {
      Loop(report);
    } else if (phase == "straggler") {
      for (const uint64_t delay_ms : options_.delays_ms) {
        Repeat(Communicator(Delayed(delay_ms)), kStragglerBytes, delay_ms);
      }
    } else if (phase == "coverage") {
      Coverage(report);
    } else if (phase == "capture") {
      Capture(report);
    } else if (phase == "hang") {
      Hang();
    } else {
      return false;
    }
    return true;
  }

 private:
  bool Has(const char* phase) const {
    return std::find(options_.phases.begin(), options_.phases.end(), phase) !=
           options_.phases.end();
  }
  bool IsLast() const { return options_.rank == options_.nranks - 1; }
  static std::string Sized(uint64_t size) { return "size-" + std::to_string(size); }
  static std::string Delayed(uint64_t delay_ms) { return "delay-" + std::to_string(delay_ms); }

  NcclComm Communicator(const std::string& name) { return communicators_.Get(name); }

  // An AllGather receives its size from each rank; only coverage makes any.
  uint64_t BufferBytes() const {
    const uint64_t bytes =
        std::max(kAlignBytes, *std::max_element(options_.sizes.begin(), options_.sizes.end()));
    return Has("coverage") ? bytes * static_cast<uint64_t>(options_.nranks) : bytes;
  }
  void Synchronize() const { buffers_.Synchronize(); }
  void AllReduce(NcclComm comm, uint64_t bytes) const { buffers_.AllReduce(comm, bytes); }

  void Warm() {
    std::vector<std::pair<std::string, uint64_t>> wanted = {{"align", kAlignBytes}};
    if (Has("sizes") || Has("loop")) {
      for (const uint64_t size : options_.sizes) wanted.emplace_back(Sized(size), size);
    }
    if (Has("straggler")) {
      for (const uint64_t delay : options_.delays_ms) {
        wanted.emplace_back(Delayed(delay), kStragglerBytes);
      }
    }
    if (Has("coverage")) {
      wanted.emplace_back("before", 64);
      wanted.emplace_back("coverage", 64);
    }
    if (Has("capture")) {
      wanted.emplace_back("captured", kStragglerBytes);
      wanted.emplace_back("in-flight", kStragglerBytes);
    }
    if (Has("hang")) wanted.emplace_back("hang", kStragglerBytes);
    for (const auto& [name, bytes] : wanted) {
      NcclComm comm = Communicator(name);
      for (int i = 0; i < kWarmCalls; ++i) AllReduce(comm, bytes);
      Synchronize();
    }
  }

  void Repeat(NcclComm comm, uint64_t bytes, uint64_t delay_ms) {
    NcclComm align = Communicator("align");
    const bool straggles = Has("straggler");
    for (int i = 0; i < options_.repeats; ++i) {
      SleepMicroseconds(options_.pause_us);
      AllReduce(align, kAlignBytes);
      if (straggles) Synchronize();
      if (straggles && IsLast()) SleepMicroseconds(static_cast<int64_t>(delay_ms) * 1000);
      AllReduce(comm, bytes);
      Synchronize();
    }
  }

  void Loop(std::ostringstream* report) {
    *report << ",\"loop_us\":{";
    const char* separator = "";
    for (const uint64_t size : options_.sizes) {
      NcclComm comm = Communicator(Sized(size));
      AllReduce(Communicator("align"), kAlignBytes);
      Synchronize();
      const auto begin = SteadyClock::now();
      for (int i = 0; i < options_.repeats; ++i) AllReduce(comm, size);
      Synchronize();
      *report << separator << "\"" << size << "\":" << SecondsSince(begin) * 1e6 / options_.repeats;
      separator = ",";
    }
    *report << "}";
  }

  // Rank 0's word, known to all.
  bool Agree(bool word) {
    const std::array<float, 1> mine = {options_.rank == 0 && word ? 1.0F : 0.0F};
    return buffers_.Sum(Communicator("align"), mine)[0] > 0.5F;
  }

  uint64_t CallFor(NcclComm comm, double seconds) {
    const auto begin = SteadyClock::now();
    uint64_t calls = 0;
    do {
      for (const uint64_t size : options_.sizes) {
        AllReduce(comm, size);
        CheckNccl(g_api.ncclAllGather(buffers_.send(), buffers_.recv(), size / 4, kFloat32, comm,
                                      buffers_.stream()),
                  "ncclAllGather");
        CheckNccl(g_api.ncclBroadcast(buffers_.send(), buffers_.recv(), size / 4, kFloat32, 0, comm,
                                      buffers_.stream()),
                  "ncclBroadcast");
        calls += 3;
      }
    } while (Agree(SecondsSince(begin) < seconds));
    return calls;
  }

  void Coverage(std::ostringstream* report) {
    CallFor(Communicator("before"), options_.seconds / 2);
    const uint64_t calls = CallFor(Communicator("coverage"), options_.seconds);
    *report << ",\"calls\":" << calls + kWarmCalls;
  }

  void Capture(std::ostringstream* report) {
    CudaStream other = nullptr;
    CheckCuda(g_api.cudaStreamCreateWithFlags(&other, kStreamNonBlocking), "cudaStreamCreate");
    int invalidated = 0;
    int right = 0;
    for (int i = 0; i < options_.repeats; ++i) {
      const auto join = [this, other] {
        CheckCuda(g_api.cudaSetDevice(options_.gpu), "cudaSetDevice");
        void* buffer = static_cast<char*>(buffers_.recv()) + kAlignBytes / 2;
        CheckNccl(g_api.ncclAllReduce(buffer, buffer, kStragglerBytes / 4, kFloat32, kSum,
                                      Communicator("in-flight"), other),
                  "ncclAllReduce");
      };
      // On a thread: the call itself may wait for the last rank. By the time of the capture it has
      // either returned or waits.
      std::thread waiting;
      if (!IsLast()) waiting = std::thread(join);
      SleepMicroseconds(kBeforeCaptureUs);
      CudaGraph graph = nullptr;
      const bool captured = CaptureOne(&graph);
      if (IsLast()) join();
      if (waiting.joinable()) waiting.join();
      CheckCuda(g_api.cudaStreamSynchronize(other), "cudaStreamSynchronize");
      invalidated += captured ? 0 : 1;
      if (captured && ReplayIsRight(graph, i)) ++right;
    }
    *report << ",\"captures\":" << options_.repeats << ",\"invalidated\":" << invalidated
            << ",\"right\":" << right;
  }

  bool CaptureOne(CudaGraph* graph) {
    CheckCuda(g_api.cudaStreamBeginCapture(buffers_.stream(), kCaptureModeGlobal), "begin capture");
    const NcclResult result =
        g_api.ncclAllReduce(buffers_.send(), buffers_.recv(), kStragglerBytes / 4, kFloat32, kSum,
                            Communicator("captured"), buffers_.stream());
    SleepMicroseconds(kCaptureUs);
    return g_api.cudaStreamEndCapture(buffers_.stream(), graph) == 0 && result == kNcclSuccess;
  }

  bool ReplayIsRight(CudaGraph graph, int round) {
    CudaGraphExec exec = nullptr;
    CheckCuda(g_api.cudaGraphInstantiateWithFlags(&exec, graph, 0), "instantiate graph");
    const int n = options_.nranks;
    bool right = true;
    for (int replay = 0; replay < 5; ++replay) {
      const std::vector<float> input(kStragglerBytes / 4,
                                     static_cast<float>((options_.rank + 1) * (round + replay)));
      std::vector<float> output(input.size(), -1);
      buffers_.Copy(buffers_.send(), input.data(), kStragglerBytes);
      CheckCuda(g_api.cudaGraphLaunch(exec, buffers_.stream()), "launch graph");
      Synchronize();
      buffers_.Copy(output.data(), buffers_.recv(), kStragglerBytes);
      Synchronize();
      const auto sum = static_cast<float>(n * (n + 1) / 2 * (round + replay));
      right = right && std::all_of(output.begin(), output.end(), [&](float v) { return v == sum; });
    }
    CheckCuda(g_api.cudaGraphExecDestroy(exec), "destroy graph");
    CheckCuda(g_api.cudaGraphDestroy(graph), "destroy graph");
    return right;
  }

  void Hang() {
    if (IsLast()) return;
    // On a thread: the call itself may wait for the other ranks.
    std::thread([this] {
      CheckCuda(g_api.cudaSetDevice(options_.gpu), "cudaSetDevice");
      AllReduce(Communicator("hang"), kStragglerBytes);
    }).detach();
    SleepMicroseconds(300000);
  }

  const Options options_;
  const Buffers buffers_{BufferBytes()};
  NamedCommunicators communicators_{options_};
};

std::vector<uint64_t> Numbers(const std::string& text) {
  std::vector<uint64_t> numbers;
  for (const std::string& part : Listed(text)) {
    numbers.push_back(std::strtoull(part.c_str(), nullptr, 10));
  }
  return numbers;
}

int Main(int argc, char** argv) {
  Options options;
  ReadFlags(argc, argv, &options,
            {{"--phases", [&](const std::string& v) { options.phases = Listed(v); }},
             {"--sizes", [&](const std::string& v) { options.sizes = Numbers(v); }},
             {"--delays-ms", [&](const std::string& v) { options.delays_ms = Numbers(v); }},
             {"--repeats", SetInt(&options.repeats)},
             {"--pause-us", SetInt(&options.pause_us)},
             {"--seconds", [&](const std::string& v) { options.seconds = std::atof(v.c_str()); }}});
  if (options.phases.empty() || options.sizes.empty() || options.repeats <= 0) {
    Die(kExitUsage, "phases, sizes and repeats are needed");
  }
  const int version = Begin(options, kLifeSeconds);
  Program program(options);
  RunPhases(options.phases, [&](const std::string& phase) {
    std::ostringstream report;
    if (!program.Run(phase, &report)) return false;
    std::ostringstream line;
    line << "{\"phase\":\"" << phase << "\",\"rank\":" << options.rank << ",\"pid\":" << getpid()
         << ",\"nccl\":" << version << report.str() << "}\n";
    std::cout << line.str() << std::flush;
    return true;
  });
  std::cout.flush();
  _exit(0);  // communicators are left as they are: what they measured has been read
}

}  // namespace
}  // namespace nccl_pulse

int main(int argc, char** argv) { return nccl_pulse::Main(argc, argv); }
