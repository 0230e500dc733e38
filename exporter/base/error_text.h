// ErrorText returns the system's text for an errno.
//
// Thread: any.
#ifndef EXPORTER_BASE_ERROR_TEXT_H_
#define EXPORTER_BASE_ERROR_TEXT_H_

#include <array>
#include <cstring>
#include <string>

namespace nccl_pulse {

inline std::string ErrorText(int error) {
  std::array<char, 128> buffer;
  return strerror_r(error, buffer.data(), buffer.size());
}

// Sets `error`, to "cannot write PATH: why". Returns false.
inline bool FailToWrite(const std::string& path, const std::string& why, std::string* error) {
  *error = "cannot write " + path + ": " + why;
  return false;
}

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_ERROR_TEXT_H_
