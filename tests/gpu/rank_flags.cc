#include "tests/gpu/rank_flags.h"

#include <cstddef>
#include <cstdlib>
#include <sstream>
#include <utility>

namespace nccl_pulse {

bool ReadFlags(int argc, char** argv, RankFlags* flags, FlagSetters others) {
  FlagSetters setters = {
      {"--rank", [&](const std::string& v) { flags->rank = std::atoi(v.c_str()); }},
      {"--nranks", [&](const std::string& v) { flags->nranks = std::atoi(v.c_str()); }},
      {"--gpu", [&](const std::string& v) { flags->gpu = std::atoi(v.c_str()); }},
      {"--exchange", [&](const std::string& v) { flags->exchange = v; }},
      {"--library-path", [&](const std::string& v) { flags->library_path = v; }},
  };
  setters.merge(others);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::size_t equals = argument.find('=');
    const auto setter = setters.find(argument.substr(0, equals));
    if (equals == std::string::npos || setter == setters.end()) return false;
    setter->second(argument.substr(equals + 1));
  }
  return flags->rank >= 0 && flags->rank < flags->nranks && !flags->exchange.empty();
}

std::vector<std::string> Listed(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream list(text);
  for (std::string part; std::getline(list, part, ',');) parts.push_back(part);
  return parts;
}

}  // namespace nccl_pulse
