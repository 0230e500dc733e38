// Loads one plugin and makes eager collectives at full speed, some of them in single steps for
// count_instructions.py: traced_collective PLUGIN API-VERSION THREADS COLLECTIVES. With version
// "send", Sends replace collectives (v6), and with "query" a tuner's queries. "counted" is v6 with a
// proven work counter of NCCL. x86-64 Linux only.
//
// The processor's counter is frozen during single steps, so they take no time.
//
// Each thread has a communicator, and makes COLLECTIVES collectives in single steps while the
// others wait. With several threads CLOCK_MONOTONIC is frozen, which the plugin reads with
// NCCL_PULSE_CLOCK=monotonic: no periodic work interferes, however slow the machine is. Standard
// output gets the size of the process' map and the map. Then it gets, for each collective in single
// steps, the number of its steps and the registers before each of them, in the order of `gregs`
// (sys/ucontext.h).
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bench/nccl_calls.h"

namespace {
bool g_clock_stands_still = false;  // set before threads are started
}  // namespace

// Replaces libc's for the whole process, the plugin included.
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  if (g_clock_stands_still && clock == CLOCK_MONOTONIC) {
    *now = {1000000, 0};
    return 0;
  }
  return static_cast<int>(syscall(SYS_clock_gettime, clock, now));
}

namespace nccl_pulse::bench {
namespace {

// Collectives between two in single steps. The plugin thus sees launches in quick succession, and
// does none of the work that is due after a pause (gates, samples).
constexpr int kBetween = 2000;
constexpr size_t kMostSteps = 1 << 16;

constexpr int kRegisters = 23;  // `gregs`
using Step = int64_t[kRegisters];
Step steps[kMostSteps];
uint64_t step_count = 0;

// Runs before each step. A step takes a microsecond, so the plugin's background thread, which runs
// every 20 ms, rarely interferes.
void KeepStep(int /*signal*/, siginfo_t* /*info*/, [[maybe_unused]] void* context) {
#if defined(__x86_64__)
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  static_assert(sizeof(registers) == sizeof(Step));
  if (step_count < kMostSteps) {
    std::copy(std::begin(registers), std::end(registers), steps[step_count]);
  }
#endif
  ++step_count;
}

// The processor's counter when it was frozen.
uint64_t still_counter = 0;

// Handles the fault of reading the frozen counter. It skips the instruction, for which no SIGTRAP
// comes, so it records the step itself.
void ReadStillCounter(int signal, siginfo_t* info, void* context) {
#if defined(__x86_64__)
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  constexpr uint16_t kRdtsc = 0x310f;
  uint16_t code;
  std::memcpy(&code, reinterpret_cast<const void*>(registers[REG_RIP]), sizeof(code));  // NOLINT
  if (code != kRdtsc) abort();
  registers[REG_RIP] += sizeof(code);
  registers[REG_RAX] = static_cast<int64_t>(still_counter & UINT32_MAX);
  registers[REG_RDX] = static_cast<int64_t>(still_counter >> 32);
#endif
  KeepStep(signal, info, context);
}

// Sets the processor's trap flag: SIGTRAP after each instruction.
void StepFromNowOn() {
#if defined(__x86_64__)
  still_counter = __builtin_ia32_rdtsc();
  if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV) != 0) exit(2);
  asm volatile("pushfq\n orq $0x100, (%%rsp)\n popfq" ::: "memory", "cc");
#endif
}
void StepNoLonger() {
#if defined(__x86_64__)
  asm volatile("pushfq\n andq $~0x100, (%%rsp)\n popfq" ::: "memory", "cc");
  prctl(PR_SET_TSC, PR_TSC_ENABLE);
#endif
}

void Write(const void* data, size_t bytes) {
  if (fwrite(data, 1, bytes, stdout) != bytes) exit(2);
}

void WriteMap() {
  std::ifstream file("/proc/self/maps");
  const std::string map{std::istreambuf_iterator<char>(file), {}};
  const uint64_t bytes = map.size();
  Write(&bytes, sizeof(bytes));
  Write(map.data(), bytes);
}

