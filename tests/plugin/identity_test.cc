// Who a communicator is: what init is told, however odd.
#include <gtest/gtest.h>
#include <unistd.h>

#include "plugin/abi/profiler_v4.h"
#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

TEST_IN_CHILD(IdentityTest, NamesAreCopiedAndMadeSafe) {
  std::string passing = "freed after init";
  NcclCommunicator copied(1, 0, 2, passing.c_str());
  passing.assign(passing.size(), 'X');
  NcclCommunicator unnamed(2, 0, 2, nullptr);
  NcclCommunicator empty(3, 0, 2, "");
  const std::string long_name(100000, 'n');
  NcclCommunicator long_named(4, 0, 2, long_name.c_str());
  NcclCommunicator invalid(5, 0, 2, "a\xff\xfe\xc3(\xed\xa0\x80\n\"\\b");
  NcclCommunicator utf8(6, 0, 2, "Kommunikator \xc3\xa4\xe2\x82\xac\xf0\x9f\x9a\x80");
  // Cut in the middle of a character.
  std::string cut;
  for (int i = 0; i < 100; ++i) cut += "\xe2\x82\xac";
  NcclCommunicator cut_off(7, 0, 2, cut.c_str());

  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(Find(snapshot, 1).name, "freed after init");
  EXPECT_EQ(Find(snapshot, 2).name, "");
  EXPECT_EQ(Find(snapshot, 3).name, "");
  EXPECT_EQ(Find(snapshot, 4).name, std::string(127, 'n'));
  EXPECT_EQ(Find(snapshot, 5).name, std::string("a\?\?\?(\?\?\?\?\"\\b"));
  EXPECT_EQ(Find(snapshot, 6).name, "Kommunikator \xc3\xa4\xe2\x82\xac\xf0\x9f\x9a\x80");
  EXPECT_EQ(Find(snapshot, 7).name.substr(0, 126), cut.substr(0, 126));
  EXPECT_LE(Find(snapshot, 7).name.size(), 127u);
}

TEST_IN_CHILD(IdentityTest, RankIsTheOneOfInit) {
  NcclCommunicator comm(1, 5, 8);
  Descriptor event = CollEvent(nullptr, 0, 1);
  event.rank = 0;  // NCCL up to 2.31 passes 0 with some events
  Start(comm.context(), event);
  EXPECT_EQ(Find(ReadSnapshot(), 1).rank, 5);
  EXPECT_EQ(Find(ReadSnapshot(), 1).nranks, 8);
}

TEST_IN_CHILD(IdentityTest, NonsenseNumbers) {
  NcclCommunicator comm(0, INT32_MIN, INT32_MIN);
  NcclCommunicator other(UINT64_MAX, INT32_MAX, INT32_MAX);
  comm.RunWithProxy();
  other.RunWithProxy();
  comm.Finalize();
  other.Finalize();
  EXPECT_EQ(Timed(Find(ReadSnapshot(), 0), LatencyKind::kCompletionProxy), 1u);
  EXPECT_EQ(Timed(Find(ReadSnapshot(), UINT64_MAX), LatencyKind::kCompletionProxy), 1u);
}

TEST_IN_CHILD(IdentityTest, InitWithoutPlaceForItsResults) {
  const auto& profiler = ProfilerOf<abi::v5::Profiler>(5);
  int mask = 0;
  void* context = nullptr;
  EXPECT_EQ(profiler.init(nullptr, 1, &mask, "a", 1, 2, 0, Logger), abi::kSuccess);
  EXPECT_EQ(profiler.init(&context, 2, nullptr, "b", 1, 2, 0, nullptr), abi::kSuccess);
  EXPECT_NE(context, nullptr);
  EXPECT_EQ(ReadSnapshot().communicators.size(), 2u);
}

TEST_WITH_COMM(IdentityTest, Launcher, {"RANK", "12"}, {"LOCAL_RANK", "4"},
               {"SLURM_JOB_ID", "4711"}) {
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(snapshot.global_rank, "12");
  EXPECT_EQ(snapshot.local_rank, "4");
  EXPECT_EQ(snapshot.job_id, "4711");
  EXPECT_FALSE(snapshot.hostname.empty());
}

// In a pod: the host's own name is the pod's there.
TEST(IdentityTest, TheNodeIsCalledWhatTheSettingSays) {
  const std::string longest(253, 'n');
  for (const std::string& name : {std::string("gpu-node_17.example"), longest}) {
    RunInChild({{"NCCL_PULSE_NODE_NAME", name}}, [&name] {
      NcclCommunicator comm(1);
      EXPECT_EQ(ReadSnapshot().hostname, name);
    });
  }
  RunInChild({{"NCCL_PULSE_NODE_NAME", longest + "n"}}, [] {
    NcclCommunicator comm(1);
    char own[256] = {};
    ASSERT_EQ(gethostname(own, sizeof(own) - 1), 0);
    EXPECT_EQ(ReadSnapshot().hostname, own);
  });
}

// torchrun in a Slurm task: the task's number is not the rank's.
TEST_WITH_COMM(IdentityTest, TheInnermostLauncherKnowsBest, {"RANK", "12"}, {"SLURM_PROCID", "1"},
               {"LOCAL_RANK", "4"}, {"SLURM_LOCALID", "0"}) {
  EXPECT_EQ(ReadSnapshot().global_rank, "12");
  EXPECT_EQ(ReadSnapshot().local_rank, "4");
}

// mpirun in a Slurm allocation.
TEST_WITH_COMM(IdentityTest, OtherLaunchers, {"RANK", ""}, {"LOCAL_RANK", ""},
               {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"OMPI_COMM_WORLD_RANK", "7"},
               {"OMPI_COMM_WORLD_LOCAL_RANK", "3"}, {"TORCHELASTIC_RUN_ID", "run \xff"}) {
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(snapshot.global_rank, "7");
  EXPECT_EQ(snapshot.local_rank, "3");
  EXPECT_EQ(snapshot.job_id, "run ?");
}

// All jobs that torchrun starts without --rdzv-id would be one.
TEST(IdentityTest, APlaceholderIsNoJobId) {
  for (const char* placeholder : {"none", "None", "", "default"}) {
    RunInChild({{"TORCHELASTIC_RUN_ID", placeholder}, {"PBS_JOBID", "17.pbs"}}, [] {
      NcclCommunicator comm(1);
      EXPECT_EQ(ReadSnapshot().job_id, "17.pbs");
    });
    RunInChild({{"TORCHELASTIC_RUN_ID", placeholder}}, [] {
      NcclCommunicator comm(1);
      EXPECT_EQ(ReadSnapshot().job_id, "");
    });
  }
}

}  // namespace
}  // namespace nccl_pulse
