// The supported operators: one row each. Semantics are those of docs/Operators.md of the ONNX
// project (Apache-2.0), for the opsets kMinOpset to kMaxOpset; of com.microsoft, those of
// docs/ContribOperators.md of ONNX Runtime (MIT).
#pragma once

#include <span>
#include <string_view>

#include "engine/frontend/onnx/node_context.h"

namespace telegrad::onnx {

inline constexpr int64_t kMinOpset = 1;
inline constexpr int64_t kMaxOpset = 28;

using OperatorFunction = absl::Status (*)(NodeContext&);

struct Operator {
  std::string_view name;  // with its domain and a dot before it unless that is the default one
  int min_inputs;
  int max_inputs;  // -1: any number
  OperatorFunction function;
  // Whether the sizes of its inputs may be those of the run (frontend/tensor/dims.h): then it makes
  // numbers of none of them. A row without this has the sizes found at import.
  bool run_sizes = false;
};

std::span<const Operator> AllOperators();  // sorted by name
const Operator* FindOperator(std::string_view domain, std::string_view name);

// Computes the node on the host if it is a small computation of integers that are known at import,
// as exporters make them for the shapes of Reshape. True if it did.
absl::StatusOr<bool> TryFold(NodeContext& c);

// The part of one axis that a Slice node takes: [begin, end), from its end if the step is negative,
// every |step|-th element.
struct SlicePart {
  int64_t axis = 0, begin = 0, end = 0, step = 1;
};
absl::StatusOr<std::vector<SlicePart>> SliceParts(NodeContext& c, ShapeView shape);

inline constexpr int64_t kMaxWindowNumber = int64_t{1} << 20;  // of kernels, strides, pads

// The functions, by file.
template <Tensor (Tensor::*F)() const>
absl::Status UnaryOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  return c.Output((x.*F)());
}

absl::Status MsAttentionOp(NodeContext& c);  // contrib_attention.cc
absl::Status QAttentionOp(NodeContext& c);
absl::Status MultiHeadAttentionOp(NodeContext& c);
absl::Status GroupQueryAttentionOp(NodeContext& c);
absl::Status MsRotaryEmbeddingOp(NodeContext& c);

absl::Status SkipLayerNormalizationOp(NodeContext& c);  // contrib_fused.cc
absl::Status SkipSimplifiedLayerNormalizationOp(NodeContext& c);
absl::Status SimplifiedLayerNormalizationOp(NodeContext& c);
absl::Status EmbedLayerNormalizationOp(NodeContext& c);
absl::Status FusedMatMulOp(NodeContext& c);
absl::Status FusedConvOp(NodeContext& c);
absl::Status NhwcConvOp(NodeContext& c);
absl::Status FusedGemmOp(NodeContext& c);
absl::Status BiasGeluOp(NodeContext& c);
absl::Status FastGeluOp(NodeContext& c);
absl::Status QuickGeluOp(NodeContext& c);

absl::Status QLinearAddOp(NodeContext& c);  // contrib_quantized.cc
absl::Status QLinearMulOp(NodeContext& c);
absl::Status QLinearSigmoidOp(NodeContext& c);
absl::Status QLinearLeakyReluOp(NodeContext& c);
absl::Status QLinearGlobalAveragePoolOp(NodeContext& c);
absl::Status QLinearConcatOp(NodeContext& c);
absl::Status QLinearAveragePoolOp(NodeContext& c);
absl::Status QLinearReduceMeanOp(NodeContext& c);
absl::Status QLinearSoftmaxOp(NodeContext& c);
absl::Status QLinearWhereOp(NodeContext& c);
absl::Status QGemmOp(NodeContext& c);
absl::Status DynamicQuantizeMatMulOp(NodeContext& c);
absl::Status MatMulIntegerToFloatOp(NodeContext& c);
absl::Status MatMulNBitsOp(NodeContext& c);

absl::Status CDistOp(NodeContext& c);  // contrib_lookup.cc
absl::Status GatherBlockQuantizedOp(NodeContext& c);

