// Encoded images of every format; the corpus is also what image_test compares with Pillow's pixels.
#include "engine/frontend/image/image.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(data) {
  using namespace telegrad;
  const std::string_view file(reinterpret_cast<const char*>(data.data()), data.size());
  Budget::Limits limits;
  limits.steps = 500'000;
  limits.bytes = int64_t{256} << 20;
  Budget budget(limits);
  const auto image = DecodeImage(file, PixelFormat::kBgr, &budget);
  FUZZ_CHECK(budget.bytes_held() == 0);
  if (!image.ok()) return;
  FUZZ_CHECK(image->channels == 3 && image->width > 0 && image->height > 0);
  FUZZ_CHECK(static_cast<int64_t>(image->pixels.size()) == image->width * image->height * 3);
}
