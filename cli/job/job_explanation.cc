#include "cli/job/job_explanation.h"

#include <google/protobuf/text_format.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/terminal.h"
#include "cli/live/advice.h"
#include "cli/live/status_text.h"
#include "common/base/text.h"
#include "common/codec/codec.h"
#include "common/codec/scaled_groups.h"
#include "common/job/data_sources.h"

namespace catchment {
namespace {

constexpr int kIndent = 17;
constexpr int kWidest = 100;
// The most rows of the table; of more layers, the first and the last half of these are shown.
constexpr size_t kShownLayers = 16;

std::string Item(const std::string& name, const std::string& text) {
  std::string head = "  " + name;
  head.resize(kIndent, ' ');
  return HangingParagraph(head, text, kIndent, ProseColumns(kWidest));
}

// Returns a line of a job file.
std::string InFile(const std::string& field, const google::protobuf::Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  printer.PrintToString(message, &text);
  absl::StripAsciiWhitespace(&text);
  return absl::StrCat("  ", field, text.empty() ? " {}" : absl::StrCat(" { ", text, " }"), "\n");
}

std::string KindOf(const LayerShape& layer) {
  const std::string window = absl::StrCat(" ", layer.kernel_size, "x", layer.kernel_size);
  const int64_t usual_stride = layer.kind == LayerKind::kConv2D ? 1 : layer.kernel_size;
  const std::string stride = layer.stride == usual_stride ? "" : absl::StrCat(" stride ", layer.stride);
  const std::string padding = layer.padding == 0 ? "" : absl::StrCat(" padding ", layer.padding);
  switch (layer.kind) {
    case LayerKind::kConv2D:
      return absl::StrCat("conv2d", window, stride, padding,
                          layer.groups == 1 ? "" : absl::StrCat(" groups ", layer.groups),
                          layer.bias ? "" : " no bias");
    case LayerKind::kDense:
      return layer.bias ? "dense" : "dense no bias";
    case LayerKind::kMaxPool:
      return absl::StrCat("max_pool", window, stride, padding);
    case LayerKind::kAveragePool:
      return absl::StrCat("average_pool", window, stride, padding);
    case LayerKind::kBatchNorm:
      return absl::StrCat("batch_norm",
                          layer.ghost_batch == 0 ? "" : absl::StrCat(" ghosts of ", layer.ghost_batch));
    case LayerKind::kDropout:
      return absl::StrCat("dropout ", Short(layer.rate));
    default:
      return layer.external ? "external" : LayerKindName(layer.kind);
  }
}

std::string DescribeSteps(const v1::SyntheticModel& model) {
  const std::string length =
      model.spread() == 0 ? absl::StrCat("takes ", Short(model.step_ms()), " ms")
                          : absl::StrCat("takes ", Short(model.step_ms()),
                                         " ms on average, log-normal with sigma ", Short(model.spread()));
  return HangingParagraph(
      "  ",
      absl::StrCat("Synthetic: a step ", length,
                   " without using the processor, and sends fixed numbers. Nothing is learned."),
      2, ProseColumns(kWidest));
}

// Returns sentences that precede the table of layers.
std::string DescribeOrigin(const v1::Model& model) {
  std::string text;
  if (model.has_external()) {
    text =
        "External: each worker is started with a program (--program=COMMAND) that computes the gradients. ";
  }
  if (!model.initial_weights().empty()) {
    absl::StrAppend(&text, "Initial weights: those in ", model.initial_weights(),
                    ", which every server reads.");
  }
  return text.empty() ? "" : HangingParagraph("  ", text, 2, ProseColumns(kWidest));
}

void AddLayer(const LayerShape& layer, Table* table) {
  int64_t parameters = 0;
  for (const TensorSpec& tensor : layer.tensors) parameters += tensor.size();
  const bool no_shapes = layer.kind == LayerKind::KIND_NOT_SET;
  table->Add({layer.name, KindOf(layer), no_shapes ? "" : ToString(layer.input),
              no_shapes ? "" : ToString(layer.output), parameters == 0 ? "" : Count(parameters)});
}

std::string DescribeData(const JobFacts& facts) {
  const std::string sizes = absl::StrCat(Count(facts.train_samples()), " samples for training, ",
                                         Count(facts.test_samples()), " for tests");
  return SourceOf(facts.job().data()).describe(facts.job().data(), sizes);
}

std::string DescribeCodec(const v1::Compression& compression, v1::Compression::Codec codec) {
  const std::string name = v1::Compression::Codec_Name(codec);
  if (!HasErrorFeedback(codec)) return name;
  const float decay = compression.residual_decay();
  const std::string factor = decay == 1 ? "" : absl::StrCat(", times ", Short(decay), ",");
  if (codec == v1::Compression::TOP_K) {
    return absl::StrCat(name, ": the largest ", Short(100 * compression.top_k_fraction()),
                        " % of each block; the rest", factor, " is added to the next gradient");
  }
  const GroupFormat& format = *FindGroupFormat(codec);
  return absl::StrCat(name, ": ", format.bits, " bits a value and a scale for every ", format.group,
                      "; the rounding error", factor, " is added to the next gradient");
}

std::string DescribePrecision(const v1::Computation& computation) {
  constexpr char kRest[] = "; sums and everything else are float32. A CPU computes in float32.";
  switch (computation.precision()) {
    case v1::Computation::TF32:
      return absl::StrCat("A CUDA device rounds factors to 11 significant bits", kRest);
    case v1::Computation::BFLOAT16:
      return absl::StrCat("A CUDA device rounds factors to 8 significant bits", kRest);
    case v1::Computation::FLOAT16:
      return absl::StrCat(
          "A CUDA device rounds factors to 11 significant bits and float16's range", kRest,
          " The loss is multiplied by ", Count(static_cast<int64_t>(computation.loss_scale())),
          " at first; a minibatch whose gradient overflows is repeated with half of that, and after ",
          Count(computation.loss_scale_period()),
          " in a row without overflow it is doubled. Gradients are sent only when all are known.");
    default:
      return "Everything is float32.";
  }
}

}  // namespace

std::string ExplainAlgorithm(const JobFacts& facts) {
  const v1::Algorithm& algorithm = facts.job().algorithm();
  v1::Optimizer ungrouped = facts.job().optimizer();
  ungrouped.clear_groups();  // ExplainGroups has them
  return absl::StrCat(
      "algorithm: the preset \"", algorithm.preset(), "\" and the job's own settings are these axes\n",
      InFile("algorithm.consistency ", algorithm.consistency()),
      InFile("algorithm.contribution", algorithm.contribution()),
      InFile("algorithm.compensation", algorithm.compensation()), InFile("optimizer             ", ungrouped),
      "effect\n", Item("who waits", DescribeConsistency(facts)),
      Item("what is sent", DescribeContribution(facts)), Item("staleness", DescribeCompensation(facts)),
      Item("optimizer", DescribeOptimizer(facts)),
      Item("learning rate", DescribeSchedule(facts) + DescribeWorkerScaling(facts)),
      Item("budget", DescribeBudget(facts)), Item("evaluation", DescribeEvaluation(facts.job())));
}

std::string ExplainModel(const JobFacts& facts) {
  Table table;
  table.Add({"layer", "kind", "input", "output", "parameters"});
  const std::vector<LayerShape>& layers = facts.layers();
  const bool all = layers.size() <= kShownLayers;
  const size_t shown = all ? layers.size() : kShownLayers / 2;
  for (size_t i = 0; i < shown; ++i) AddLayer(layers[i], &table);
  if (!all) table.Add({"...", absl::StrCat(layers.size() - 2 * shown, " more layers"), "", "", ""});
  for (size_t i = all ? layers.size() : layers.size() - shown; i < layers.size(); ++i)
    AddLayer(layers[i], &table);
  table.Add({"total", "", "", "", Count(facts.layout().size())});
  const v1::Model& model = facts.job().model();
  return absl::StrCat("model\n", model.has_synthetic() ? DescribeSteps(model.synthetic()) : "",
                      DescribeOrigin(model), table.Print());
}

std::string ExplainServers(const JobFacts& facts) {
  Table table;
  table.Add({"server", "weights", "optimizer state", "compensation at most", "waiting at most", "snapshot",
             "standby", "total"});
  for (const int s : ShownServers(facts.servers())) {
    if (s < 0) {
      table.Add({"...", "", "", "", "", "", "", ""});
      continue;
    }
    const ServerBytes bytes = facts.server(s);
    table.Add({absl::StrCat(s), Bytes(bytes.weights), Bytes(bytes.optimizer_state), Bytes(bytes.compensation),
               Bytes(bytes.waiting), Bytes(bytes.snapshot), Bytes(bytes.standby), Bytes(bytes.total())});
  }
  return absl::StrCat(
      HangingParagraph(
          "",
          "memory of each server (compensation: copies of the weights sent to each worker; waiting: "
          "contributions not yet applied, and answers not yet sent; snapshot: the copy from which checkpoints are "
          "written; standby: the copy of another server's shard)",
          0, ProseColumns(kWidest)),
      table.Print());
}

std::string ExplainWorker(const JobFacts& facts) {
  const WorkerBytes bytes = facts.worker();
  Table table;
  table.Add({"", "model and activations", "algorithm", "total"});
  table.Add({"worker", Bytes(bytes.model), Bytes(bytes.algorithm), Bytes(bytes.total())});
  return absl::StrCat("memory of each worker, roughly, without the data and the kernels' own buffers\n",
                      table.Print());
}

std::string ExplainComputation(const JobFacts& facts) {
  const v1::Computation& computation = facts.job().computation();
  return absl::StrCat("precision of matrix products\n", InFile("computation", computation),
                      HangingParagraph("  ", DescribePrecision(computation), 2, ProseColumns(kWidest)));
}

bool IsCompressed(const v1::Compression& compression) {
  return compression.push() != v1::Compression::FLOAT32 || compression.pull() != v1::Compression::FLOAT32;
}

std::string ExplainWire(const JobFacts& facts) {
  const WireBytes wire = facts.wire();
  const v1::Compression& compression = facts.job().compression();
  const std::string split = facts.servers() == 1 ? "" : absl::StrCat(", over ", facts.servers(), " servers");
  const std::string text = absl::StrCat(
      "sends ", Bytes(wire.sent), " (", DescribeCodec(compression, compression.push()), ") ",
      EverySteps(wire.send_every), ", receives ", Bytes(wire.received), " (",
      DescribeCodec(compression, compression.pull()), ") ", EverySteps(wire.receive_every), "; ",
      Bytes(wire.per_step()), " a step on average",
      facts.knows_budget() ? absl::StrCat("; ", Bytes(wire.per_step() * facts.total_steps()),
                                          " in the whole job, over all workers")
                           : "",
      facts.job().shared_memory() && IsCompressed(compression)
          ? "; between processes of one machine, which share memory, no codec (FLOAT32) is faster"
          : "");
  return absl::StrCat("on the wire, for each worker", split, "\n", InFile("compression", compression),
                      HangingParagraph("  ", text, 2, ProseColumns(kWidest)));
}

std::string ExplainJob(const JobFacts& facts) {
  const std::vector<Warning> warnings = AdviseJob(facts.job());
  return absl::StrCat(
      "job ", facts.job().name(), ": valid; ", Plural(facts.servers(), "server"), ", ",
      Plural(facts.workers(), "worker"), "\n\n", ExplainAlgorithm(facts), "\n", ExplainModel(facts), "\n",
      ExplainGroups(facts), "data\n", HangingParagraph("  ", DescribeData(facts), 2, ProseColumns(kWidest)),
      "\n", ExplainPlacement(facts), "\n", ExplainServers(facts), "\n", ExplainWorker(facts), "\n",
      ExplainComputation(facts), "\n", ExplainWire(facts),
      warnings.empty() ? "" : absl::StrCat("\n", WarningsText(warnings, ProseColumns(kWidest))));
}

}  // namespace catchment
