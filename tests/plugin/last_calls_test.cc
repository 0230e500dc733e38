// The last calls of a communicator, as a reader sees them: what was called, when it was launched,
// and by which launch.
#include "metrics/last_calls.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "metrics/record_writer.h"
#include "metrics/size_class.h"
#include "tests/plugin/older_api.h"
#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

std::vector<LastCallSnapshot> LastCallsOf(const StreamCommunicator& comm) {
  const CommunicatorSnapshot read = comm.Read();
  return read.last_calls == nullptr ? std::vector<LastCallSnapshot>{} : *read.last_calls;
}

TEST_WITH_STREAM(LastCallsTest, EachCallWithItsLaunch) {
  EXPECT_TRUE(LastCallsOf(comm).empty());
  comm.Run(kMs);
  AdvanceClock(7 * kSecond);
  comm.Run(kMs, "AllGather", 1 << 20);
  const std::vector<LastCallSnapshot> calls = LastCallsOf(comm);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].number, 1u);
  EXPECT_EQ(calls[0].op, "AllReduce");
  EXPECT_EQ(calls[0].bytes, 4096u);
  EXPECT_NE(calls[0].datatype, "");
  EXPECT_EQ(calls[0].kind_number, 0u);
  EXPECT_EQ(calls[0].launch, 1u);
  EXPECT_FALSE(calls[0].is_of_group);
  EXPECT_EQ(calls[1].number, 2u);
  EXPECT_EQ(calls[1].collective_number, 2u);
  EXPECT_EQ(calls[1].op, "AllGather");
  EXPECT_EQ(calls[1].launch, 2u);
  EXPECT_NE(calls[0].launch_realtime_ns, 0);
  EXPECT_GE(calls[1].launch_realtime_ns - calls[0].launch_realtime_ns,
            static_cast<int64_t>(7 * kSecond) - 1024);
  EXPECT_LE(calls[1].launch_realtime_ns, comm.Read().last_launch_realtime_ns);
}

TEST_WITH_STREAM(LastCallsTest, CallsOfAGroupHaveItsLaunch) {
  comm.RunGroup(kMs, {{"AllReduce", 1024}, {"AllGather", 2048}, {"Send", 512}});
  comm.Run(kMs);
  const std::vector<LastCallSnapshot> calls = LastCallsOf(comm);
  ASSERT_EQ(calls.size(), 4u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(calls[i].launch, 1u) << i;
    EXPECT_EQ(calls[i].is_of_group, i > 0) << i;
  }
  EXPECT_EQ(calls[2].collective_number, 0u) << "point to point";
  EXPECT_EQ(calls[3].collective_number, 3u);
  EXPECT_EQ(calls[3].launch, 2u);
  EXPECT_FALSE(calls[3].is_of_group);
}

// Within NCCL, or of a kind whose launches are hidden; the next one's launch is not theirs.
TEST_WITH_STREAM(LastCallsTest, ACallThatIsNotLaunched) {
  comm.Run(kMs);
  void* group = comm.StartGroup();
  comm.MakeCall(group, "Broadcast", 4096);
  comm.StopGroup(group);
  EXPECT_EQ(LastCallsOf(comm).back().launch_realtime_ns, 0);
  comm.Run(kMs);
  const std::vector<LastCallSnapshot> calls = LastCallsOf(comm);
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[1].op, "Broadcast");
  EXPECT_EQ(calls[1].launch, 0u);
  EXPECT_EQ(calls[1].launch_realtime_ns, 0);
  EXPECT_EQ(calls[2].launch, 2u);
}

TEST_WITH_STREAM(LastCallsTest, ACapturedCallHasNoLaunch) {
  void* group = comm.StartGroup(true);
  comm.MakeCall(group, "AllReduce", 4096, true);
  comm.StopGroup(group);
  comm.Run(kMs);
  const std::vector<LastCallSnapshot> calls = LastCallsOf(comm);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_TRUE(calls[0].captured);
  EXPECT_EQ(calls[0].launch_realtime_ns, 0);
  EXPECT_FALSE(calls[1].captured);
  EXPECT_EQ(calls[1].launch, 1u);
}

TEST_WITH_STREAM(LastCallsTest, TheRootOfWhatHasOne) {
  const auto call = [&comm](const char* op, int root) {
    void* group = comm.StartGroup();
    comm.MakeCall(group, op, 4096, false, root);
    comm.Launch(group, kMs);
    comm.StopGroup(group);
  };
  for (const int root : {3, 0, 4094, 4095, -1}) call("Broadcast", root);
  call("Reduce", 7);
  call("AllReduce", 0);
  std::vector<int> roots;
  for (const LastCallSnapshot& each : LastCallsOf(comm)) roots.push_back(each.root);
  EXPECT_EQ(roots, (std::vector<int>{3, 0, 4094, -1, -1, 7, -1}));
}

