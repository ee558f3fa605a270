#include "kernels/cuda/products/product_tuner.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/root_failure.h"
#include "base/status.h"
#include "kernels/cuda/ops/row_bucket.h"
#include "kernels/cuda/products/product_timer.h"
#include "kernels/cuda/products/tuning_lock.h"

namespace coppice::kernels::cuda {
namespace {

constexpr size_t kMostWeights = 8;   // weights measured per shape; more would only take longer
constexpr double kMostWait_s = 100;  // wait for another process that tunes

// The products of one shape, by the first of them, and the row counts that they are padded to.
struct ShapeGroup {
  std::vector<PassProduct> products;
  std::vector<int64_t> buckets;
};

std::vector<ShapeGroup> GroupByShape(const std::vector<PassProduct>& products) {
  std::vector<ShapeGroup> groups;
  std::map<ProductKey, size_t> places;
  for (const PassProduct& product : products) {
    const MatMulArgs args = ArgsOf(product, /*rows=*/1);
    const auto [place, fresh] = places.emplace(MatrixProducts::KeyOf(args), groups.size());
    if (fresh) groups.push_back({{}, RowBucketsUpTo(args.room)});
    ShapeGroup& group = groups[place->second];
    group.products.push_back(product);
  }
  return groups;
}

std::string NameOf(const ProductChoice& choice) {
  if (choice.kind == ProductChoice::Kind::kRows) return "the row product";
  if (choice.kind == ProductChoice::Kind::kBlocks) return "the block product";
  if (choice.kind == ProductChoice::Kind::kLibrary) return "cuBLASLt";
  return absl::StrCat("the skinny kernel, ", choice.splits, " splits");
}

class Tuner {
 public:
  Tuner(const TuningRequest& request, const DeviceFacts& device, DeviceStream* stream,
        MatrixProducts* products)
      : request_(request),
        device_(device),
        stream_(stream),
        products_(products),
        place_({device.name, device.multiprocessors, CublasMatMul::version(),
                products->workspace_bytes(), products->exact()}) {}

  // given: choices that are taken before those of the file.
  absl::StatusOr<std::vector<RowCost>> Run(ProductTable given = {});
  const ProductTable& chosen() const { return chosen_; }
  const TuningPlace& place() const { return place_; }

 private:
  void Read();
  // The known choice for a product, from rank 0 or from the file.
  std::optional<ProductChoice> Known(const ProductKey& key);
  absl::Status Tune(const ShapeGroup& group);
  absl::StatusOr<ProductChoice> Measure(const ShapeGroup& group, int64_t rows);
  // Called before the first measurement: waits for other tuning processes, and reads what they have
  // found.
  absl::Status Begin();
  void Keep();
  std::vector<RowCost> Costs(const std::vector<ShapeGroup>& groups) const;

