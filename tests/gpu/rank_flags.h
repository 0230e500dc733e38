// The flags that every program of these tests has: which rank of a run it is, and where NCCL is.
#ifndef TESTS_GPU_RANK_FLAGS_H_
#define TESTS_GPU_RANK_FLAGS_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace nccl_pulse {

struct RankFlags {
  int rank = -1;
  int nranks = 0;
  int gpu = 0;
  std::string exchange;      // a folder that the ranks share
  std::string library_path;  // folders of libnccl and libcudart, with colons between
};

// By name ("--sizes"): takes the value.
using FlagSetters = std::map<std::string, std::function<void(const std::string&)>>;

// Reads "--name=value" flags: those of `flags`, and `others`. False if one is neither, or if rank
// or folder are missing or wrong.
bool ReadFlags(int argc, char** argv, RankFlags* flags, FlagSetters others);

// The parts of "A,B,C".
std::vector<std::string> Listed(const std::string& text);

}  // namespace nccl_pulse

#endif  // TESTS_GPU_RANK_FLAGS_H_
