#include <algorithm>
#include <cmath>

#include "cli/job/job_explanation.h"
#include "cli/job/read_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// 1,199,882 parameters, 1,179,648 of them in dense1.weight.
JobFacts Facts(int servers, const std::vector<std::string>& set = {}) {
  const auto job = LoadCompleteJob("examples/mnist_cnn.textproto", set, 2);
  EXPECT_TRUE(job.ok()) << job.status();
  auto facts = JobFacts::Create(*job, servers);
  EXPECT_TRUE(facts.ok()) << facts.status();
  return *std::move(facts);
}

TEST(PartsOf, CoverEachTensorOnTheServersThatHoldIt) {
  for (int servers : {1, 2, 3, 7, 64}) {
    const JobFacts facts = Facts(servers);
    const ParameterLayout& layout = facts.layout();
    for (size_t t = 0; t < layout.tensors().size(); ++t) {
      const int64_t begin = layout.tensor(t).begin;
      int64_t end = 0;
      for (const TensorPart& part : PartsOf(layout, t)) {
        EXPECT_EQ(part.values.begin, end);
        EXPECT_GT(part.values.size(), 0);
        EXPECT_GE(begin + part.values.begin, layout.shard(part.server).begin);
        EXPECT_LE(begin + part.values.end, layout.shard(part.server).end);
        end = part.values.end;
      }
      EXPECT_EQ(end, layout.tensor(t).size()) << layout.tensors()[t].name << " on " << servers;
    }
  }
}

TEST(AgainstEven, IsTheShareOfBytesTooManyOrTooFew) {
  const JobFacts facts = Facts(3);
  EXPECT_NEAR(AgainstEven(facts.layout(), 0), 399952 / (1199882 / 3.0) - 1, 1e-12);
  double sum = 0;
  for (int s = 0; s < 3; ++s) sum += AgainstEven(facts.layout(), s);
  EXPECT_NEAR(sum, 0, 1e-9);
}

TEST(CountBlocks, IsTheLayoutsOwnNumberAtItsOwnSize) {
  for (int servers : {1, 3, 11}) {
    const ParameterLayout layout = Facts(servers).layout();
    int64_t blocks = 0;
    for (int s = 0; s < servers; ++s) blocks += layout.num_blocks(s);
    EXPECT_EQ(CountBlocks(layout), blocks);
    EXPECT_EQ(CountBlocks(layout, layout.block_size()), blocks);
  }
  EXPECT_EQ(CountBlocks(Facts(1).layout(), 1199881), 2);
}

TEST(ShownServers, AreAllOfAFewAndTheEndsOfMany) {
  EXPECT_THAT(ShownServers(1), ElementsAre(0));
  EXPECT_THAT(ShownServers(8), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(ShownServers(9), ElementsAre(0, 1, 2, 3, 4, 5, -1, 8));
  EXPECT_THAT(ShownServers(1000), ElementsAre(0, 1, 2, 3, 4, 5, -1, 999));
}

TEST(ExplainPlacement, OneServerHasItAll) {
  const std::string text = ExplainPlacement(Facts(1));
  EXPECT_THAT(text, AllOf(HasSubstr("All on one server."), HasSubstr("a\n  push is 5 messages"),
                          HasSubstr("(10 with block_kib 512, 3 with 2048)"), Not(HasSubstr("plit"))))
      << text;
}

TEST(ExplainPlacement, SaysHowEvenServersAreAndWhereATensorIsSplit) {
  const std::string text = ExplainPlacement(Facts(3));
  EXPECT_THAT(
      text,
      AllOf(
          HasSubstr("0     399,952  1.60 MB  -0.002 %           2  conv1.weight to part of dense1.weight\n"),
          HasSubstr("1     399,968  1.60 MB  +0.002 %           2  part of dense1.weight\n"),
          HasSubstr("dense1.weight, 381,136 on 0, 399,968 on 1, 398,544 on 2."), Not(HasSubstr("1 %,"))))
      << text;
}

TEST(ExplainPlacement, OneBlockAServerIsReportedAsOneBlock) {
  EXPECT_THAT(ExplainPlacement(Facts(2, {"block_kib=4096"})),
              HasSubstr("one block of at most block_kib, 4096 KiB"));
}

TEST(ExplainPlacement, ManyServersTakeADozenLines) {
  const std::string text = ExplainPlacement(Facts(1000));
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 16) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("..."), HasSubstr("\n  999 ")));
}

TEST(ExplainPlacement, WarnsWhenServersAreUneven) {
  EXPECT_THAT(ExplainPlacement(Facts(1000)), HasSubstr("differ by more than 1 %"));
  EXPECT_THAT(ExplainPlacement(Facts(100)), Not(HasSubstr("differ by more")));
}

TEST(ExplainPlacement, SaysThatTensorsStayWhole) {
  const std::string text = ExplainPlacement(Facts(3, {"optimizer.kind=LARS"}));
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("each as a whole, in parts that are as even as possible"),
            HasSubstr("No tensor is split between servers."),
            HasSubstr("because tensors stay whole,\n  and the largest, dense1.weight, has 98.31 % of the"),
            Not(HasSubstr("multiples of 16"))))
      << text;
  EXPECT_THAT(ExplainPlacement(Facts(1, {"optimizer.kind=LAMB", "block_kib=65536"})),
              HasSubstr("A server's part is one block: it is sent"));
  EXPECT_THAT(ExplainPlacement(Facts(1, {"optimizer.kind=LAMB"})),
              AllOf(HasSubstr("block_kib 1024 KiB or one larger\n  tensor alone"),
                    HasSubstr("a push is 3 messages.")));
}

TEST(JobToJson, PlacesEveryParameterOnce) {
  const JobFacts facts = Facts(3);
  const nlohmann::ordered_json json = JobToJson(facts);
  EXPECT_EQ(json["valid"], true);
  EXPECT_EQ(json["bytes"], 4 * 1199882);
  int64_t end = 0, blocks = 0;
  for (const auto& server : json["placement"]) {
    EXPECT_EQ(server["begin"], end);
    end = server["end"];
    EXPECT_EQ(server["bytes"], 4 * (end - server["begin"].get<int64_t>()));
    EXPECT_LT(std::abs(server["against_even_percent"].get<double>()), 1);
    blocks += server["blocks"].get<int64_t>();
  }
  EXPECT_EQ(end, 1199882);
  EXPECT_EQ(json["block"]["count"], blocks);
  EXPECT_EQ(json["wire"]["push_messages"], blocks);
  EXPECT_EQ(json["wire"]["push_bytes"], facts.wire().sent);
  EXPECT_EQ(json["memory"]["servers"].size(), 3u);
  EXPECT_EQ(json["memory"]["servers"][1]["total"], facts.server(1).total());
}

TEST(JobToJson, NamesTheServersOfASplitTensor) {
  const nlohmann::ordered_json tensors = JobToJson(Facts(3))["tensors"];
  EXPECT_EQ(tensors[4]["name"], "dense1.weight");
  EXPECT_EQ(tensors[4]["shape"], (std::vector<int64_t>{128, 9216}));
  EXPECT_EQ(tensors[4]["parts"].dump(),
            R"([{"server":0,"begin":0,"end":381136},{"server":1,"begin":381136,"end":781104},)"
            R"({"server":2,"begin":781104,"end":1179648}])");
  EXPECT_EQ(tensors[0]["parts"].size(), 1u);
}

}  // namespace
}  // namespace catchment
