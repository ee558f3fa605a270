#include "coordinator/coordinator_main.h"

#include <malloc.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/program.h"
#include "base/status.h"
#include "comm/mpi_world.h"
#include "coordinator/api/tokenizer_info.h"
#include "coordinator/message/reasoning_marks.h"
#include "coordinator/message/tool_format.h"
#include "coordinator/options.h"

namespace coppice::coordinator {
namespace {

// Every connection needs a descriptor.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Large bodies and answers get separate memory blocks, which return to the system when they are
// freed. By default glibc would raise the size limit for such blocks with each one that is freed,
// up to 32 MiB.
void GiveLargeBlocksBack() { mallopt(M_MMAP_THRESHOLD, 128 << 10); }

// Under one mpirun every rank receives the endpoint. Otherwise nodes get it by --coordinator.
absl::StatusOr<std::unique_ptr<comm::ServerChannel>> BindControl(
    const std::string& listen, const comm::ChannelOptions& channel_options,
    std::unique_ptr<comm::MpiWorld>* world) {
  if (!comm::MpiWorld::Launched())
    return comm::ServerChannel::Bind(listen.empty() ? "tcp://127.0.0.1:7000" : listen,
                                     channel_options);
  COPPICE_ASSIGN_OR_RETURN(*world, comm::MpiWorld::Init());
  COPPICE_ASSIGN_OR_RETURN(
      auto channel,
      comm::ServerChannel::Bind(listen.empty() ? "tcp://127.0.0.1:*" : listen, channel_options));
  COPPICE_RETURN_IF_ERROR(
      (*world)->Exchange(comm::Role::kCoordinator, channel->endpoint()).status());
  COPPICE_RETURN_IF_ERROR((*world)->Split(-1).status());
  return channel;
}

// How the model writes calls of tools and its reasoning.
void FindSyntax(const LaunchOptions& options, const tokenizer::ChatPrompt& chat,
                CoordinatorOptions* coordinator) {
  const auto mentions = [&chat](absl::string_view text) { return chat.Mentions(text); };
  if (options.reasoning == "auto") coordinator->reasoning = DetectReasoning(mentions);
  if (options.tool_format != "auto") {
    coordinator->tool_format = FindToolFormat(options.tool_format);
  } else if ((coordinator->tool_format = DetectToolFormat(mentions)) == nullptr) {
    coordinator->tool_format = FindToolFormat(kDefaultToolFormat);
    spdlog::warn(
        "the chat template writes calls of tools in no known format: {} is used, another can be "
        "given by --tool_format",
        kDefaultToolFormat);
  }
}

absl::StatusOr<std::shared_ptr<catalogue::CatalogueStore>> OpenCatalogues(
    const LaunchOptions& options) {
  catalogue::CatalogueStore::Model model{options.model, nullptr};
  if (!options.catalogues.empty()) {
    COPPICE_ASSIGN_OR_RETURN(model.vocabulary, tokenizer::Vocabulary::Load(options.model));
  }
  return catalogue::CatalogueStore::Open(options.catalogues, std::move(model));
}

absl::Status Serve(const LaunchOptions& options, std::unique_ptr<comm::MpiWorld>* world) {
  COPPICE_ASSIGN_OR_RETURN(auto tokenizer, tokenizer::Tokenizer::Load(options.model));
  COPPICE_ASSIGN_OR_RETURN(auto chat, tokenizer::ChatPrompt::Load(
                                          options.model, options.chat_template, tokenizer.get()));
  CoordinatorOptions coordinator_options = options.coordinator;
  COPPICE_ASSIGN_OR_RETURN(coordinator_options.tokenizer_info,
                           LoadTokenizerInfo(options.model, options.chat_template, *tokenizer));
  COPPICE_ASSIGN_OR_RETURN(coordinator_options.catalogues, OpenCatalogues(options));
  if (chat != nullptr) FindSyntax(options, *chat, &coordinator_options);
  GiveLargeBlocksBack();
  RaiseDescriptorLimit();
  COPPICE_ASSIGN_OR_RETURN(
      const auto coordinator,
      Coordinator::Start(coordinator_options, std::move(tokenizer), std::move(chat)));
  coordinator->HandleSignals();
  COPPICE_ASSIGN_OR_RETURN(auto control,
                           BindControl(options.control_listen, options.channel, world));
  spdlog::info("serving {}://{} as model {}, nodes join at {}",
               options.coordinator.http.tls_cert_file.empty() ? "http" : "https",
               coordinator->http_address(), absl::StrJoin(options.coordinator.model_names, ", "),
               control->endpoint());
  if (const SamplingDefaults& defaults = options.coordinator.sampling_defaults; !defaults.empty()) {
    spdlog::info(
        "requests that do not say otherwise are sampled as generation_config.json says: {}",
        defaults.Text());
  }
  coordinator->ServeNodes(std::move(control));
  coordinator->Run();
  return absl::OkStatus();
}

}  // namespace

int CoordinatorMain(int argc, char** argv) {
  LaunchOptions options;
  const FlagTable table = CoordinatorFlagTable(&options);
  ParseProgramFlags(table, argc, argv);
  std::unique_ptr<comm::MpiWorld> world;
  const absl::Status status = Serve(options, &world);
  // MPI_Finalize would wait for ranks that did not start. Without it, mpirun ends them too.
  if (!status.ok()) std::_Exit(FailProgram(table.program, status));
  if (world != nullptr) {
    // MPI_Finalize waits for every rank. A hanging rank must not block the exit.
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      std::_Exit(0);
    }).detach();
    world.reset();
  }
  return 0;
}

}  // namespace coppice::coordinator
