// A job whose NCCL counts finished work in a block of memory, as its kernels do.
#ifndef TESTS_PLUGIN_WORK_JOB_H_
#define TESTS_PLUGIN_WORK_JOB_H_

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "tests/plugin/stream_job.h"

namespace nccl_pulse {

inline constexpr size_t kNewerWord = 360;  // of a channel, from 2.29 on
inline constexpr size_t kOlderWord = 352;

// Until "pulse-work" has made a whole round, if there is one.
inline void WaitForReading() {
  for (int i = 0; i < 2; ++i) {
    const uint64_t before = ReadSnapshot().counters_read_ns;
    if (before == 0) return;
    AdvanceClock(1);
    EXPECT_TRUE(WaitUntil([&] { return ReadSnapshot().counters_read_ns != before; }));
  }
}

// NCCL's block of channels (plugin/cuda/work_proof.h).
class Block {
 public:
  explicit Block(FakeCuda& gpu, bool can_map = true)
      : gpu_(gpu), memory_(gpu.AllocateMemory(can_map)) {
    SetHead(0, 2);
    Set(56, reinterpret_cast<uint64_t>(memory_) + 96);
  }
  void SetHead(int32_t rank, int32_t nranks) {
    const int32_t head[] = {rank, nranks, 0, 1};
    uint64_t words[2];
    std::memcpy(words, head, sizeof(head));
    Set(0, words[0]);
    Set(8, words[1]);
  }
  void UseWord(size_t word) { word_ = word; }
  // A collective of so many channels ends, or from that channel on.
  void Finish(int channels = 2, int64_t items = 1, int from = 0) {
    for (int channel = from; channel < channels; ++channel) {
      uint64_t value;
      const size_t at = 96 + 368 * static_cast<size_t>(channel) + word_;
      std::memcpy(&value, memory_ + at, sizeof(value));
      Set(at, value + static_cast<uint64_t>(items));
    }
  }
  // Something else that NCCL keeps of each channel, as its place in a tree: a depth and a rank, or -1.
  // The sum over the channels is `of_two` by chance.
  void PlaceInTrees(uint64_t of_two) {
    Set(96 + 32, (uint64_t{0xffffffff} << 32) + of_two - 1);
    Set(96 + 368 + 32, (uint64_t{1} << 32) + 1);
  }
  void Free() { gpu_.FreeMemory(memory_); }
  char* memory() { return memory_; }

 private:
  // Atomic: "pulse-work" copies the words meanwhile (FakeCuda).
  void Set(size_t at, uint64_t value) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(memory_ + at), value, __ATOMIC_RELAXED);
  }

  FakeCuda& gpu_;
  char* memory_;
  size_t word_ = kOlderWord;
};

// NCCL's communicator, as far as it matters where things are.
struct NcclComm {
  char before[9000] = {};
  char* other = nullptr;  // memory that is something else
  char* block = nullptr;
  char between[6600] = {};
  void* context = nullptr;
};

