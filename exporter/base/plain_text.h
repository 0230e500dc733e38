// Makes text from outside (endpoints, files, environments of other users' processes) safe to print.
//
// Every such text goes through PlainText before it reaches a terminal, a log or an error message.
// Control characters and ill-formed UTF-8 become "?", so text cannot control a terminal, forge a
// line or end a label.
//
// Thread: any, no state. Cost: linear in the bytes that are kept.
#ifndef EXPORTER_BASE_PLAIN_TEXT_H_
#define EXPORTER_BASE_PLAIN_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace nccl_pulse {

inline constexpr std::size_t kMostPlainBytes = 4096;

// Returns `text` as one line, without trailing line ends. Text of more than `most` bytes is cut,
// and ends with "...".
std::string PlainText(std::string_view text, std::size_t most = kMostPlainBytes);

// Returns the lines of `text`, each made plain and each with a line end.
std::string PlainLines(std::string_view text);

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_PLAIN_TEXT_H_
