// Prints docs/metrics.md.
#include <cstdio>

#include "exporter/exposition/catalogue.h"

int main() {
  const std::string text = nccl_pulse::CatalogueMarkdown();
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
}
