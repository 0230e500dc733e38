#ifndef PLUGIN_VERSION_H_
#define PLUGIN_VERSION_H_

namespace nccl_pulse {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace nccl_pulse

#endif  // PLUGIN_VERSION_H_
