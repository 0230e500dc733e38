#include "bench/collective_overhead/samples.h"

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse::overhead {
namespace {

using Json = nlohmann::ordered_json;

std::string LineOf(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json JsonOf(const PointResult& result) {
  Json blocks = Json::array();
  for (const Block& block : result.blocks) {
    Json samples = Json::array();
    for (const Sample& each : block.samples) {
      samples.push_back({each.operations_us, each.total_us});
    }
    blocks.push_back({block.round, std::move(samples)});
  }
  return {{"launch", Name(result.launch)},   {"operation", Name(result.point.operation)},
          {"bytes", result.point.bytes},     {"mode", Name(result.point.mode)},
          {"compute", result.point.compute}, {"notes", result.notes},
          {"blocks", std::move(blocks)}};
}

}  // namespace

std::string WriteSamples(const std::string& path, const Options& options, const Machine& machine,
                         const std::vector<PointResult>& results) {
  Json configurations = Json::array();
  for (const Configuration& each : options.configurations) {
    configurations.push_back({{"name", each.name}, {"has_plugin", !IsWithoutPlugin(each)}});
  }
  std::string text = LineOf({{"gpus", options.devices.size()},
                             {"gpu", machine.gpu},
                             {"nccl", machine.nccl_version},
                             {"driver", machine.driver_version},
                             {"configurations", std::move(configurations)}});
  for (const PointResult& result : results) text += LineOf(JsonOf(result));
  const std::string next = path + ".new";
  FILE* file = fopen(next.c_str(), "w");
  if (file == nullptr) return absl::StrCat(next, ": ", std::generic_category().message(errno));
  const bool written = fwrite(text.data(), 1, text.size(), file) == text.size();
  if (fclose(file) != 0 || !written || rename(next.c_str(), path.c_str()) != 0) {
    return absl::StrCat(path, ": ", std::generic_category().message(errno));
  }
  return {};
}

}  // namespace nccl_pulse::overhead
