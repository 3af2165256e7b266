#include "lab/models/vit.h"

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/types.h>

namespace tensorion::lab {
namespace {

constexpr double kNormEps = 1e-6;

class Attention : public torch::nn::Module {
 public:
  explicit Attention(const VitOptions& options) : heads_(options.heads) {
    const int64_t dim = options.dim;
    qkv_ = register_module("qkv",
                           torch::nn::Linear(torch::nn::LinearOptions(dim, 3 * dim).bias(options.qkv_bias)));
    proj_ = register_module("proj", torch::nn::Linear(dim, dim));
  }

  at::Tensor forward(const at::Tensor& x) {
    const auto qkv = qkv_->forward(x).unflatten(-1, {3, heads_, -1}).permute({2, 0, 3, 1, 4});
    const auto mixed = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2]);
    return proj_->forward(mixed.transpose(1, 2).flatten(2));
  }

 private:
  int64_t heads_;
  torch::nn::Linear qkv_{nullptr};
  torch::nn::Linear proj_{nullptr};
};

class LayerScale : public torch::nn::Module {
 public:
  LayerScale(int64_t dim, double value) { gamma_ = register_parameter("gamma", at::full({dim}, value)); }
  at::Tensor forward(const at::Tensor& x) { return x * gamma_; }

 private:
  at::Tensor gamma_;
};

}  // namespace

// x + attention(norm(x)), then x + mlp(norm(x)).
class VitBlock : public torch::nn::Module {
 public:
  explicit VitBlock(const VitOptions& options) {
    const bool scaled = options.layer_scale != 0.0;
    norm1_ = register_module("norm1", layer_norm(options.dim, kNormEps));
    attn_ = register_module("attn", std::make_shared<Attention>(options));
    if (scaled) ls1_ = register_module("ls1", std::make_shared<LayerScale>(options.dim, options.layer_scale));
    norm2_ = register_module("norm2", layer_norm(options.dim, kNormEps));
    mlp_ = register_module("mlp", std::make_shared<Mlp>(options.dim));
    if (scaled) ls2_ = register_module("ls2", std::make_shared<LayerScale>(options.dim, options.layer_scale));
  }

  at::Tensor forward(at::Tensor x) {
    const auto attended = attn_->forward(norm1_->forward(x));
    x = x + (ls1_ ? ls1_->forward(attended) : attended);
    const auto mapped = mlp_->forward(norm2_->forward(x));
    return x + (ls2_ ? ls2_->forward(mapped) : mapped);
  }

 private:
  torch::nn::LayerNorm norm1_{nullptr};
  torch::nn::LayerNorm norm2_{nullptr};
  std::shared_ptr<Attention> attn_;
  std::shared_ptr<LayerScale> ls1_;
  std::shared_ptr<LayerScale> ls2_;
  std::shared_ptr<Mlp> mlp_;
};

Vit::Vit(const VitOptions& options) : options_(options) {
  const int64_t dim = options.dim;
  check_channels_and_classes(options.channels, options.classes, "vit");
  TORCH_CHECK_VALUE(
      options.patch >= 1 && options.image_size >= options.patch && options.image_size % options.patch == 0,
      "[tensorion.vit] image_size must be a multiple of the patch size ", options.patch, ", got ",
      options.image_size);
  TORCH_CHECK_VALUE(options.heads >= 1 && dim >= 1 && dim % options.heads == 0,
                    "[tensorion.vit] dim must be a multiple of the number of heads, got dim ", dim,
                    " and heads ", options.heads);
  TORCH_CHECK_VALUE(options.depth >= 1, "[tensorion.vit] depth must be at least 1, got ", options.depth);

  const int64_t grid = options.image_size / options.patch;
  const int64_t tokens = grid * grid + (options.class_token ? 1 : 0);
  if (options.class_token) cls_token_ = register_parameter("cls_token", at::empty({1, 1, dim}));
  pos_embed_ = register_parameter("pos_embed", at::empty({1, tokens, dim}));
  patch_embed_ = register_module("patch_embed", std::make_shared<PatchEmbed>(options.channels, options.patch,
                                                                             dim, /*normalized=*/false));
  const auto blocks = register_module("blocks", torch::nn::ModuleList());
  for (int64_t i = 0; i < options.depth; ++i) {
    blocks_.push_back(std::make_shared<VitBlock>(options));
    blocks->push_back(blocks_.back());
  }
  norm_ = register_module("norm", layer_norm(dim, kNormEps));
  head_ = register_module("head", torch::nn::Linear(dim, options.classes));

  trunc_normal_(pos_embed_, 0.02);
  if (options.class_token) torch::nn::init::normal_(cls_token_, 0.0, 1e-6);
  init_linears(*this);
}

at::Tensor Vit::forward(at::Tensor images) {
  check_images(images, options_.channels, options_.image_size, "vit");
  auto x = patch_embed_->forward(images).flatten(1, 2);
  if (options_.class_token) x = at::cat({cls_token_.expand({x.size(0), -1, -1}), x}, 1);
  x = x + pos_embed_;
  for (const auto& block : blocks_) x = block->forward(x);
  // LayerNorm acts on each token separately, so only the class token needs it.
  if (options_.class_token) return head_->forward(norm_->forward(x.select(1, 0)));
  return head_->forward(norm_->forward(x).mean(1));
}

}  // namespace tensorion::lab
