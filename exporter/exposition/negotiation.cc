#include "exporter/exposition/negotiation.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace nccl_pulse {
namespace {

constexpr int kFullWeight = 1000;  // q=1
constexpr int kNotSaid = -1;

// Cuts off the part of `list` before the first `separator` outside quotes.
std::string_view TakePart(std::string_view* list, char separator) {
  bool quoted = false;
  std::size_t end = 0;
  for (; end < list->size() && (quoted || (*list)[end] != separator); ++end) {
    if ((*list)[end] == '"') quoted = !quoted;
    if (quoted && (*list)[end] == '\\') ++end;
  }
  end = std::min(end, list->size());
  const std::string_view part = list->substr(0, end);
  list->remove_prefix(std::min(end + 1, list->size()));
  return absl::StripAsciiWhitespace(part);
}

struct Parameter {
  std::string_view name, value;
};

Parameter TakeParameter(std::string_view* list) {
  const std::string_view part = TakePart(list, ';');
  const std::size_t equals = std::min(part.find('='), part.size());
  std::string_view value =
      absl::StripAsciiWhitespace(part.substr(std::min(equals + 1, part.size())));
  if (value.size() >= 2 && value.front() == '"' && value.back() == '"') {
    value = value.substr(1, value.size() - 2);
  }
  return {absl::StripAsciiWhitespace(part.substr(0, equals)), value};
}

// Parses "0.75" as 750. Returns kNotSaid if `text` is not a weight. Ignores digits after the third.
int ParseWeight(std::string_view text) {
  if (text.empty() || (text[0] != '0' && text[0] != '1')) return kNotSaid;
  if (text.size() > 1 && text[1] != '.') return kNotSaid;
  int weight = 0;
  int unit = kFullWeight / 10;
  for (const char digit : text.substr(std::min<std::size_t>(2, text.size()))) {
    if (!absl::ascii_isdigit(digit)) return kNotSaid;
    weight += (digit - '0') * unit;
    unit /= 10;
  }
  if (text[0] == '0') return weight;
  return weight == 0 ? kFullWeight : kNotSaid;
}

// Returns the q of an element's parameters, 1 if missing.
int WeightOf(std::string_view parameters) {
  while (!parameters.empty()) {
    const Parameter parameter = TakeParameter(&parameters);
    if (absl::EqualsIgnoreCase(parameter.name, "q")) return ParseWeight(parameter.value);
  }
  return kFullWeight;
}

std::string_view MediaType(PageFormat format) {
  switch (format) {
    case PageFormat::kText:
      return "text/plain";
    case PageFormat::kOpenMetrics:
      return "application/openmetrics-text";
    case PageFormat::kProtobuf:
      break;
  }
  return "application/vnd.google.protobuf";
}

constexpr int kNoMatch = -1;

// Returns how exactly the range's parameters name the format, or kNoMatch. Ignores other parameters
// (charset, escaping, schema).
int MatchParameters(std::string_view parameters, PageFormat format) {
  int matched = 0;
  bool proto = false;
  bool encoding = false;
  while (!parameters.empty()) {
    const Parameter parameter = TakeParameter(&parameters);
    if (absl::EqualsIgnoreCase(parameter.name, "q")) break;
    if (format == PageFormat::kProtobuf) {
      proto = proto || (absl::EqualsIgnoreCase(parameter.name, "proto") &&
                        parameter.value == "io.prometheus.client.MetricFamily");
      encoding = encoding || (absl::EqualsIgnoreCase(parameter.name, "encoding") &&
                              absl::EqualsIgnoreCase(parameter.value, "delimited"));
    } else if (absl::EqualsIgnoreCase(parameter.name, "version")) {
      if (parameter.value != (format == PageFormat::kText ? "0.0.4" : "1.0.0")) return kNoMatch;
      matched = 1;
    }
  }
  // A client must specify the protobuf message and its framing.
  if (format == PageFormat::kProtobuf) return proto && encoding ? 1 : kNoMatch;
  return matched;
}

// Returns how exactly a media range names the format: 0 "*/*", 1 "type/*", from 2 the type itself.
int MatchRange(std::string_view range, std::string_view parameters, PageFormat format) {
  // Only clients that name binary formats get them.
  if (range == "*/*") return format == PageFormat::kProtobuf ? kNoMatch : 0;
  const std::string_view type = MediaType(format);
  const std::size_t slash = type.find('/') + 1;
  if (absl::EndsWith(range, "/*") && format != PageFormat::kProtobuf) {
    return absl::EqualsIgnoreCase(range.substr(0, range.size() - 1), type.substr(0, slash))
               ? 1
               : kNoMatch;
  }
  if (!absl::EqualsIgnoreCase(range, type)) return kNoMatch;
  const int matched = MatchParameters(parameters, format);
  return matched == kNoMatch ? kNoMatch : 2 + matched;
}

// The header's weight for one format, from the range that names it most exactly.
struct Preference {
  int exactness = kNoMatch;
  int weight = 0;
  std::size_t position = 0;

  bool IsBetterThan(const Preference& other) const {
    if (weight != other.weight) return weight > other.weight;
    if (exactness != other.exactness) return exactness > other.exactness;
    return position < other.position;
  }
};

Preference PreferenceFor(PageFormat format, std::string_view accept) {
  Preference preference;
  for (std::size_t position = 0; !accept.empty(); ++position) {
    std::string_view parameters = TakePart(&accept, ',');
    const std::string_view range = TakePart(&parameters, ';');
    const int exactness = MatchRange(range, parameters, format);
    const int weight = exactness == kNoMatch ? kNotSaid : WeightOf(parameters);
    if (weight == kNotSaid) continue;
    if (exactness > preference.exactness ||
        (exactness == preference.exactness && weight > preference.weight)) {
      preference = {exactness, weight, position};
    }
  }
  return preference;
}

}  // namespace

PageFormat NegotiateFormat(std::string_view accept) {
  PageFormat best = PageFormat::kText;
  Preference best_preference;
  for (PageFormat format : {PageFormat::kText, PageFormat::kOpenMetrics, PageFormat::kProtobuf}) {
    const Preference preference = PreferenceFor(format, accept);
    if (preference.weight > 0 && preference.IsBetterThan(best_preference)) {
      best = format;
      best_preference = preference;
    }
  }
  return best;
}

bool NegotiateGzip(std::string_view accept_encoding) {
  int gzip = kNotSaid;
  int identity = kNotSaid;
  int any = kNotSaid;
  while (!accept_encoding.empty()) {
    std::string_view parameters = TakePart(&accept_encoding, ',');
    const std::string_view coding = TakePart(&parameters, ';');
    const int weight = WeightOf(parameters);
    if (absl::EqualsIgnoreCase(coding, "gzip") || absl::EqualsIgnoreCase(coding, "x-gzip")) {
      gzip = std::max(gzip, weight);
    } else if (absl::EqualsIgnoreCase(coding, "identity")) {
      identity = std::max(identity, weight);
    } else if (coding == "*") {
      any = std::max(any, weight);
    }
  }
  if (gzip == kNotSaid) gzip = any;
  return gzip > 0 && gzip >= identity;
}

std::string_view ContentType(PageFormat format) {
  switch (format) {
    case PageFormat::kText:
      return "text/plain; version=0.0.4; charset=utf-8";
    case PageFormat::kOpenMetrics:
      return "application/openmetrics-text; version=1.0.0; charset=utf-8";
    case PageFormat::kProtobuf:
      break;
  }
  return "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; "
         "encoding=delimited";
}

}  // namespace nccl_pulse
