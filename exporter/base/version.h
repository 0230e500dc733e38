// The plugin's version, as pages, messages and packages show it.
#ifndef EXPORTER_BASE_VERSION_H_
#define EXPORTER_BASE_VERSION_H_

namespace nccl_pulse {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_VERSION_H_