absl::Status MlScalerOp(NodeContext& c);  // ml_features.cc
absl::Status MlBinarizerOp(NodeContext& c);
absl::Status MlNormalizerOp(NodeContext& c);
absl::Status MlImputerOp(NodeContext& c);
absl::Status MlArrayFeatureExtractorOp(NodeContext& c);
absl::Status MlFeatureVectorizerOp(NodeContext& c);

absl::Status MlLabelEncoderOp(NodeContext& c);  // ml_labels.cc
absl::Status MlCategoryMapperOp(NodeContext& c);
absl::Status MlOneHotEncoderOp(NodeContext& c);
absl::Status MlZipMapOp(NodeContext& c);

absl::Status MlLinearRegressorOp(NodeContext& c);  // ml_linear.cc
absl::Status MlLinearClassifierOp(NodeContext& c);

absl::Status MlSvmRegressorOp(NodeContext& c);  // ml_svm.cc
absl::Status MlSvmClassifierOp(NodeContext& c);

absl::Status MlTreeEnsembleOp(NodeContext& c);  // ml_ensembles.cc
absl::Status MlTreeEnsembleRegressorOp(NodeContext& c);
absl::Status MlTreeEnsembleClassifierOp(NodeContext& c);

absl::Status EluOp(NodeContext& c);  // operators_activation.cc
absl::Status CeluOp(NodeContext& c);
absl::Status SeluOp(NodeContext& c);
absl::Status LeakyReluOp(NodeContext& c);
absl::Status ThresholdedReluOp(NodeContext& c);
absl::Status SwishOp(NodeContext& c);
absl::Status SwiGluOp(NodeContext& c);
absl::Status SoftplusOp(NodeContext& c);
absl::Status HardSigmoidOp(NodeContext& c);
absl::Status GeluOp(NodeContext& c);
absl::Status ShrinkOp(NodeContext& c);
absl::Status PReluOp(NodeContext& c);

absl::Status AttentionOp(NodeContext& c);  // operators_attention.cc
absl::Status RotaryEmbeddingOp(NodeContext& c);
absl::Status FlexAttentionOp(NodeContext& c);
absl::Status AdagradOp(NodeContext& c);
absl::Status AdamOp(NodeContext& c);
absl::Status GradientOp(NodeContext& c);
absl::Status MomentumOp(NodeContext& c);

absl::Status DepthToSpaceOp(NodeContext& c);  // operators_blocks.cc
absl::Status SpaceToDepthOp(NodeContext& c);
absl::Status CenterCropPadOp(NodeContext& c);

absl::Status CastOp(NodeContext& c);  // operators_cast.cc
absl::Status CastLikeOp(NodeContext& c);
absl::Status BitCastOp(NodeContext& c);

absl::Status IfOp(NodeContext& c);  // operators_control.cc
absl::Status LoopOp(NodeContext& c);
absl::Status ScanOp(NodeContext& c);
absl::Status SequenceMapOp(NodeContext& c);

absl::Status AddOp(NodeContext& c);  // operators_elementwise.cc
absl::Status SubOp(NodeContext& c);
absl::Status MulOp(NodeContext& c);
absl::Status DivOp(NodeContext& c);
absl::Status AndOp(NodeContext& c);
absl::Status OrOp(NodeContext& c);
absl::Status XorOp(NodeContext& c);
absl::Status EqualOp(NodeContext& c);
absl::Status LessOp(NodeContext& c);
absl::Status GreaterOp(NodeContext& c);
absl::Status LessOrEqualOp(NodeContext& c);
absl::Status GreaterOrEqualOp(NodeContext& c);
absl::Status SumOp(NodeContext& c);
absl::Status MaxOp(NodeContext& c);
absl::Status MinOp(NodeContext& c);
absl::Status MeanOp(NodeContext& c);
absl::Status WhereOp(NodeContext& c);
absl::Status PowOp(NodeContext& c);
absl::Status ModOp(NodeContext& c);
absl::Status BitShiftOp(NodeContext& c);
absl::Status IsInfOp(NodeContext& c);
absl::Status ClipOp(NodeContext& c);

