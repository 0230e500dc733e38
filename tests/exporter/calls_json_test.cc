#include "exporter/exposition/json/calls_json.h"

#include <memory>

#include "exporter/diagnosis/testing/simulated_job.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kExampleComm = 0x00ab12cd34ef5678;

LastCallSnapshot CallOf(uint64_t number, uint64_t launch, bool is_of_group = false) {
  LastCallSnapshot call;
  call.number = call.collective_number = number;
  call.op = "AllReduce";
  call.datatype = "ncclFloat32";
  call.bytes = 4096;
  call.is_of_group = is_of_group;
  call.launch = launch;
  call.launch_realtime_ns = launch == 0 ? 0 : kStart + static_cast<int64_t>(launch) * kSecond;
  return call;
}

void Give(SimulatedJob& job, int rank, std::vector<LastCallSnapshot> calls) {
  CommunicatorSnapshot& comm = job.Of(kExampleComm, rank);
  comm.last_calls_kept = 256;
  comm.last_calls = std::make_shared<const std::vector<LastCallSnapshot>>(std::move(calls));
  job.process(rank).last_calls_wanted = 256;
}

Json CallsOf(const SimulatedJob& job) {
  return Json::parse(CallsJson(job.Set(), kExampleComm, job.now()));
}

std::vector<std::string> StatesOf(const Json& rank) {
  std::vector<std::string> states;
  for (const Json& call : rank["calls"]) states.push_back(call["state"]);
  return states;
}

TEST(CallsJson, RootAndPeer) {
  SimulatedJob job(2);
  job.AddCommunicator(kExampleComm, {0, 1});
  LastCallSnapshot broadcast = CallOf(17, 5);
  broadcast.root = 0;
  LastCallSnapshot send = CallOf(18, 6);
  send.peer = 1;
  Give(job, 0, {broadcast, send});
  const Json calls = CallsOf(job)["ranks"][0]["calls"];
  EXPECT_EQ(calls[0]["root"], 0);
  EXPECT_EQ(calls[0]["peer"], nullptr);
  EXPECT_EQ(calls[1]["root"], nullptr);
  EXPECT_EQ(calls[1]["peer"], 1);
}

TEST(CallsJson, ACallWithAllThatIsKnownOfIt) {
  SimulatedJob job(2);
  job.AddCommunicator(kExampleComm, {0, 1});
  LastCallSnapshot call = CallOf(17, 5);
  call.stream_tag = 0x9f;
  call.kind_number = 12;
  Give(job, 0, {call});
  CommunicatorSnapshot& comm = job.Of(kExampleComm, 0);
  comm.launches = comm.launches_completed = 5;
  comm.timed_calls = {{"AllReduce", LatencyKind::kCompletionProxy, 0, 4096, 12, 9, 1},
                      {"AllReduce", LatencyKind::kDurationStream, 0, 4096, 12, 72000, 1}};
  const Json json = CallsOf(job);
  EXPECT_EQ(json["comm"], "00ab12cd34ef5678");
  EXPECT_EQ(json["verdict"], nullptr);
  ASSERT_EQ(json["ranks"].size(), 2u);
  EXPECT_EQ(json["ranks"][0]["pid"], 100);
  EXPECT_EQ(json["ranks"][0]["global_rank"], "0");
  const Json expected = {
      {"number", 17},         {"collective", 17},          {"of_kind", 13},
      {"op", "AllReduce"},    {"datatype", "ncclFloat32"}, {"bytes", 4096},
      {"group", 17},          {"stream", "009f"},          {"root", nullptr},
      {"peer", nullptr},      {"captured", false},         {"launched", 1760000005.0},
      {"state", "completed"}, {"state_word", "done"},      {"begun", nullptr},
      {"seconds", 72e-6},     {"timed_by", "stream"}};
  EXPECT_EQ(json["ranks"][0]["calls"], Json::array({expected}));
  EXPECT_EQ(json["ranks"][1]["calls"], nullptr);
  EXPECT_EQ(json["ranks"][1]["missing"], "off");
  EXPECT_EQ(CallsJson(job.Set(), 1, job.now()), "") << "nobody has it";
}

