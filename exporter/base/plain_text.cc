#include "exporter/base/plain_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "metrics/shared_bytes.h"

namespace nccl_pulse {

std::string PlainText(std::string_view text, std::size_t most) {
  while (absl::ConsumeSuffix(&text, "\n") || absl::ConsumeSuffix(&text, "\r")) {
  }
  const bool is_cut = text.size() > most;
  if (is_cut) {
    std::size_t end = most;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
    text = text.substr(0, end);
  }
  return absl::StrCat(CopyFromShared(text.data(), text.size()), is_cut ? "..." : "");
}

std::string PlainLines(std::string_view text) {
  std::string plain;
  while (absl::ConsumeSuffix(&text, "\n")) {
  }
  if (text.empty()) return plain;
  for (const std::string_view line : absl::StrSplit(text, '\n')) {
    absl::StrAppend(&plain, CopyFromShared(line.data(), line.size()), "\n");
  }
  return plain;
}

}  // namespace nccl_pulse
