// ImageDecoder, on the host: the size of the result depends on the bytes.
#include "engine/frontend/image/image.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

absl::StatusOr<PixelFormat> FormatNamed(std::string_view name) {
  if (name == "RGB") return PixelFormat::kRgb;
  if (name == "BGR") return PixelFormat::kBgr;
  if (name == "Grayscale") return PixelFormat::kGrayscale;
  return InvalidArgument("'pixel_format' is '", name, "', expected RGB, BGR or Grayscale");
}

}  // namespace

// "If it can't decode for any reason [...], it will return an empty matrix": so of bytes that are
// no image. What this program lacks or its limits refuse is an error: a result would be a wrong
// one.
absl::Status ImageDecoderOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const std::string_view name, c.String("pixel_format", "RGB"));
  TG_ASSIGN_OR_RETURN(const PixelFormat format, FormatNamed(name));
  TG_ASSIGN_OR_RETURN(const HostTensor* encoded, c.Content(0));
  if (encoded->dtype != DType::kUInt8 || encoded->shape.size() != 1) {
    return InvalidArgument("the image is ", Name(encoded->dtype), " ", ToString(encoded->shape),
                           ", expected bytes: u8 of one axis");
  }
  absl::StatusOr<Image> image = DecodeImage(encoded->bytes, format, c.values().budget());
  if (absl::IsInvalidArgument(image.status())) {
    const int64_t channels = format == PixelFormat::kGrayscale ? 1 : 3;
    return c.OutputKnown(HostTensor{DType::kUInt8, {0, 0, channels}, {}});
  }
  TG_RETURN_IF_ERROR(image.status());
  return c.OutputKnown(HostTensor{
      DType::kUInt8, {image->height, image->width, image->channels}, std::move(image->pixels)});
}

}  // namespace telegrad::onnx
