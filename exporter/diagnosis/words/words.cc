#include "exporter/diagnosis/words/words.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace nccl_pulse {

std::string DurationWords(int64_t ns) {
  const int64_t seconds = std::max<int64_t>(ns / 1000000000, 0);
  if (seconds < 120) return absl::StrCat(seconds, " s");
  if (seconds < 7200) return absl::StrCat(seconds / 60, " min");
  return absl::StrCat(seconds / 3600, " h ", seconds / 60 % 60, " min");
}

std::string ShareWords(double share) {
  return absl::StrFormat("%.*f %%", share < 0.0995 ? 1 : 0, share * 100);
}

std::string ShareWords(double share, int64_t window_seconds) {
  return absl::StrCat(ShareWords(share), " of the last ",
                      DurationWords(window_seconds * 1000000000));
}

std::string SecondsWords(double seconds) {
  if (seconds < 0) seconds = 0;
  if (seconds < 999.5e-6) return absl::StrFormat("%.3g us", seconds * 1e6);
  if (seconds < 0.9995) return absl::StrFormat("%.3g ms", seconds * 1e3);
  if (seconds < 99.5) return absl::StrFormat("%.3g s", seconds);
  if (seconds < 7200) {
    const auto whole = static_cast<int64_t>(seconds);
    return absl::StrFormat("%d min %d s", whole / 60, whole % 60);
  }
  const auto minutes = static_cast<int64_t>(seconds / 60);
  return absl::StrFormat("%d h %d min", minutes / 60, minutes % 60);
}

std::string AlignedRows(const std::vector<std::vector<std::string>>& rows, std::size_t width) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, "  ", row[i], std::string(widths[i] - row[i].size(), ' '));
    }
    line.resize(line.find_last_not_of(' ') + 1);
    if (width > 0 && line.size() > width) line.resize(width);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace nccl_pulse
