#include "bench/collective_overhead/samples.h"

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace nccl_pulse::overhead {
namespace {

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return quoted + "\"";
}

template <typename Values, typename Format>
std::string List(const Values& values, Format format) {
  const auto append = [&](std::string* text, const auto& value) { *text += format(value); };
  return absl::StrCat("[", absl::StrJoin(values, ",", append), "]");
}

std::string LineOf(const PointResult& result) {
  const Point& point = result.point;
  const auto sample = [](const Sample& each) {
    return absl::StrFormat("[%.6f,%.6f]", each.operations_us, each.total_us);
  };
  return absl::StrCat("{\"launch\":\"", Name(result.launch), "\",\"operation\":\"",
                      Name(point.operation), "\",\"bytes\":", point.bytes, ",\"mode\":\"",
                      Name(point.mode), "\",\"compute\":", point.compute ? "true" : "false",
                      ",\"notes\":", List(result.notes, Quoted), ",\"blocks\":",
                      List(result.blocks,
                           [&](const Block& block) {
                             return absl::StrCat("[", block.round, ",", List(block.samples, sample),
                                                 "]");
                           }),
                      "}\n");
}

}  // namespace

std::string WriteSamples(const std::string& path, const Options& options, const Machine& machine,
                         const std::vector<PointResult>& results) {
  std::string text = absl::StrCat(
      "{\"gpus\":", options.devices.size(), ",\"gpu\":", Quoted(machine.gpu),
      ",\"nccl\":", machine.nccl_version, ",\"driver\":", machine.driver_version,
      ",\"configurations\":",
      List(options.configurations,
           [](const Configuration& each) {
             return absl::StrCat("{\"name\":", Quoted(each.name),
                                 ",\"has_plugin\":", IsWithoutPlugin(each) ? "false" : "true", "}");
           }),
      "}\n");
  for (const PointResult& result : results) text += LineOf(result);
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
