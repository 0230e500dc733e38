// Reports as NCCL's RAS writes them (src/ras/client_support.cc): for jobs that tests make up.
#ifndef TESTS_OUTSIDE_MADE_UP_RAS_H_
#define TESTS_OUTSIDE_MADE_UP_RAS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace nccl_pulse::outside {

struct MadeUpRank {
  int32_t rank = 0;
  std::string host = "10.0.3.7";
  int32_t pid = 0;
  int gpu = 0;
  uint64_t all_reduces = 0, broadcasts = 0, all_gathers = 0, reduces = 0, reduce_scatters = 0;
  bool is_missing = false, is_dead = false;
  bool has_left = false;  // of a missing one: its process answers
  int init_state = 0;
};

struct MadeUpCommunicator {
  std::string hash = "0x68dffeadac8cd14b", secondary = "0x1a:0x2b";
  int32_t size = 0;
  std::vector<MadeUpRank> ranks;
};

// `has_commas`: false as NCCL 2.28.7 and 2.28.9, which forget one in each missing rank.
inline std::string RasText(const std::vector<MadeUpCommunicator>& communicators,
                           bool has_commas = true, const char* version = "2.28.9") {
  std::string text = absl::StrCat(
      "{\n  \"nccl_version\": \"", version, "\",\n  \"timestamp\": \"2026-11-28 07:00:00\"",
      ",\n  \"communicators_count\": ", communicators.size(), ",\n  \"communicators\": [");
  const char* comma = "\n";
  for (const MadeUpCommunicator& each : communicators) {
    std::string present, missing;
    for (const MadeUpRank& rank : each.ranks) {
      std::string& list = rank.is_missing ? missing : present;
      absl::StrAppend(
          &list, list.empty() ? "" : ",", "\n        {\n          \"rank\": ", rank.rank,
          ",\n          \"host\": \"", rank.host, "\",\n          \"pid\": ", rank.pid,
          ",\n          \"cuda_dev\": ", rank.gpu, ",\n          \"nvml_dev\": ", rank.gpu);
      if (rank.is_missing) {
        absl::StrAppend(&list, has_commas ? "," : "",
                        "\n          \"status\": {\n            \"unresponsive\": ",
                        rank.has_left ? "false" : "true",
                        ",\n            \"considered_dead\": ", rank.is_dead ? "true" : "false",
                        "\n          }\n        }");
      } else {
        absl::StrAppend(
            &list, ",\n          \"status\": {\n            \"init_state\": ", rank.init_state,
            ",\n            \"async_error\": 0,\n            \"finalize_called\": false,\n"
            "            \"destroy_flag\": false,\n            \"abort_flag\": false\n"
            "          },\n          \"collective_counts\": {\n            \"Broadcast\": ",
            rank.broadcasts, ",\n            \"Reduce\": ", rank.reduces,
            ",\n            \"AllGather\": ", rank.all_gathers,
            ",\n            \"ReduceScatter\": ", rank.reduce_scatters,
            ",\n            \"AllReduce\": ", rank.all_reduces, "\n          }\n        }");
      }
    }
    absl::StrAppend(&text, comma, "    {\n      \"hash\": \"", each.hash,
                    "\",\n      \"secondary_hash\": \"", each.secondary,
                    "\",\n      \"size\": ", each.size, ",\n      \"ranks\": [", present,
                    "\n      ],\n      \"missing_ranks\": [", missing, "\n      ]\n    }");
    comma = ",\n";
  }
  return absl::StrCat(text, "\n  ],\n  \"ras\": {\n    \"collection_time_sec\": 0.001,\n",
                      "    \"timeouts_count\": 0\n  }\n}\n");
}

// One communicator of so many ranks on one host, with pids from 1000 on.
inline MadeUpCommunicator World(int32_t ranks, uint64_t all_reduces) {
  MadeUpCommunicator world;
  world.size = ranks;
  for (int32_t i = 0; i < ranks; ++i) {
    MadeUpRank rank;
    rank.rank = rank.gpu = i;
    rank.pid = 1000 + i;
    rank.all_reduces = all_reduces;
    world.ranks.push_back(rank);
  }
  return world;
}

}  // namespace nccl_pulse::outside

#endif  // TESTS_OUTSIDE_MADE_UP_RAS_H_
