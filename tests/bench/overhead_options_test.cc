
#include <string>
#include <vector>

#include "bench/collective_overhead/options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nccl_pulse::overhead {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kSome[] = "--config=some:/proc/self/exe";

std::string ErrorOf(const std::vector<std::string>& arguments) {
  Options options;
  return ParseOptions(arguments, &options);
}

TEST(SizesTest, RangesEndWhereTheyAreTold) {
  EXPECT_THAT(*ParseSizes("64:256M:8"),
              ElementsAre(64, 512, 4096, 32768, 262144, 2097152, 16777216, 134217728, 268435456));
  EXPECT_THAT(*ParseSizes("8:8:2"), ElementsAre(8));
  EXPECT_THAT(*ParseSizes("8,4K,1MiB,1G"), ElementsAre(8, 4096, 1048576, 1073741824));
  for (const char* wrong : {"", "x", "4Q", "1:2", "64:8:8", "8:64:1", "0:64:8", "8,,9", "-8"}) {
    EXPECT_FALSE(ParseSizes(wrong).has_value()) << wrong;
  }
}

TEST(SizesTest, NamesAreExact) {
  EXPECT_EQ(SizeName(64), "64 B");
  EXPECT_EQ(SizeName(1500), "1500 B");
  EXPECT_EQ(SizeName(32768), "32 KiB");
  EXPECT_EQ(SizeName(uint64_t{1} << 30), "1 GiB");
}

TEST(OptionsTest, DefaultsAreTheWholeGrid) {
  Options options;
  ASSERT_EQ(ParseOptions({kSome}, &options), "");
  EXPECT_EQ(Points(options).size(), 9u * 3 * 2);
  EXPECT_EQ(options.configurations[0].name, "none");
  EXPECT_EQ(options.configurations[0].plugin, "none");
  EXPECT_EQ(options.seconds, 300);
  EXPECT_EQ(options.rounds, 0);
}

TEST(OptionsTest, TwoSetsWithoutAPluginAreAlwaysThere) {
  const auto names = [](const std::vector<std::string>& arguments) {
    Options options;
    EXPECT_EQ(ParseOptions(arguments, &options), "");
    std::vector<std::string> found;
    for (const Configuration& configuration : options.configurations) {
      found.push_back((IsWithoutPlugin(configuration) ? "" : "plugin ") + configuration.name);
    }
    return found;
  };
  EXPECT_THAT(names({kSome}), ElementsAre("none", "twin", "plugin some"));
  EXPECT_THAT(names({kSome, "--config=second:none"}), ElementsAre("none", "plugin some", "second"));
  // One with a variable is not like the others.
  EXPECT_THAT(names({"--config=tuned:none,NCCL_MAX_CTAS=4"}),
              ElementsAre("none", "twin", "plugin tuned"));
  EXPECT_THAT(ErrorOf({"--config=twin:/proc/self/exe"}), HasSubstr("'twin'"));
}

TEST(OptionsTest, PairsAloneAreDividedAmongFiveRounds) {
  Options options;
  ASSERT_EQ(ParseOptions({kSome, "--pairs=20"}, &options), "");
  EXPECT_EQ(options.rounds, 5);
  Options few;
  ASSERT_EQ(ParseOptions({kSome, "--pairs=3"}, &few), "");
  EXPECT_EQ(few.rounds, 3);
}

TEST(OptionsTest, DecodingGraphHasLayers) {
  Options options;
  ASSERT_EQ(ParseOptions({kSome, "--modes=graph,graph-decode", "--layers=12", "--sizes=64K",
                          "--compute=without"},
                         &options),
            "");
  EXPECT_EQ(OperationsPerStep(options, Mode::kSync), 1);
  EXPECT_EQ(OperationsPerStep(options, Mode::kGraph), 10);
  EXPECT_EQ(OperationsPerStep(options, Mode::kGraphDecode), 12);
  EXPECT_TRUE(NeedsCompute(options));
  EXPECT_EQ(PointName(Points(options)[1]), "all_reduce 64 KiB graph-decode");
  options.modes = {Mode::kGraph};
  EXPECT_FALSE(NeedsCompute(options));
}

TEST(OptionsTest, Configurations) {
  Options options;
  ASSERT_EQ(
      ParseOptions({"--config=twin:none", "--config", "k:/proc/self/exe,A=1,B=x=y"}, &options), "");
  ASSERT_EQ(options.configurations.size(), 3u);
  EXPECT_EQ(options.configurations[1].plugin, "none");
  // The path is resolved: workers look for it among their mapped files.
  EXPECT_EQ(options.configurations[2].plugin.rfind("/proc", 0), std::string::npos);
  EXPECT_THAT(options.configurations[2].environment,
              ElementsAre(std::make_pair("A", "1"), std::make_pair("B", "x=y")));
}

TEST(OptionsTest, Everything) {
  Options options;
  ASSERT_EQ(ParseOptions({kSome, "--gpus=4", "--ops=all", "--sizes=8,1G", "--modes=graph",
                          "--compute=with", "--launch=threads,processes", "--pairs=40",
                          "--rounds=4", "--samples=a", "--nccl=/x/libnccl.so.2"},
                         &options),
            "");
  EXPECT_THAT(options.devices, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(options.operations.size(), 6u);
  EXPECT_EQ(options.seconds, 0);  // as many as asked for, however long
  EXPECT_EQ(Points(options).size(), 12u);
}

TEST(OptionsTest, ErrorsNameTheArgument) {
  EXPECT_THAT(ErrorOf({}), HasSubstr("--config"));
  EXPECT_THAT(ErrorOf({"--config=a:/no/such/file"}), HasSubstr("/no/such/file"));
  EXPECT_THAT(ErrorOf({"--config=a"}), HasSubstr("NAME:PLUGIN"));
  EXPECT_THAT(ErrorOf({"--config=a,b:none"}), HasSubstr("characters"));
  EXPECT_THAT(ErrorOf({"--config=none:none"}), HasSubstr("there already"));
  EXPECT_THAT(ErrorOf({"--config=a:none,X"}), HasSubstr("VARIABLE=VALUE"));
  EXPECT_THAT(ErrorOf({kSome, "--ops=all_reduce,fly"}), HasSubstr("'fly'"));
  EXPECT_THAT(ErrorOf({kSome, "--modes=fast"}), HasSubstr("'fast'"));
  EXPECT_THAT(ErrorOf({kSome, "--sizes=4"}), HasSubstr("from 8"));
  EXPECT_THAT(ErrorOf({kSome, "--sizes=2G"}), HasSubstr("1G"));
  EXPECT_THAT(ErrorOf({kSome, "--sizes=10"}), HasSubstr("multiple of 4"));
  EXPECT_THAT(ErrorOf({kSome, "--pairs=0"}), HasSubstr("--pairs"));
  EXPECT_THAT(ErrorOf({kSome, "--pairs=2", "--rounds=3"}), HasSubstr("--rounds"));
  EXPECT_THAT(ErrorOf({kSome, "--gpus=2", "--devices=0,1"}), HasSubstr("exclude"));
  EXPECT_THAT(ErrorOf({kSome, "--devices=0,0", "--launch=threads"}), HasSubstr("GPU each"));
  EXPECT_THAT(ErrorOf({kSome, "--seconds"}), HasSubstr("needs a value"));
  EXPECT_THAT(ErrorOf({kSome, "--what=1"}), HasSubstr("--what"));
  EXPECT_THAT(ErrorOf({kSome, "stray"}), HasSubstr("'stray'"));
}

}  // namespace
}  // namespace nccl_pulse::overhead