// A job of one communicator whose launches a GPU ends.
class Job {
 public:
  // Null: in a context of its own.
  explicit Job(FakeCuda& gpu, bool can_map = true, FakeCuda::Context context = nullptr,
               uint64_t comm_id = 1, int api_version = 5)
      : gpu_(gpu), block_(gpu, can_map), nccl_(std::make_unique<NcclComm>()) {
    nccl_->other = gpu.AllocateMemory();
    nccl_->block = block_.memory();
    if (context == nullptr) context = gpu.CreateContext(0);
    comm_ = std::make_unique<StreamCommunicator>(gpu, comm_id, context, 1, &nccl_->context,
                                                 api_version);
  }
  Block& block() { return block_; }
  NcclComm& nccl() { return *nccl_; }
  StreamCommunicator& comm() { return *comm_; }
  // A collective that ends at once; the counter moves as it should, or by so much more.
  void Run(int64_t more = 0) {
    void* group = comm_->StartGroup();
    const StreamCommunicator::Call call = comm_->MakeCall(group, "AllReduce", 4096);
    if (more != 0) block_.Finish(1, more);
    Launch(group, {call}, 1);
    comm_->StopGroup(group);
    See();
  }
  // A launch of so many items on each of two channels. Its event is seen after that time.
  void Launch(void* group, const std::vector<StreamCommunicator::Call>& calls, int64_t items,
              uint64_t duration_ns = 0) {
    void* launch = comm_->StartLaunch(group);
    // A kernel stores the counter, and then its event is seen.
    block_.Finish(2, items);
    gpu_.Launch(comm_->stream(), duration_ns);
    comm_->StopLaunch(launch);
    for (const StreamCommunicator::Call& call : calls) comm_->Report(call);
  }
  // Until both background threads have looked as often as it takes.
  void See() {
    gpu_.Advance(kMs);
    for (int i = 0; i < 3; ++i) {
      AdvanceClock(200 * kMs);
      WaitForPoll();
      WaitForReading();
    }
  }
  void SeeFor(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      AdvanceClock(kSecond);
      See();
    }
  }
  void Prove() {
    for (int i = 0; i < 3; ++i) Run();
    EXPECT_EQ(work().state, WorkState::kProven) << WorkRefutalName(work().refutal);
  }
  void Capture(int calls_of_launch = 1) {
    gpu_.BeginCapture(comm_->stream());
    void* group = comm_->StartGroup(true, calls_of_launch == 1 ? 1 : 2);
    for (int i = 0; i < calls_of_launch; ++i) {
      comm_->Report(comm_->MakeCall(group, "AllReduce", 4096, true));
    }
    comm_->Launch(group, 0);
    comm_->StopGroup(group);
    gpu_.EndCapture(comm_->stream());
  }
  WorkSnapshot work() const { return comm_->Read().work; }
  void ExpectRefuted(WorkRefutal refutal) {
    EXPECT_EQ(work().state, WorkState::kRefuted);
    EXPECT_STREQ(WorkRefutalName(work().refutal), WorkRefutalName(refutal));
    // What was mapped and retained is given back.
    EXPECT_EQ(gpu_.MemoryHeld(), 0u);
    const uint64_t copies = gpu_.Calls("cuMemcpyDtoHAsync_v2");
    Run();
    EXPECT_EQ(gpu_.Calls("cuMemcpyDtoHAsync_v2"), copies);
    EXPECT_TRUE(comm_->Read().has_heartbeat);  // events go on
  }

 private:
  FakeCuda& gpu_;
  Block block_;
  std::unique_ptr<NcclComm> nccl_;
  std::unique_ptr<StreamCommunicator> comm_;
};

inline void RunJob(const std::function<void(FakeCuda&, Job&)>& scenario,
                   const Environment& settings = {}, int api_version = 5) {
  RunWithGpu(
      [&](FakeCuda& gpu) {
        {
          Job job(gpu, true, nullptr, 1, api_version);
          // "pulse-work" is there: WaitForReading does not wait for its start.
          AdvanceClock(1);
          EXPECT_TRUE(WaitUntil([] { return ReadSnapshot().counters_read_ns != 0; }));
          scenario(gpu, job);
        }
        EXPECT_EQ(gpu.WrongCopies(), 0u);
      },
      settings);
}

// A test whose body is such a scenario, with `gpu` and `job`. Behind the names: as in TEST_IN_CHILD.
#define TEST_WITH_JOB(suite, name, ...)                                             \
  static void suite##name##WithJob(FakeCuda& gpu, Job& job);                        \
  TEST(suite, name) { ::nccl_pulse::RunJob(&suite##name##WithJob, {__VA_ARGS__}); } \
  static void suite##name##WithJob([[maybe_unused]] FakeCuda& gpu, [[maybe_unused]] Job& job)

// The counter is proven, both threads have seen that, and time stands nearly still: every launch is in
// a hurry.
inline void ProveInAHurry(Job& job) {
  job.Prove();
  job.See();
  SlowClock();
}

// Launches until 100 have no event behind them; the counter counts so many. Looks of the background
// thread bring some of them gates. False: nearly all have an event.
inline bool Hurry(FakeCuda& gpu, Job& job, int counted = INT32_MAX) {
  uint64_t launches = 0;
  const uint64_t records = gpu.Calls("cuEventRecord");
  while (launches < 20000 && launches < gpu.Calls("cuEventRecord") - records + 100) {
    job.comm().Run(0);
    if (counted-- > 0) job.block().Finish();
    ++launches;
  }
  return launches < 20000;
}

}  // namespace nccl_pulse

#endif  // TESTS_PLUGIN_WORK_JOB_H_
