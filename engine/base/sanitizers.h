// Whether this code is compiled with AddressSanitizer or ThreadSanitizer. GCC defines a macro for
// each; Clang 19 answers __has_feature.
#pragma once

#if defined(__has_feature)
#define TG_HAS_FEATURE(name) __has_feature(name)
#else
#define TG_HAS_FEATURE(name) 0
#endif

namespace telegrad {

#if defined(__SANITIZE_ADDRESS__) || TG_HAS_FEATURE(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

#if defined(__SANITIZE_THREAD__) || TG_HAS_FEATURE(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace telegrad
