// Tests `catchment manifests`. tests/deploy/kubernetes_test.sh checks its output against Kubernetes' schemas,
// and runs it.
#include "cli/cluster/manifests.h"

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

TEST(Manifests, MemoryAndStorageFollowTheJob) {
  const CommandOutcome small = Make({});
  for (const char* const role : {"worker", "evaluator"}) {
    EXPECT_THAT(Document(small, "Job", absl::StrCat("catchment-", role)),
                AllOf(HasSubstr("requests:\n              cpu: \"1\"\n              memory: \"1Gi\"\n"),
                      HasSubstr("limits:\n              memory: \"4Gi\"\n")));
  }
  EXPECT_THAT(Document(small, "PersistentVolumeClaim", "catchment-out"), HasSubstr("storage: \"10Gi\"\n"));
  // `catchment validate` says 10.8 GB for a worker, and 511 MB for the server.
  const CommandOutcome large =
      RunToOutcome(RunManifests, {"examples/resnet50.textproto", "--image=i", "--set=device=CPU"});
  ASSERT_EQ(large.code, 0) << large.err;
  EXPECT_THAT(Document(large, "Job", "catchment-worker"), HasSubstr("memory: \"15680Mi\"\n"));
  EXPECT_THAT(Document(large, "StatefulSet", "catchment-server"), HasSubstr("memory: \"1Gi\"\n"));
  const CommandOutcome given = Make({"--memory=6Gi", "--server_memory=500M", "--storage=1Ti"});
  EXPECT_THAT(Document(given, "Job", "catchment-worker"),
              HasSubstr("limits:\n              memory: \"6Gi\"\n"));
  EXPECT_THAT(Document(given, "StatefulSet", "catchment-server"),
              AllOf(HasSubstr("limits:\n              memory: \"500M\"\n"), Not(HasSubstr("Gi\""))));
  EXPECT_THAT(Document(given, "PersistentVolumeClaim", "catchment-out"), HasSubstr("storage: \"1Ti\"\n"));
}

TEST(Manifests, PodsArePlacedByRole) {
  const CommandOutcome made =
      Make({"--node_selector=zone=a", "--node_selector=worker:pool=spot", "--set=device=CUDA",
            "--toleration=worker:spot=true:NoSchedule", "--toleration=dedicated", "--ttl_seconds=600"});
  ASSERT_EQ(made.code, 0) << made.err;
  const std::string worker = Document(made, "Job", "catchment-worker");
  EXPECT_THAT(worker, AllOf(HasSubstr("nodeSelector:\n        zone: a\n        pool: spot\n"),
                            HasSubstr("- key: nvidia.com/gpu\n          operator: Exists\n"),
                            HasSubstr("- key: spot\n          operator: Equal\n          value: \"true\"\n"
                                      "          effect: NoSchedule\n"),
                            HasSubstr("- key: dedicated\n          operator: Exists\n"),
                            HasSubstr("ttlSecondsAfterFinished: 600\n")));
  EXPECT_THAT(Document(made, "StatefulSet", "catchment-server"),
              AllOf(HasSubstr("nodeSelector:\n        zone: a\n"), Not(HasSubstr("spot"))));
  EXPECT_THAT(Document(Make({"--jobset", "--ttl_seconds=0"}), "JobSet", "catchment"),
              HasSubstr("\n  ttlSecondsAfterFinished: 0\n"));
}

TEST(Manifests, RecommendedLabelsAreOfNoSelector) {
  const CommandOutcome made = Make({});
  EXPECT_THAT(Document(made, "StatefulSet", "catchment-server"),
              AllOf(HasSubstr("app.kubernetes.io/name: catchment\n"),
                    HasSubstr("app.kubernetes.io/version: \"0.1.0\"\n"),
                    HasSubstr("app.kubernetes.io/managed-by: catchment-manifests\n"),
                    HasSubstr("    matchLabels:\n      app.kubernetes.io/part-of: catchment\n      "
                              "app.kubernetes.io/instance: catchment\n      app.kubernetes.io/component: "
                              "server\n  template:\n")));
}

TEST(Manifests, WorkersRunAProgram) {
  const std::string job = testing::TempDir() + "/external.textproto";
  std::ofstream(job) << R"(
    model { external { tensors { name: "w" shape: 1000 } } initial_weights: "w.safetensors" }
    data { external { train_samples: 64 } })";
  const auto make = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {job, "--image=i"});
    return RunToOutcome(RunManifests, flags);
  };
  const CommandOutcome made = make({"--program=python train.py $(NAME)"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(Document(made, "ConfigMap", "catchment-job"),
              HasSubstr("initial_weights: \"/out/initial.safetensors\"\n"));
  const std::string worker = Document(made, "Job", "catchment-worker");
  EXPECT_THAT(worker, AllOf(HasSubstr("name: PROGRAM\n              value: \"python train.py $$(NAME)\"\n"),
                            HasSubstr("mountPath: /dev/shm\n"), HasSubstr("fsGroup: 10001\n"),
                            HasSubstr("- name: out\n              mountPath: /out\n            - name"),
                            HasSubstr("memory: \"2Gi\"\n")));
  EXPECT_THAT(Document(made, "StatefulSet", "catchment-server"),
              AllOf(HasSubstr("name: AWAIT\n              value: /out/initial.safetensors\n"),
                    Not(HasSubstr("PROGRAM"))));
  EXPECT_EQ(Document(made, "Job", "catchment-evaluator"), "") << "there is no test set";
  EXPECT_THAT(make({}).err, HasSubstr("add --program=COMMAND"));
  const CommandOutcome failed = RunToOutcome(RunManifests, {"--image=i", "--program=exit 3"});
  EXPECT_EQ(failed.code, kExitFailed);
  EXPECT_THAT(failed.err, HasSubstr("exit 3"));
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
  EXPECT_THAT(error({kJob, image, "--memory=16GB"}), HasSubstr("--memory=16GB: must be a whole number"));
  EXPECT_THAT(error({kJob, image, "--storage=0"}), HasSubstr("--storage=0: "));
  EXPECT_THAT(error({kJob, image, "--node_selector=gpu"}), HasSubstr("--node_selector=gpu: must be a label"));
  EXPECT_THAT(error({kJob, image, "--toleration=a:Never"}),
              HasSubstr("--toleration=a:Never: must be a taint"));
  EXPECT_THAT(error({kJob, image, "--ttl_seconds=-1"}), HasSubstr("--ttl_seconds=-1: "));
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
