// A job may call setlocale(): numbers then have a decimal comma and points between thousands, in
// every function of C and C++ that goes by the locale. No page may.
#include <gtest/gtest.h>
#include <unistd.h>

#include <clocale>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <locale>
#include <mutex>
#include <string>

#include "exporter/exposition/families.h"
#include "exporter/exposition/json/communicators_json.h"
#include "exporter/exposition/text_format.h"
#include "tests/exporter/http_client.h"
#include "tests/exporter/test_server.h"
#include "tests/metrics/child_process.h"

namespace nccl_pulse {
namespace {

// What localedef makes of LC_NUMERIC with decimal_point ",", thousands_sep "." and grouping 3;3: a
// system without locales has none of these.
void WriteNumbersOf(const std::string& path) {
  constexpr uint32_t kHead[] = {0x20031114, 6, 32, 34, 36, 40, 44, 48};
  constexpr char kStrings[] = ",\0.\0\3\3\0\0,\0\0\0.\0\0\0ANSI_X3.4-1968";
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(kHead), sizeof(kHead));
  file.write(kStrings, sizeof(kStrings));
}

struct Comma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

std::string Half() {
  char text[16];
  std::snprintf(text, sizeof(text), "%.1f", 0.5);
  return text;
}

// Of the whole process. False where it cannot be had.
bool SetHostileLocale() {
  const std::string folder = testing::TempDir() + "/locales" + std::to_string(getpid());
  std::filesystem::create_directories(folder + "/hostile");
  WriteNumbersOf(folder + "/hostile/LC_NUMERIC");
  setenv("LOCPATH", folder.c_str(), 1);
  std::locale::global(std::locale(std::locale::classic(), new Comma));
  return std::setlocale(LC_NUMERIC, "hostile") != nullptr && Half() == "0,5";
}

std::string Pages() {
  const SnapshotSet set = Example();
  return TextFormat(BuildFamilies(set, {}, {})) + CommunicatorsJson(set, 1760000003000000000);
}

TEST(Locale, PagesAreTheSameInEveryOne) {
  const std::string hostile =
      RunInChild([] { return SetHostileLocale() ? Pages() : std::string("no such locale"); });
  EXPECT_EQ(hostile, Pages());
  EXPECT_NE(hostile.find("\"buckets\":[["), hostile.npos) << hostile;
}

// So what a library does there, such as asking localeconv(), does not meet the job's setlocale().
TEST(Locale, TheServersThreadHasNoneOfTheJob) {
  EXPECT_EQ(RunInChild([]() -> std::string {
              if (!SetHostileLocale()) return "no such locale";
              std::mutex mutex;
              std::string half;
              const auto server = StartServer([&] {
                const std::lock_guard<std::mutex> lock(mutex);
                half = Half();
                return Example();
              });
              if (Get(server->port(), "/metrics").status != 200) return "no page";
              const std::lock_guard<std::mutex> lock(mutex);
              return half + Half();
            }),
            "0.50,5");
}

}  // namespace
}  // namespace nccl_pulse
