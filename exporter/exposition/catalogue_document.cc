// docs/metrics.md, printed from the catalogue.
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "exporter/diagnosis/verdict.h"
#include "exporter/exposition/catalogue.h"
#include "exporter/exposition/label_meanings.h"

namespace nccl_pulse {
namespace {

void AppendTable(MetricScope scope, std::string* out) {
  *out += "| metric | type | unit | further labels | meaning |\n|---|---|---|---|---|\n";
  for (int i = 0; i < kMetrics; ++i) {
    const MetricEntry& entry = CatalogueEntry(static_cast<MetricId>(i));
    if (entry.scope != scope) continue;
    out->append("| `")
        .append(entry.name)
        .append("` | ")
        .append(MetricTypeName(entry.type))
        .append(" | ");
    out->append(entry.unit).append(entry.unit.empty() ? "| " : " | ");
    for (std::size_t n = 0; n < entry.labels.size; ++n) {
      out->append(n == 0 ? "`" : ", `").append(entry.labels.names[n]).append("`");
    }
    out->append(entry.labels.size == 0 ? "| " : " | ").append(entry.help).append(" |\n");
  }
}

std::string Step(const char* words) {
  return absl::StrReplaceAll(words,
                             {{"{pid}", "PID"}, {"{place}", ""}, {"{on}", ""}, {"{gpu}", ""}});
}

void AppendVerdicts(std::string* out) {
  *out +=
      "\n## Verdicts\n\nWhat is known when one is given: "
      "[debug-a-hang.md](debug-a-hang.md#verdicts). PID is that of the rank "
      "that is named.\n\n| verdict | meaning | can end | "
      "first step |\n|---|---|---|---|\n";
  for (const VerdictEntry& entry : kVerdicts) {
    absl::StrAppend(out, "| `", entry.name, "` | ", entry.meaning, " | ",
                    entry.ends == Ends::kByItself ? "yes"
                    : entry.ends == Ends::kByHand ? "by hand"
                                                  : "never",
                    " | ", Step(entry.words.first));
    for (const SituationEntry& each : kSituations) {
      if (each.verdict != entry.value || each.words.first == nullptr) continue;
      absl::StrAppend(out, "; ", each.when, ": ", Step(each.words.first));
    }
    *out += " |\n";
  }
}

}  // namespace

std::string CatalogueMarkdown() {
  std::string out =
      "# Metrics\n\n<!-- Printed from the metric catalogue, exporter/exposition/catalogue.cc; a "
      "test compares the two.\n     ./bazelw run //exporter/exposition:catalogue_markdown > "
      "docs/metrics.md -->\n\nA label without a value is left out. Labels that the user sets are "
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
  AppendVerdicts(&out);
  return out;
}

}  // namespace nccl_pulse