using Peers = std::vector<std::pair<std::string, int>>;
Peers PeersOf(const StreamCommunicator& comm) {
  Peers peers;
  for (const LastCallSnapshot& call : LastCallsOf(comm)) peers.emplace_back(call.op, call.peer);
  return peers;
}

// It comes behind the launch, and of a group in an order of NCCL's own.
void SendAndReceive(int calls_before) {
  RunWithGpu([calls_before](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    for (int i = 0; i < calls_before; ++i) comm.Run(kMs, "Send", 64);
    void* group = comm.StartGroup(false, 2);
    const auto send = comm.MakeCall(group, "Send", 64, false, 5);
    const auto other = comm.MakeCall(group, "Send", 64, false, 6);
    comm.MakeCall(group, "Recv", 64);  // from itself, in place: it is not reported
    const auto receive = comm.MakeCall(group, "Recv", 64, false, 9);
    comm.Launch(group, kMs);
    for (const auto& call : {receive, other}) comm.Report(call);
    comm.Launch(group, kMs);  // the rest
    comm.Report(send);
    comm.Report(send);  // nobody made so many
    comm.StopGroup(group);
    comm.Run(kMs);
    Peers peers = PeersOf(comm);
    peers.erase(peers.begin(), peers.end() - 6);
    EXPECT_EQ(
        peers,
        (Peers{
            {"Send", 1}, {"Send", 6}, {"Send", 5}, {"Recv", 9}, {"Recv", -1}, {"AllReduce", -1}}));
    const auto calls_with = [&](int32_t peer, bool receives) {
      for (const PeerCallsSnapshot& each : comm.Read().peer_calls) {
        if (each.peer == peer && each.receives == receives) return each;
      }
      return PeerCallsSnapshot{};
    };
    EXPECT_EQ(calls_with(1, false).calls, static_cast<uint64_t>(calls_before));
    EXPECT_EQ(calls_with(1, false).totals.back(), uint64_t{64} * calls_before);
    EXPECT_EQ(calls_with(6, false).totals, std::vector<uint64_t>({64}));
    EXPECT_EQ(calls_with(5, false).totals, std::vector<uint64_t>({64, 128}));
    EXPECT_EQ(calls_with(9, true).calls, 1u);
    EXPECT_EQ(calls_with(9, true).datatype, "ncclInt8");
    EXPECT_EQ(comm.Read().peer_calls.size(), 4u);
  });
}

TEST(LastCallsTest, ThePeerOfSendAndRecv) { SendAndReceive(2); }
// Operations get no handle any longer.
TEST(LastCallsTest, ThePeerOfOneOfMany) { SendAndReceive(1100); }

// More calls than the ring has room for.
TEST_WITH_STREAM(LastCallsTest, PeersOfALargeGroup) {
  std::vector<StreamCommunicator::Call> calls;
  void* group = comm.StartGroup(false, 2);
  for (int i = 0; i < 300; ++i) {
    calls.push_back(comm.MakeCall(group, i % 2 == 0 ? "Send" : "Recv", 64, false, i / 2));
  }
  comm.Launch(group, kMs);
  for (int i = 0; i < 256; ++i) comm.Report(calls[i]);
  comm.StopGroup(group);
  const Peers peers = PeersOf(comm);
  ASSERT_EQ(peers.size(), 256u);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(peers[i].second, i / 2) << i;
}

// Reported by another thread, or behind the end of the group: it may be another call's.
TEST_WITH_STREAM(LastCallsTest, APeerOfAnotherGroupIsNotTaken) {
  comm.LaunchElsewhere();
  comm.Run(kMs, "Send");
  StreamCommunicator other(gpu, 2);
  void* group = other.StartGroup();
  const auto late = other.MakeCall(group, "Send", 64);
  other.Launch(group, kMs);
  other.StopGroup(group);
  other.StopGroup(other.StartGroup());
  other.Report(late);
  EXPECT_EQ(PeersOf(comm), (Peers{{"Send", -1}}));
  EXPECT_EQ(PeersOf(other), (Peers{{"Send", -1}}));
}

TEST(LastCallsTest, AsManyAsTheSettingSays) {
  for (const auto& [setting, kept] :
       {std::pair("0", 0u), std::pair("1", 64u), std::pair("200", 256u), std::pair("512", 512u)}) {
    RunWithGpu(
        [kept = kept](FakeCuda& gpu) {
          StreamCommunicator comm(gpu, 1);
          for (int i = 0; i < 600; ++i) comm.Run(kMs);
          EXPECT_EQ(comm.Read().last_calls_kept, kept);
          EXPECT_EQ(LastCallsOf(comm).size(), kept);
          EXPECT_EQ(ReadSnapshot().last_calls_wanted, kept);
        },
        {{"NCCL_PULSE_LAST_CALLS", setting}});
  }
}