// Queries durations where NcclCalls makes a collective.
class Queries {
 public:
  explicit Queries(const std::string& plugin) : calls_(plugin), query_(plugin) {}

  // Returns once there is an answer.
  void* Init(uint64_t comm_id) {
    comm_id_ = comm_id;
    void* context = calls_.Init(comm_id);
    const auto call = [this, context](uint64_t i) { calls_.EagerCollective(context, i, 24); };
    if (!query_.WaitForAnswer(comm_id, call)) exit(2);
    return context;
  }
  void EagerCollective(void* /*context*/, uint64_t /*sequence*/, uint8_t /*channels*/) {
    query_.Ask(comm_id_);
  }

 private:
  NcclCalls<ApiV5> calls_;
  DurationQuery query_;
  uint64_t comm_id_ = 0;
};

class Sends {
 public:
  explicit Sends(const std::string& plugin) : calls_(plugin) {}
  void* Init(uint64_t comm_id) { return calls_.Init(comm_id); }
  void EagerCollective(void* context, uint64_t /*sequence*/, uint8_t /*channels*/) {
    calls_.EagerSend(context);
  }

 private:
  NcclCalls<ApiV6> calls_;
};

template <typename Calls>
void MakeCollectives(Calls& calls, uint64_t comm_id, int collectives) {
  void* context = calls.Init(comm_id);
  uint64_t sequence = 0;
  for (int i = 0; i < collectives; ++i) {
    for (int j = 0; j < kBetween; ++j) calls.EagerCollective(context, sequence++, 24);
    step_count = 0;
    StepFromNowOn();
    calls.EagerCollective(context, sequence++, 24);
    StepNoLonger();
    if (step_count > kMostSteps) exit(2);
    Write(&step_count, sizeof(step_count));
    Write(steps, step_count * sizeof(Step));
  }
}

template <typename Calls>
int Main(const std::string& plugin, int thread_count, int collectives,
         const char* driver = "bench/libcuda.so.1") {
  OpenDriver(driver);
  g_clock_stands_still = thread_count > 1;
  Calls calls(plugin);
  WriteMap();
  struct sigaction action {};
  action.sa_sigaction = KeepStep;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, nullptr);
  action.sa_sigaction = ReadStillCounter;
  sigaction(SIGSEGV, &action, nullptr);
  std::mutex mutex;
  std::condition_variable changed;
  int turn = 0;
  std::vector<std::thread> threads;
  // No thread runs before all have their stacks. They are thus at equal distances in memory, and the
  // plugin, which finds a thread's entry by its address, has a separate entry for each of eight.
  std::unique_lock<std::mutex> start(mutex);
  for (int i = 0; i < thread_count; ++i) {
    threads.emplace_back([&, i] {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [&] { return turn == i; });
      MakeCollectives(calls, 0x1234 + static_cast<uint64_t>(i), collectives);
      ++turn;
      changed.notify_all();
      // A thread that ends gives its stack, and so its address, to the next one.
      changed.wait(lock, [&] { return turn == thread_count; });
    });
  }
  start.unlock();
  for (std::thread& thread : threads) thread.join();
  fflush(stdout);
  _Exit(0);  // skips the plugin's threads and its shutdown
}

int Run(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::string version = argv[2];
  const int threads = atoi(argv[3]);
  const int collectives = atoi(argv[4]);
  if (version == "v5") return Main<NcclCalls<ApiV5>>(argv[1], threads, collectives);
  if (version == "v6") return Main<NcclCalls<ApiV6>>(argv[1], threads, collectives);
  if (version == "v7") return Main<NcclCalls<ApiV7>>(argv[1], threads, collectives);
  if (version == "counted") {
    return Main<CountedCalls>(argv[1], threads, collectives, CountedCalls::kDriver);
  }
  if (version == "send") return Main<Sends>(argv[1], threads, collectives);
  if (version == "query") return Main<Queries>(argv[1], threads, collectives);
  return 2;
}

}  // namespace
}  // namespace nccl_pulse::bench

int main(int argc, char** argv) { return nccl_pulse::bench::Run(argc, argv); }