TEST(CallsJson, WhatHasCompletedAndWhatHasNot) {
  SimulatedJob job(1);
  job.AddCommunicator(kExampleComm, {0}, 2);
  CommunicatorSnapshot& comm = job.Of(kExampleComm, 0);
  LastCallSnapshot captured = CallOf(3, 0);
  captured.captured = true;
  Give(job, 0, {CallOf(1, 1), CallOf(2, 0), captured, CallOf(4, 2), CallOf(5, 3), CallOf(6, 0)});
  comm.launches = 3;
  comm.launches_completed = 1;
  comm.oldest_inflight_realtime_ns = job.now();
  comm.oldest_launch = OldestLaunch::kBegun;
  comm.unreported_calls = 1;
  Json rank = CallsOf(job)["ranks"][0];
  EXPECT_EQ(StatesOf(rank), (std::vector<std::string>{"completed", "unknown", "captured",
                                                      "launched", "launched", "not_launched"}));
  EXPECT_EQ(rank["calls"][3]["begun"], true);
  EXPECT_EQ(rank["calls"][4]["begun"], nullptr) << "the oldest alone is asked";
  // Nobody looks any longer: what had completed has, the rest is not known.
  job.process(0).last_poll_realtime_ns = job.now() - 60 * kSecond;
  rank = CallsOf(job)["ranks"][0];
  EXPECT_EQ(StatesOf(rank)[0], "completed");
  EXPECT_EQ(StatesOf(rank)[3], "unknown");
}

// Of a group that NCCL cuts into launches 2, 3 and 4, the calls have the first.
TEST(CallsJson, AGroupHasCompletedWithItsLastLaunch) {
  SimulatedJob job(1);
  job.AddCommunicator(kExampleComm, {0}, 2);
  CommunicatorSnapshot& comm = job.Of(kExampleComm, 0);
  Give(job, 0, {CallOf(1, 1), CallOf(2, 2), CallOf(3, 2, true), CallOf(4, 5)});
  comm.launches = 5;
  comm.launches_completed = 3;
  comm.oldest_inflight_realtime_ns = job.now();
  EXPECT_EQ(StatesOf(CallsOf(job)["ranks"][0]),
            (std::vector<std::string>{"completed", "launched", "launched", "in_flight"}));
  comm.launches_completed = 4;
  const Json rank = CallsOf(job)["ranks"][0];
  EXPECT_EQ(StatesOf(rank),
            (std::vector<std::string>{"completed", "completed", "completed", "in_flight"}));
  EXPECT_EQ(rank["calls"][2]["group"], 2);
  EXPECT_EQ(rank["calls"][3]["group"], 4);
}

// Of a group of several, one call's launch may be hidden.
TEST(CallsJson, AMixedGroupHasCompletedOnceALaterLaunchHas) {
  SimulatedJob job(1);
  job.AddCommunicator(kExampleComm, {0}, 2);
  CommunicatorSnapshot& comm = job.Of(kExampleComm, 0);
  std::vector<LastCallSnapshot> calls = {CallOf(1, 1), CallOf(2, 2), CallOf(3, 2, true)};
  Give(job, 0, calls);
  comm.launches = comm.launches_completed = 2;
  const auto states = [&] { return StatesOf(CallsOf(job)["ranks"][0]); };
  EXPECT_EQ(states(), (std::vector<std::string>{"completed", "completed", "completed"}));
  comm.unreported_calls = 1;
  EXPECT_EQ(states(), (std::vector<std::string>{"completed", "unknown", "unknown"}));
  comm.unreported_calls = 0;
  comm.untimed.push_back({"Broadcast", UntimedReason::kUnreported, 1});
  EXPECT_EQ(states(), (std::vector<std::string>{"completed", "unknown", "unknown"}));
  calls.push_back(CallOf(4, 3));
  Give(job, 0, calls);
  comm.launches = comm.launches_completed = 3;
  EXPECT_EQ(states(), (std::vector<std::string>(4, "completed")));
}

TEST(CallsJson, WhoHasNoRingSaysWhy) {
  SimulatedJob job(2);
  job.AddCommunicator(kExampleComm, {0, 1});
  job.process(0).last_calls_wanted = 256;
  const Json json = CallsOf(job);
  EXPECT_EQ(json["ranks"][0]["missing"], "no_room");
  EXPECT_EQ(json["ranks"][1]["missing"], "off");
}

}  // namespace
}  // namespace nccl_pulse