absl::Status ConstantOfShapeOp(NodeContext& c);  // operators_index.cc
absl::Status RangeOp(NodeContext& c);
absl::Status EyeLikeOp(NodeContext& c);
absl::Status SizeOp(NodeContext& c);

absl::Status NegativeLogLikelihoodLossOp(NodeContext& c);  // operators_loss.cc
absl::Status SoftmaxCrossEntropyLossOp(NodeContext& c);

absl::Status MatMulOp(NodeContext& c);  // operators_matmul.cc
absl::Status GemmOp(NodeContext& c);
absl::Status EinsumOp(NodeContext& c);
absl::Status DetOp(NodeContext& c);

absl::Status IdentityOp(NodeContext& c);  // operators_movement.cc
absl::Status ConstantOp(NodeContext& c);
absl::Status ShapeOp(NodeContext& c);
absl::Status ReshapeOp(NodeContext& c);
absl::Status FlattenOp(NodeContext& c);
absl::Status TransposeOp(NodeContext& c);
absl::Status SqueezeOp(NodeContext& c);
absl::Status UnsqueezeOp(NodeContext& c);
absl::Status ExpandOp(NodeContext& c);
absl::Status ConcatOp(NodeContext& c);
absl::Status PadOp(NodeContext& c);

absl::Status BatchNormalizationOp(NodeContext& c);  // operators_norm.cc
absl::Status LayerNormalizationOp(NodeContext& c);
absl::Status RmsNormalizationOp(NodeContext& c);
absl::Status InstanceNormalizationOp(NodeContext& c);
absl::Status GroupNormalizationOp(NodeContext& c);
absl::Status LpNormalizationOp(NodeContext& c);
absl::Status MeanVarianceNormalizationOp(NodeContext& c);
absl::Status LrnOp(NodeContext& c);

absl::Status QuantizeLinearOp(NodeContext& c);  // operators_quantize.cc
absl::Status DequantizeLinearOp(NodeContext& c);
absl::Status DynamicQuantizeLinearOp(NodeContext& c);
absl::Status MatMulIntegerOp(NodeContext& c);
absl::Status QLinearMatMulOp(NodeContext& c);
absl::Status ConvIntegerOp(NodeContext& c);
absl::Status QLinearConvOp(NodeContext& c);

absl::Status RandomUniformOp(NodeContext& c);  // operators_random.cc
absl::Status RandomNormalOp(NodeContext& c);
absl::Status RandomUniformLikeOp(NodeContext& c);
absl::Status RandomNormalLikeOp(NodeContext& c);
absl::Status BernoulliOp(NodeContext& c);
absl::Status MultinomialOp(NodeContext& c);
absl::Status DropoutOp(NodeContext& c);

absl::Status RnnOp(NodeContext& c);  // operators_recurrent.cc
absl::Status GruOp(NodeContext& c);
absl::Status LstmOp(NodeContext& c);
absl::Status DynamicQuantizeLstmOp(NodeContext& c);

absl::Status SoftmaxOp(NodeContext& c);  // operators_reduce.cc
absl::Status LogSoftmaxOp(NodeContext& c);
absl::Status HardmaxOp(NodeContext& c);
absl::Status ReduceMeanOp(NodeContext& c);
absl::Status ReduceSumOp(NodeContext& c);
absl::Status ReduceProdOp(NodeContext& c);
absl::Status ReduceMaxOp(NodeContext& c);
absl::Status ReduceMinOp(NodeContext& c);
absl::Status ReduceL1Op(NodeContext& c);
absl::Status ReduceL2Op(NodeContext& c);
absl::Status ReduceSumSquareOp(NodeContext& c);
absl::Status ReduceLogSumOp(NodeContext& c);
absl::Status ReduceLogSumExpOp(NodeContext& c);
absl::Status ArgMaxOp(NodeContext& c);
absl::Status ArgMinOp(NodeContext& c);
absl::Status TopKOp(NodeContext& c);
absl::Status CumSumOp(NodeContext& c);
absl::Status CumProdOp(NodeContext& c);

