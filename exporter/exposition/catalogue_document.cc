// Prints docs/metrics.md from the catalogue.
#include <cstddef>
#include <string>

#include "exporter/exposition/catalogue.h"
#include "exporter/exposition/label_meanings.h"

namespace nccl_pulse {
namespace {

void AppendTable(MetricScope scope, std::string* out) {
  *out += "| metric | type | further labels | meaning |\n|---|---|---|---|\n";
  for (int i = 0; i < kMetrics; ++i) {
    const MetricEntry& entry = CatalogueEntry(static_cast<MetricId>(i));
    if (entry.scope != scope) continue;
    out->append("| `")
        .append(entry.name)
        .append("` | ")
        .append(MetricTypeName(entry.type))
        .append(" | ");
    for (std::size_t n = 0; n < entry.labels.size; ++n) {
      out->append(n == 0 ? "`" : ", `").append(entry.labels.names[n]).append("`");
    }
    out->append(entry.labels.size == 0 ? "| " : " | ").append(entry.help).append(" |\n");
  }
}

}  // namespace

std::string CatalogueMarkdown() {
  std::string out =
      "# Metrics\n\n<!-- Printed from the metric catalogue, exporter/exposition/catalogue.cc; a "
      "test compares the two.\n     ./bazelw run //exporter/exposition:catalogue_markdown > "
      "docs/metrics.md -->\n\nTimestamps are Unix times. Unknown values have no series. "
      "Counters of rare events appear with the first event. Gauges of a state exist only while the "
      "state lasts.\nA label without a value is left out. Labels of `NCCL_PULSE_LABELS` are "
      "added to every series.\nFormats: [prometheus.md](prometheus.md#formats-and-histograms). How "
      "many series: "
      "[scale.md](scale.md#how-many-series).\n\n## Communicators\n\nAll have the labels `comm` and "
      "`rank`.\n\n";
  AppendTable(MetricScope::kCommunicator, &out);
  out +=
      "\n## Processes: the exporter on itself\n\nAll have the labels `pid`, `pid_namespace` and "
      "`global_rank`.\n\n";
  AppendTable(MetricScope::kProcess, &out);
  out += "\n## The endpoint\n\n";
  AppendTable(MetricScope::kServer, &out);
  out += "\n## Labels\n\n| label | meaning |\n|---|---|\n";
  for (const LabelEntry& label : kLabels) {
    out.append("| `").append(label.name).append("` | ").append(label.meaning).append(" |\n");
  }
  return out;
}

}  // namespace nccl_pulse
