#include "lab/models/swin.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>

namespace tensorion::lab {
namespace {

constexpr double kNormEps = 1e-5;

// Reshapes (N, H, W, C) to (N, windows, window * window, C), with the windows in row-major order.
at::Tensor to_windows(const at::Tensor& x, int64_t window) {
  return x.unflatten(2, {-1, window}).unflatten(1, {-1, window}).transpose(2, 3).flatten(3, 4).flatten(1, 2);
}

// The inverse of to_windows, for `side` x `side` positions.
at::Tensor from_windows(const at::Tensor& windows, int64_t window, int64_t side) {
  return windows.unflatten(2, {window, window})
      .unflatten(1, {side / window, side / window})
      .transpose(2, 3)
      .flatten(3, 4)
      .flatten(1, 2);
}

// The row of the bias table for every pair of positions in a window. The rows are the offsets (dy, dx), each
// from 1 - window to window - 1, in row-major order.
at::Tensor relative_position_index(int64_t window) {
  const auto at = at::arange(window, at::kLong);
  const auto offset = (at.unsqueeze(1) - at + window - 1);  // (window, window)
  const auto y = offset.view({window, 1, window, 1});
  const auto x = offset.view({1, window, 1, window});
  return (y * (2 * window - 1) + x).flatten();
}

// After a cyclic shift, the last windows contain positions from opposite edges of the image. The mask is -100
// for pairs of positions from different edges and 0 otherwise. Its shape is (windows, 1, area, area).
at::Tensor shift_mask(int64_t side, int64_t window, int64_t shift) {
  // 0: before the last window, 1: the part of the last window before the wrap, 2: the part after it.
  auto band = at::zeros({side}, at::kLong);
  band.slice(0, side - window, side - shift).fill_(1);
  band.slice(0, side - shift).fill_(2);
  const auto region = (band.unsqueeze(1) * 3 + band).view({1, side, side, 1});
  const auto windows = to_windows(region, window).squeeze(0).squeeze(-1);
  const auto apart = windows.unsqueeze(1) != windows.unsqueeze(2);
  return (apart.to(at::kFloat) * -100.0).unsqueeze(1);
}

class WindowAttention : public torch::nn::Module {
 public:
  WindowAttention(int64_t dim, int64_t heads, int64_t window)
      : heads_(heads), area_(window * window), index_(relative_position_index(window)) {
    const int64_t offsets = (2 * window - 1) * (2 * window - 1);
    table_ = register_parameter("relative_position_bias_table", at::empty({offsets, heads}));
    qkv_ = register_module("qkv", torch::nn::Linear(dim, 3 * dim));
    proj_ = register_module("proj", torch::nn::Linear(dim, dim));
    trunc_normal_(table_, 0.02);
  }

  // x: (N, windows, area, dim); mask: (windows, 1, area, area) or undefined.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
    const auto qkv = qkv_->forward(x).unflatten(-1, {3, heads_, -1}).permute({3, 0, 1, 4, 2, 5});
    auto bias = table_.index_select(0, index_.to(table_.device())).t().reshape({heads_, area_, area_});
    if (mask.defined()) bias = bias + mask.to(bias.options());
    // Not scaled_dot_product_attention, which is slower on CPU if the bias needs a gradient.
    const double scale = 1.0 / std::sqrt(static_cast<double>(qkv.size(-1)));
    const auto scores = at::matmul(qkv[0] * scale, qkv[1].mT()) + bias;
    const auto mixed = at::matmul(scores.softmax(-1), qkv[2]);
    return proj_->forward(mixed.transpose(2, 3).flatten(3));
  }

 private:
  int64_t heads_;
  int64_t area_;
  at::Tensor index_;
  at::Tensor table_;
  torch::nn::Linear qkv_{nullptr};
  torch::nn::Linear proj_{nullptr};
};

// x + attention(norm(x)) within windows, then x + mlp(norm(x)). In every second block, the windows are
// shifted by half their size.
class SwinBlock : public torch::nn::Module {
 public:
  SwinBlock(int64_t dim, int64_t heads, int64_t side, int64_t window, bool shifted, double drop_path_rate)
      : side_(side),
        window_(std::min(side, window)),
        padded_((side + window_ - 1) / window_ * window_),
        shift_(shifted && side > window ? window / 2 : 0),
        drop_path_(drop_path_rate) {
    if (shift_ > 0) mask_ = shift_mask(padded_, window_, shift_);
    norm1_ = register_module("norm1", layer_norm(dim, kNormEps));
    attn_ = register_module("attn", std::make_shared<WindowAttention>(dim, heads, window_));
    norm2_ = register_module("norm2", layer_norm(dim, kNormEps));
    mlp_ = register_module("mlp", std::make_shared<Mlp>(dim));
  }

  at::Tensor forward(at::Tensor x) {
    x = x + drop_path(attention(norm1_->forward(x)), drop_path_, is_training());
    return x + drop_path(mlp_->forward(norm2_->forward(x)), drop_path_, is_training());
  }

 private:
  at::Tensor attention(at::Tensor x) {
    if (shift_ > 0) x = x.roll({-shift_, -shift_}, {1, 2});
    const int64_t pad = padded_ - side_;
    if (pad > 0) x = at::constant_pad_nd(x, {0, 0, 0, pad, 0, pad});
    x = from_windows(attn_->forward(to_windows(x, window_), mask_), window_, padded_);
    if (pad > 0) x = x.slice(1, 0, side_).slice(2, 0, side_);
    return shift_ > 0 ? x.roll({shift_, shift_}, {1, 2}) : x;
  }