// Of finalized communicators the oldest give their rings up; live ones keep theirs.
TEST_IN_CHILD(LastCallsTest, LiveCommunicatorsComeFirst, {"NCCL_PULSE_LAST_CALLS", "512"}) {
  constexpr uint64_t kRoom = 32;
  std::vector<std::unique_ptr<NcclCommunicator>> comms;
  const auto kept = [](uint64_t comm_id) { return Find(ReadSnapshot(), comm_id).last_calls_kept; };
  for (uint64_t id = 1; id <= kRoom + 1; ++id) {
    comms.push_back(std::make_unique<NcclCommunicator>(id));
    EXPECT_EQ(kept(id), id <= kRoom ? 512u : 0u) << id;
  }
  comms[kRoom]->Finalize();  // has none to give
  comms[4]->Finalize();
  NcclCommunicator next(100);
  EXPECT_EQ(kept(100), 512u);
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_TRUE(Find(snapshot, kRoom + 1).finalized) << "stays for its ten minutes";
  EXPECT_TRUE(Find(snapshot, 5).finalized) << "and so does this one";
  EXPECT_EQ(Find(snapshot, 5).last_calls_kept, 0u) << "which gave its ring";
}

TEST_IN_CHILD(LastCallsTest, OperationAndSizeOfTheLastOne) {
  NcclCommunicator communicator(1);
  EXPECT_EQ(Find(ReadSnapshot(), 1).last_call_op, "");
  communicator.Enqueue();
  CommunicatorSnapshot read = Find(ReadSnapshot(), 1);
  EXPECT_EQ(read.last_call_op, "AllReduce");
  EXPECT_EQ(read.last_call_size_class, SizeClassOf(NcclCommunicator::kBytes));
  Start(communicator.context(), CallEvent("Broadcast", uint64_t{1} << 32, "ncclInt8"));
  read = Find(ReadSnapshot(), 1);
  EXPECT_EQ(read.last_call_op, "Broadcast");
  EXPECT_EQ(read.last_call_size_class, kSizeClasses - 1);
  Start(communicator.context(), P2pCallEvent("Recv", 1, "ncclInt8"));
  EXPECT_EQ(Find(ReadSnapshot(), 1).last_call_op, "Recv");
}

// Without events for calls the operations are the calls.
TEST_IN_CHILD(LastCallsTest, ApiV4) {
  OlderCommunicator(9).Enqueue(100);
  const CommunicatorSnapshot read = Find(ReadSnapshot(), 9);
  ASSERT_NE(read.last_calls, nullptr);
  ASSERT_EQ(read.last_calls->size(), 1u);
  EXPECT_EQ(read.last_calls->front().bytes, 400u);
  EXPECT_EQ(read.last_calls->front().launch, 0u);
  EXPECT_NE(read.last_calls->front().launch_realtime_ns, 0) << "about when it was called";
}

// After 2^32 calls the number of collectives goes on by one each.
TEST(LastCallsNumbersTest, EachNumberWrapsAlone) {
  std::string why;
  Segment::Options options;
  options.last_calls = 64;
  options.series_limit = 1000;
  const std::unique_ptr<Segment> segment = Segment::Create(options, &why);
  ASSERT_TRUE(segment != nullptr && segment->PopulateRecord(0)) << why;
  RecordWriter::Identity identity;
  identity.comm_id = 1;
  RecordWriter(*segment, segment->record(0)).Prepare(identity);
  LastCalls calls{};
  calls.Begin(*segment, segment->record(0));
  // So many Sends and two collectives before, which nobody has the time to make.
  const uint64_t before = uint64_t{2} << 32 | (UINT32_MAX - 2);
  std::memcpy(reinterpret_cast<char*>(&calls) + 2 * sizeof(uint64_t), &before, sizeof(before));
  LastCallFields collective{};
  collective.flags = LastCallBits::kCollective;
  LastCallFields send{};
  send.op = kSendName;
  for (int i = 0; i < 8; ++i) calls.Note(i % 2 == 0 ? send : collective, 0);
  uint16_t chunks[kLastCallChunks];
  ASSERT_NE(segment->record(0).last_call_chunks.Read(chunks), 0u);
  // Behind the turn of the chunks: the first entries of the first chunk.
  for (uint32_t i = 0; i < 5; ++i) {
    LastCallEntry::Copy copy;
    const uint64_t numbers = segment->last_calls(chunks[0]).entries[i].Read(&copy);
    EXPECT_EQ(LastCallBits::Number(numbers), i + 1) << i;
    EXPECT_EQ(LastCallBits::Collectives(numbers), 4 + i / 2) << i;
  }
}

}  // namespace
}  // namespace nccl_pulse
