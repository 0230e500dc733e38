// DescribeNcclEnvironment describes NCCL's configuration in this process: its version, and the
// environment variables in exporter/base/nccl_variables.h. The diagnosis compares it between ranks
// (exporter/diagnosis/facts/environment_differences.h).
//
//   "NCCL=2.28.9 NCCL_IB_HCA=mlx5_0 NCCL_SOCKET_IFNAME=eth0"
//
// Variables are sorted by name and separated by a space. NCCL_PULSE_* (this plugin's settings) and
// torchcomms' rank and size are omitted. Spaces in a value become "_". A long value is cut, and
// ends with "~" and a hash of the whole value. If the name suggests a secret, the value is
// "(withheld)". Variables beyond the size limit are replaced by "...".
//
// Thread: init, under the runtime's lock (it reads environ). Cost: microseconds, and a dlopen of a
// library that is already loaded.
#ifndef PLUGIN_RUNTIME_NCCL_ENVIRONMENT_H_
#define PLUGIN_RUNTIME_NCCL_ENVIRONMENT_H_

#include <cstddef>
#include <string>

#include "plugin/abi/common.h"

namespace nccl_pulse {

// Returns the version of the NCCL that contains `logger`, as "2.28.9". Returns "" if it is not
// known: `logger` is null, or NCCL was linked in without its symbols.
std::string FindNcclVersion(abi::DebugLogger logger);

// Returns the description, at most `most_bytes` long. `environment`: as in environ(7).
std::string DescribeNcclEnvironment(char* const* environment, const std::string& version,
                                    std::size_t most_bytes);

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_NCCL_ENVIRONMENT_H_