  const TuningRequest& request_;
  const DeviceFacts& device_;
  DeviceStream* const stream_;
  MatrixProducts* const products_;
  const TuningPlace place_;
  std::string path_;
  ProductTable given_;   // given by rank 0
  ProductTable kept_;    // found in the file
  ProductTable chosen_;  // chosen for this pass
  TuningLock lock_;
  std::optional<ProductTimer> timer_;
  int measured_ = 0, refused_ = 0;
};

absl::StatusOr<std::vector<RowCost>> Tuner::Run(ProductTable given) {
  given_ = std::move(given);
  const SteadyClock clock;
  const double begin_s = clock.NowSeconds();
  const std::string folder = TuningFolder(request_.cache);
  if (folder.empty()) {
    spdlog::warn("tuned matrix products are not kept: neither XDG_CACHE_HOME nor HOME is set");
  } else {
    path_ = TuningFilePath(folder, place_);
    if (given_.empty()) Read();  // otherwise only when something is missing
  }
  const std::vector<ShapeGroup> groups = GroupByShape(request_.products);
  for (const ShapeGroup& group : groups) COPPICE_RETURN_IF_ERROR(Tune(group));
  products_->Use(chosen_);
  if (measured_ == 0 && !given_.empty()) {
    spdlog::info("{} matrix products as rank 0 has tuned them", chosen_.size());
  } else if (measured_ == 0) {
    spdlog::info("{} matrix products as tuned before, from {}", chosen_.size(), path_);
  } else {
    spdlog::info("{} of {} matrix products tuned in {:.1f} s", measured_, chosen_.size(),
                 clock.NowSeconds() - begin_s);
    Keep();
  }
  return Costs(groups);
}

// Reads the tuning file. Warns only once, since it is called again when another process has tuned.
void Tuner::Read() {
  absl::StatusOr<ProductTable> table = ReadTuningFile(path_, place_);
  if (table.ok()) {
    kept_ = *std::move(table);
  } else if (!absl::IsNotFound(table.status()) && !lock_.held()) {
    spdlog::warn("tuned matrix products are measured anew: {}",
                 std::string(table.status().message()));
  }
}

std::optional<ProductChoice> Tuner::Known(const ProductKey& key) {
  const auto given = given_.find(key);
  if (given != given_.end() && products_->Takes(key, given->second)) return given->second;
  const auto found = kept_.find(key);
  if (found == kept_.end()) return std::nullopt;
  if (products_->Takes(key, found->second)) return found->second;
  if (refused_++ == 0) {
    spdlog::warn("{}: its choice for {} is not taken here; such are measured anew", path_,
                 ProductName(key));
  }
  return std::nullopt;
}

absl::Status Tuner::Tune(const ShapeGroup& group) {
  const int before = measured_;
  for (const int64_t rows : group.buckets) {
    const ProductKey key = MatrixProducts::KeyOf(ArgsOf(group.products[0], rows));
    std::optional<ProductChoice> choice = Known(key);
    if (!choice.has_value() && !timer_.has_value()) {
      COPPICE_RETURN_IF_ERROR(Begin());
      choice = Known(key);
    }
    if (!choice.has_value()) {
      if (measured_ == before) spdlog::info("tuning the products of {}", ProductName(key));
      COPPICE_ASSIGN_OR_RETURN(choice, Measure(group, rows));
      ++measured_;
    }
    chosen_[key] = *choice;
    if (request_.moves_on) request_.moves_on();
  }
  return absl::OkStatus();
}

absl::Status Tuner::Begin() {
  if (!path_.empty()) {
    lock_ = TuningLock::Wait(path_ + ".lock", kMostWait_s, request_.moves_on);
    Read();
  }
  COPPICE_ASSIGN_OR_RETURN(ProductTimer timer, ProductTimer::Create(device_, stream_));
  timer_ = std::move(timer);
  std::set<void*> filled;
  for (const PassProduct& product : request_.products) {
    if (filled.insert(product.y.data).second) COPPICE_RETURN_IF_ERROR(timer_->FillZero(product.y));
  }
  for (const PassProduct& product : request_.products) {
    if (filled.insert(product.x.data).second)
      COPPICE_RETURN_IF_ERROR(timer_->FillInputs(product.x));
  }
  return absl::OkStatus();
}

// Takes the first of equally fast ones, so that equal measurements give equal choices.
absl::StatusOr<ProductChoice> Tuner::Measure(const ShapeGroup& group, int64_t rows) {
  std::vector<MatMulArgs> calls;
  for (const PassProduct& product : group.products) {
    if (calls.size() == kMostWeights) break;
    calls.push_back(ArgsOf(product, rows));
  }
  const ProductKey key = MatrixProducts::KeyOf(calls[0]);
  COPPICE_ASSIGN_OR_RETURN(const std::vector<ProductChoice> candidates, products_->Candidates(key));
  ProductChoice best;
  best.seconds = std::numeric_limits<double>::infinity();
  absl::Status refused = absl::UnimplementedError("no algorithm is proposed");
  for (ProductChoice candidate : candidates) {
    const absl::StatusOr<double> seconds = timer_->Time(calls, candidate, best.seconds, products_);
    if (absl::IsUnimplemented(seconds.status())) {
      refused = seconds.status();  // cuBLASLt proposed it but refuses it
      continue;
    }
    COPPICE_RETURN_IF_ERROR(seconds.status());
    candidate.seconds = *seconds;
    if (candidate.seconds < best.seconds) best = candidate;
  }
  if (best.seconds == std::numeric_limits<double>::infinity()) {
    spdlog::warn("cuBLASLt takes no product of {}, which goes by the row product: {}",
                 ProductName(key), std::string(refused.message()));
    best = MatrixProducts::RowChoice();
    COPPICE_ASSIGN_OR_RETURN(best.seconds, timer_->Time(calls, best, best.seconds, products_));
  }
  spdlog::debug("{}: {} in {:.1f} us, of {} candidates", ProductName(key), NameOf(best),
                best.seconds * 1e6, candidates.size());
  return best;
}

// Writes the file, together with what other models have put there.
void Tuner::Keep() {
  if (path_.empty()) return;
  for (const auto& [key, choice] : chosen_) kept_[key] = choice;
  const absl::Status written = WriteTuningFile(path_, place_, kept_);
  if (written.ok()) {
    spdlog::info("tuned matrix products are kept in {}", path_);
  } else {
    spdlog::warn("tuned matrix products are not kept: {}", std::string(written.message()));
  }
}

std::vector<RowCost> Tuner::Costs(const std::vector<ShapeGroup>& groups) const {
  std::set<int64_t> sizes;
  for (const ShapeGroup& group : groups) sizes.insert(group.buckets.begin(), group.buckets.end());
  std::vector<RowCost> costs;
  for (const int64_t rows : sizes) {
    RowCost cost = {rows, 0};
    for (const ShapeGroup& group : groups) {
      const int64_t held = std::min(rows, group.buckets.back());
      const auto choice = chosen_.find(MatrixProducts::KeyOf(ArgsOf(group.products[0], held)));
      cost.seconds += choice->second.seconds * static_cast<double>(group.products.size());
    }
    costs.push_back(cost);
  }
  return costs;
}

// What rank 0 sends while it tunes, and when it has.
constexpr char kGoesOn[] = "goes on", kFailed[] = "failed";

// Tunes on rank 0. Each sign of progress is passed to the other ranks.
absl::StatusOr<std::vector<RowCost>> Lead(const TuningRequest& request, const DeviceFacts& device,
                                          DeviceStream* stream, MatrixProducts* products) {
  comm::Communicator* const communicator = request.communicator;
  absl::Status sent;
  const auto send = [&](std::string message) {
    if (sent.ok()) sent = communicator->Broadcast(&message);
  };
  TuningRequest told = request;
  told.moves_on = [&] {
    send(kGoesOn);
    if (request.moves_on) request.moves_on();
  };
  Tuner tuner(told, device, stream, products);
  absl::StatusOr<std::vector<RowCost>> costs = tuner.Run();
  send(costs.ok() ? ProductTableText(tuner.place(), tuner.chosen()) : kFailed);
  COPPICE_RETURN_IF_ERROR(sent);
  return costs;
}

// Receives what rank 0 has found; empty if that was found on another kind of device.
absl::StatusOr<ProductTable> Receive(const TuningRequest& request, const TuningPlace& place) {
  std::string message;
  do {
    COPPICE_RETURN_IF_ERROR(request.communicator->Broadcast(&message));
    if (request.moves_on) request.moves_on();
  } while (message == kGoesOn);
  if (message == kFailed) {
    return OtherRankFailed(
        absl::StrCat("rank ", request.communicator->rank(), " of ", request.communicator->size(),
                     " ends because rank 0 has not tuned its products, and says why"));
  }
  absl::StatusOr<ProductTable> table = ParseProductTable(place, message);
  if (table.ok()) return table;
  spdlog::warn("matrix products are not as rank 0 has tuned them: {}",
               std::string(table.status().message()));
  return ProductTable();
}

}  // namespace

absl::StatusOr<std::vector<RowCost>> TuneProducts(const TuningRequest& request,
                                                  const DeviceFacts& device, DeviceStream* stream,
                                                  MatrixProducts* products) {
  const bool alone = request.communicator == nullptr || request.communicator->size() == 1;
  if (!alone && request.communicator->rank() == 0) return Lead(request, device, stream, products);
  Tuner tuner(request, device, stream, products);
  if (alone) return tuner.Run();
  COPPICE_ASSIGN_OR_RETURN(ProductTable given, Receive(request, tuner.place()));
  return tuner.Run(std::move(given));
}

}  // namespace coppice::kernels::cuda