absl::Status ResizeOp(NodeContext& c);  // operators_resize.cc
absl::Status UpsampleOp(NodeContext& c);

absl::Status RoiAlignOp(NodeContext& c);  // operators_roi.cc
absl::Status MaxRoiPoolOp(NodeContext& c);

absl::Status GridSampleOp(NodeContext& c);  // operators_sample.cc
absl::Status AffineGridOp(NodeContext& c);
absl::Status DeformConvOp(NodeContext& c);

absl::Status GatherOp(NodeContext& c);  // operators_scatter.cc
absl::Status GatherElementsOp(NodeContext& c);
absl::Status GatherNdOp(NodeContext& c);
absl::Status ScatterElementsOp(NodeContext& c);
absl::Status ScatterNdOp(NodeContext& c);
absl::Status TensorScatterOp(NodeContext& c);
absl::Status OneHotOp(NodeContext& c);
absl::Status ReverseSequenceOp(NodeContext& c);

absl::Status NonZeroOp(NodeContext& c);  // operators_select.cc
absl::Status CompressOp(NodeContext& c);
absl::Status UniqueOp(NodeContext& c);
absl::Status NonMaxSuppressionOp(NodeContext& c);

absl::Status SequenceEmptyOp(NodeContext& c);  // operators_sequence.cc
absl::Status SequenceConstructOp(NodeContext& c);
absl::Status SequenceInsertOp(NodeContext& c);
absl::Status SequenceEraseOp(NodeContext& c);
absl::Status SequenceAtOp(NodeContext& c);
absl::Status SequenceLengthOp(NodeContext& c);
absl::Status SplitToSequenceOp(NodeContext& c);
absl::Status ConcatFromSequenceOp(NodeContext& c);
absl::Status OptionalOp(NodeContext& c);
absl::Status OptionalHasElementOp(NodeContext& c);
absl::Status OptionalGetElementOp(NodeContext& c);

absl::Status DftOp(NodeContext& c);  // operators_signal.cc
absl::Status StftOp(NodeContext& c);
absl::Status HannWindowOp(NodeContext& c);
absl::Status HammingWindowOp(NodeContext& c);
absl::Status BlackmanWindowOp(NodeContext& c);
absl::Status MelWeightMatrixOp(NodeContext& c);

absl::Status SliceOp(NodeContext& c);  // operators_slice.cc
absl::Status SplitOp(NodeContext& c);
absl::Status TileOp(NodeContext& c);
absl::Status TriluOp(NodeContext& c);

absl::Status LinearAttentionOp(NodeContext& c);  // operators_state.cc
absl::Status CausalConvWithStateOp(NodeContext& c);

absl::Status StringNormalizerOp(NodeContext& c);  // operators_text.cc
absl::Status StringConcatOp(NodeContext& c);
absl::Status StringSplitOp(NodeContext& c);
absl::Status TfIdfVectorizerOp(NodeContext& c);

absl::Status RegexFullMatchOp(NodeContext& c);  // operators_regex.cc
absl::Status ImageDecoderOp(NodeContext& c);    // operators_image.cc

absl::Status ConvOp(NodeContext& c);  // operators_window.cc
absl::Status ConvTransposeOp(NodeContext& c);
absl::Status MaxPoolOp(NodeContext& c);
absl::Status NhwcMaxPoolOp(NodeContext& c);
absl::Status AveragePoolOp(NodeContext& c);
absl::Status LpPoolOp(NodeContext& c);
absl::Status GlobalLpPoolOp(NodeContext& c);
absl::Status MaxUnpoolOp(NodeContext& c);
absl::Status Col2ImOp(NodeContext& c);
absl::Status GlobalAveragePoolOp(NodeContext& c);
absl::Status GlobalMaxPoolOp(NodeContext& c);

}  // namespace telegrad::onnx