  int64_t side_;
  int64_t window_;
  int64_t padded_;
  int64_t shift_;
  double drop_path_;
  at::Tensor mask_;
  torch::nn::LayerNorm norm1_{nullptr};
  torch::nn::LayerNorm norm2_{nullptr};
  std::shared_ptr<WindowAttention> attn_;
  std::shared_ptr<Mlp> mlp_;
};

// Merges each 2x2 group of positions into one position with twice the features.
class PatchMerging : public torch::nn::Module {
 public:
  explicit PatchMerging(int64_t dim) {
    norm_ = register_module("norm", layer_norm(4 * dim, kNormEps));
    reduction_ = register_module("reduction",
                                 torch::nn::Linear(torch::nn::LinearOptions(4 * dim, 2 * dim).bias(false)));
  }

  at::Tensor forward(const at::Tensor& x) {
    // The four positions are in column-major order, as in the pretrained weights.
    const auto merged = x.unflatten(2, {-1, 2}).unflatten(1, {-1, 2}).permute({0, 1, 3, 4, 2, 5}).flatten(3);
    return reduction_->forward(norm_->forward(merged));
  }

 private:
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear reduction_{nullptr};
};

}  // namespace

class SwinStage : public torch::nn::Module {
 public:
  // `dim` and `side` are the features and the side length inside the blocks. A stage that merges patches
  // takes an input with half the features and twice the side length. The stage has one block per drop path
  // rate.
  SwinStage(int64_t dim, int64_t heads, int64_t side, int64_t window, bool merges,
            const std::vector<double>& drop_path_rates) {
    if (merges) downsample_ = register_module("downsample", std::make_shared<PatchMerging>(dim / 2));
    const auto blocks = register_module("blocks", torch::nn::ModuleList());
    for (size_t i = 0; i < drop_path_rates.size(); ++i) {
      blocks_.push_back(
          std::make_shared<SwinBlock>(dim, heads, side, window, /*shifted=*/i % 2 == 1, drop_path_rates[i]));
      blocks->push_back(blocks_.back());
    }
  }

  at::Tensor forward(at::Tensor x) {
    if (downsample_) x = downsample_->forward(x);
    for (const auto& block : blocks_) x = block->forward(x);
    return x;
  }

 private:
  std::shared_ptr<PatchMerging> downsample_;
  std::vector<std::shared_ptr<SwinBlock>> blocks_;
};

// The mean over all positions, followed by a linear layer.
class SwinHead : public torch::nn::Module {
 public:
  SwinHead(int64_t dim, int64_t classes) { fc_ = register_module("fc", torch::nn::Linear(dim, classes)); }
  at::Tensor forward(const at::Tensor& x) { return fc_->forward(x.mean({1, 2})); }
  void reset() { init_linear(*fc_); }

 private:
  torch::nn::Linear fc_{nullptr};
};

Swin::Swin(const SwinOptions& options) : options_(options) {
  const auto& depths = options.depths;
  const auto stages = static_cast<int64_t>(depths.size());
  check_channels_and_classes(options.channels, options.classes, "swin");
  TORCH_CHECK_VALUE(stages >= 1 && stages <= 8 && *std::min_element(depths.begin(), depths.end()) >= 1,
                    "[tensorion.swin] depths must have 1 to 8 entries, each at least 1, got ",
                    at::IntArrayRef(depths));
  TORCH_CHECK_VALUE(options.patch >= 1 && options.window >= 1,
                    "[tensorion.swin] patch and window must be at least 1, got ", options.patch, " and ",
                    options.window);
  const int64_t reduction = options.patch << (stages - 1);
  TORCH_CHECK_VALUE(options.image_size >= reduction && options.image_size % reduction == 0,
                    "[tensorion.swin] image_size must be a multiple of ", reduction, " (patch size ",
                    options.patch, ", doubled in each stage after the first), got ", options.image_size);
  TORCH_CHECK_VALUE(options.heads >= 1 && options.dim >= 1 && options.dim % options.heads == 0,
                    "[tensorion.swin] dim must be a multiple of the number of heads, got dim ", options.dim,
                    " and heads ", options.heads);
  TORCH_CHECK_VALUE(options.drop_path >= 0.0 && options.drop_path < 1.0,
                    "[tensorion.swin] drop_path must be in [0, 1), got ", options.drop_path);

  patch_embed_ = register_module(
      "patch_embed",
      std::make_shared<PatchEmbed>(options.channels, options.patch, options.dim, /*normalized=*/true));
  const auto layers = register_module("layers", torch::nn::ModuleList());
  const int64_t total = std::accumulate(depths.begin(), depths.end(), int64_t{0});
  int64_t dim = options.dim, heads = options.heads, side = options.image_size / options.patch, block = 0;
  for (int64_t stage = 0; stage < stages; ++stage) {
    if (stage > 0) {
      dim *= 2;
      heads *= 2;
      side /= 2;
    }
    std::vector<double> rates(depths[stage]);
    for (auto& rate : rates) {
      rate = options.drop_path * static_cast<double>(block++) /
             static_cast<double>(std::max<int64_t>(1, total - 1));
    }
    stages_.push_back(
        std::make_shared<SwinStage>(dim, heads, side, options.window, /*merges=*/stage > 0, rates));
    layers->push_back(stages_.back());
  }
  norm_ = register_module("norm", layer_norm(dim, kNormEps));
  head_ = register_module("head", std::make_shared<SwinHead>(dim, options.classes));
  init_linears(*this);
}

void Swin::reset_head() { head_->reset(); }

at::Tensor Swin::forward(at::Tensor images) {
  check_images(images, options_.channels, options_.image_size, "swin");
  auto x = patch_embed_->forward(images);
  for (const auto& stage : stages_) x = stage->forward(x);
  return head_->forward(norm_->forward(x));
}

}  // namespace tensorion::lab
