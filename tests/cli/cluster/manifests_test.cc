// Tests `catchment manifests`. tests/deploy/kubernetes_test.sh checks its output against Kubernetes' schemas,
// and runs it.
#include "cli/cluster/manifests.h"

#include <string>
#include <vector>

#include "common/program/command_line.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cli/command_outcome.h"

namespace catchment {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

constexpr char kJob[] = "examples/drawn_digits.textproto";

CommandOutcome Make(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {kJob, "--image=registry.example/catchment:0.1.0"});
  return RunToOutcome(RunManifests, flags);
}

// Returns the document of this kind and name; empty if there is none.
std::string Document(const CommandOutcome& outcome, const std::string& kind, const std::string& name) {
  const std::string head = "kind: " + kind + "\nmetadata:\n  name: " + name + "\n";
  const size_t begin = outcome.out.find(head);
  return begin == std::string::npos ? ""
                                    : outcome.out.substr(begin, outcome.out.find("---\n", begin) - begin);
}

TEST(Manifests, NumbersAreTheSameEverywhere) {
  const CommandOutcome made = Make({"--workers=8", "--servers=3", "--evaluators=2", "--threads=4"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(Document(made, "ConfigMap", "catchment-job"), HasSubstr("\n    workers: 8\n"));
  EXPECT_THAT(Document(made, "StatefulSet", "catchment-server"),
              AllOf(HasSubstr("replicas: 3\n"), HasSubstr("name: SERVERS\n              value: \"3\"\n"),
                    HasSubstr("- --evaluators=2\n")));
  EXPECT_THAT(Document(made, "Job", "catchment-worker"),
              AllOf(HasSubstr("completions: 8\n  parallelism: 8\n"), HasSubstr("- --threads=4\n"),
                    HasSubstr("cpu: \"4\"\n"), HasSubstr("type: DisruptionTarget\n")));
  EXPECT_THAT(Document(made, "Job", "catchment-evaluator"), HasSubstr("completions: 2\n"));
  EXPECT_EQ(Document(Make({"--evaluators=0"}), "Job", "catchment-evaluator"), "");
}

TEST(Manifests, JobsOfTwoNamesHaveNoNameInCommon) {
  const CommandOutcome made = Make({"--name=fast", "--namespace=research", "--cert_manager"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out,
              AllOf(HasSubstr("--master=fast-server-0.fast-servers:7000"),
                    HasSubstr("app.kubernetes.io/instance: fast\n"), HasSubstr("namespace: research\n"),
                    Not(HasSubstr("name: catchment-")), Not(HasSubstr("claimName: catchment-")),
                    Not(HasSubstr("secretName: catchment-"))));
}

TEST(Manifests, FlagsOfTheClusterAreFollowed) {
  EXPECT_THAT(
      Make({"--data_claim=mnist"}).out,
      AllOf(HasSubstr("mountPath: /data\n"), HasSubstr("claimName: mnist\n            readOnly: true\n")));
  EXPECT_THAT(Make({"--storage_class=nfs"}).out,
              AllOf(HasSubstr("- ReadWriteMany\n"), HasSubstr("storageClassName: nfs\n")));
  EXPECT_THAT(Make({"--one_node"}).out, AllOf(HasSubstr("- ReadWriteOnce\n"), HasSubstr("cpu: \"100m\"\n"),
                                              HasSubstr("imagePullPolicy: IfNotPresent\n")));
  EXPECT_THAT(Document(Make({"--metrics_port=9100"}), "Job", "catchment-worker"),
              AllOf(HasSubstr("- --metrics_port=0.0.0.0:9100\n"), HasSubstr("containerPort: 9100\n")));
  EXPECT_THAT(Document(Make({"--metrics_port=9100"}), "NetworkPolicy", "catchment"),
              HasSubstr("    - from:\n        - podSelector: {}\n      ports:\n        - protocol: TCP\n     "
                        "     port: 9100\n"));
  EXPECT_THAT(
      Document(Make({"--metrics_port=9100", "--metrics_from=monitoring"}), "NetworkPolicy", "catchment"),
      AllOf(HasSubstr("namespaceSelector:\n"), HasSubstr("kubernetes.io/metadata.name: monitoring\n"),
            Not(HasSubstr("podSelector: {}"))));
  EXPECT_THAT(Make({"--set=device=CUDA"}).out, HasSubstr("nvidia.com/gpu: \"1\"\n"));
  EXPECT_THAT(Make({}).out, AllOf(HasSubstr("CATCHMENT_INSECURE"), Not(HasSubstr("nvidia")),
                                  Not(HasSubstr("mountPath: /data"))));
}

TEST(Manifests, CertificatesReplaceClearText) {
  EXPECT_THAT(
      Make({"--tls_secret=certs"}).out,
      AllOf(HasSubstr("secretName: certs\n"), HasSubstr("- key: worker.key\n                path: tls.key\n"),
            Not(HasSubstr("CATCHMENT_INSECURE")), Not(HasSubstr("grpc:\n"))));
  EXPECT_THAT(Document(Make({"--cert_manager", "--servers=2"}), "Certificate", "catchment-server"),
              HasSubstr("dnsNames:\n    - localhost\n    - catchment-server-0.catchment-servers\n"
                        "    - catchment-server-1.catchment-servers\n"));
}

TEST(Manifests, OnlyServersChangeWithTheJobFile) {
  const std::string server = Document(Make({}), "StatefulSet", "catchment-server");
  const std::string worker = Document(Make({}), "Job", "catchment-worker");
  EXPECT_THAT(server, HasSubstr("annotations:\n        catchment/job: "));
  EXPECT_EQ(Document(Make({}), "StatefulSet", "catchment-server"), server) << "the hash is not stable";
  for (const std::string change : {"--set=epochs=9", "--set=optimizer.learning_rate=0.3", "--set=seed=8"}) {
    const CommandOutcome changed = Make({change});
    EXPECT_NE(Document(changed, "StatefulSet", "catchment-server"), server) << change;
    EXPECT_EQ(Document(changed, "Job", "catchment-worker"), worker) << change;
  }
}

TEST(Manifests, WhatKubernetesCannotChangeIsReportedOnStandardError) {
  const CommandOutcome made = Make({"--name=fast", "--namespace=research"});
  EXPECT_EQ(made.code, 0);
  EXPECT_THAT(made.err, AllOf(HasSubstr("cannot change the Jobs of workers and evaluators"),
                              HasSubstr("kubectl delete statefulset,job --namespace=research "
                                        "--selector=app.kubernetes.io/instance=fast\n")));
  EXPECT_THAT(Make({"--jobset"}).err, HasSubstr("kubectl delete jobset --selector="));
}

TEST(Manifests, AJobSetHasAllPods) {
  const CommandOutcome made = Make({"--jobset", "--servers=2"});
  EXPECT_THAT(
      Document(made, "JobSet", "catchment"),
      AllOf(HasSubstr("- name: server\n"), HasSubstr("- name: worker\n"), HasSubstr("- name: evaluator\n"),
            HasSubstr("--master=catchment-server-0-0.catchment:7000\n")));
  EXPECT_THAT(made.out, Not(HasSubstr("kind: StatefulSet")));
}

TEST(Manifests, ErrorsNameTheFlag) {
  const auto error = [](const std::vector<std::string>& args) {
    const CommandOutcome outcome = RunToOutcome(RunManifests, args);
    EXPECT_EQ(outcome.code, kExitUsage) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  const std::string image = "--image=i";
  EXPECT_THAT(error({kJob}), HasSubstr("--image=IMAGE is required"));
  EXPECT_THAT(error({kJob, "--image=an image"}), HasSubstr("--image=an image: "));
  EXPECT_THAT(error({kJob, image, "--workers=0"}), HasSubstr("--workers=0: "));
  for (const std::string name :
       {"", "Fast", "a.b", "-a", "a-", "4u", "a-name-that-is-longer-than-labels-permit-it"}) {
    EXPECT_THAT(error({kJob, image, "--name=" + name}), HasSubstr("--name=" + name + ": ")) << name;
  }
  EXPECT_THAT(error({kJob, image, "--metrics_port=7000"}), HasSubstr("--metrics_port=7000: "));
  EXPECT_THAT(error({kJob, image, "--metrics_from=monitoring"}), HasSubstr("requires --metrics_port"));
  EXPECT_THAT(error({kJob, image, "--metrics_port=9100", "--metrics_from=a_b"}),
              HasSubstr("--metrics_from=a_b: "));
  EXPECT_THAT(error({kJob, image, "--namespace=a_b"}), HasSubstr("--namespace=a_b: "));
  EXPECT_THAT(error({kJob, image, "--data_claim=Mnist"}), HasSubstr("--data_claim=Mnist: "));
  EXPECT_THAT(error({kJob, image, "--tls_secret=a", "--cert_manager"}), HasSubstr("are mutually exclusive"));
}

TEST(Manifests, JobsThatPodsCannotTrainAreNotValid) {
  const auto error = [](const std::string& flag) {
    const CommandOutcome outcome = Make({flag});
    EXPECT_EQ(outcome.code, kExitFailed) << flag;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_THAT(error("--set=batch_size=0"), HasSubstr("batch_size"));
  EXPECT_THAT(error("--servers=1000000"), HasSubstr("1000000 servers"));
}

TEST(Yaml, ReadsAsTheSameValue) {
  const Json value = {{"plain", "a-b.c/d:1"},
                      {"flags", {"--a=b", "-c", "- c", "a: b", "a #b", "Yes", "1", "", "\t", "\"q\""}},
                      {"numbers", {1, true, nullptr}},
                      {"block", "two\n\n  lines\n"},
                      {"no_block", " led\nby a space"},
                      {"empty", {{"object", Json::object()}, {"array", Json::array()}}},
                      {"nested", Json::array({{{"a", 1}, {"b", Json::array({{{"c", 2}}})}}})}};
  EXPECT_EQ(ToYaml(value), R"(plain: a-b.c/d:1
flags:
  - --a=b
  - -c
  - "- c"
  - "a: b"
  - "a #b"
  - "Yes"
  - "1"
  - ""
  - "\t"
  - "\"q\""
numbers:
  - 1
  - true
  - null
block: |
  two

    lines
no_block: " led\nby a space"
empty:
  object: {}
  array: []
nested:
  - a: 1
    b:
      - c: 2
)");
}

}  // namespace
}  // namespace catchment
