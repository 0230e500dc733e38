// Writes the dumps of made-up pages of calls (JSON, an array on standard input) into a folder, and
// prints what was left out.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "exporter/flight_recorder/writer.h"

int main(int /*argc*/, char** argv) {
  const std::string text((std::istreambuf_iterator<char>(std::cin)),
                         std::istreambuf_iterator<char>());
  const auto pages = nlohmann::json::parse(text).get<std::vector<nlohmann::json>>();
  const nccl_pulse::FlightRecorderDumps dumps = nccl_pulse::WriteFlightRecorder(pages);
  for (const auto& [rank, dump] : dumps.by_rank) {
    std::ofstream(std::string(argv[1]) + "/nccl_trace_rank_" + std::to_string(rank),
                  std::ios::binary)
        << dump;
  }
  for (const std::string& each : dumps.left_out) std::puts(each.c_str());
  return 0;
}
