// The kernel of store_42.ptx as ptxas 12.8 makes it for sm_90a, and what its ELF says of it. A test
// makes it again where there is a ptxas.
#pragma once

#include <cstddef>
#include <cstdint>

namespace telegrad::nv {

inline constexpr uint32_t kStore42Value = 42;
inline constexpr uint32_t kStore42Registers = 8;  // EIATTR_REGCOUNT
inline constexpr uint32_t kStore42ParamBase =
    0x210;  // EIATTR_PARAM_CBANK: the constant bank's offset
inline constexpr uint32_t kStore42ParamBytes = 8;

// .text.store_42
inline constexpr uint32_t kStore42Code[] = {
    0xff017b82, 0x00000a00, 0x00000800, 0x000ff000, 0xff027b82, 0x00008400, 0x00000a00, 0x000e2200,
    0xff057435, 0x0000002a, 0x000001ff, 0x000fe200, 0x00047ab9, 0x00008200, 0x00000a00, 0x000fcc00,
    0x02007986, 0x00000005, 0x0c101904, 0x001fe200, 0x0000794d, 0x00000000, 0x03800000, 0x000fea00,
    0x00fc7947, 0xfffffffc, 0x0383ffff, 0x000fc000, 0x00007918, 0x00000000, 0x00000000, 0x000fc000,
    0x00007918, 0x00000000, 0x00000000, 0x000fc000, 0x00007918, 0x00000000, 0x00000000, 0x000fc000,
    0x00007918, 0x00000000, 0x00000000, 0x000fc000, 0x00007918, 0x00000000, 0x00000000, 0x000fc000,
    0x00007918, 0x00000000, 0x00000000, 0x000fc000, 0x00007918, 0x00000000, 0x00000000, 0x000fc000,
    0x00007918, 0x00000000, 0x00000000, 0x000fc000, 0x00007918, 0x00000000, 0x00000000, 0x000fc000,
};
static_assert(sizeof(kStore42Code) == 256);

}  // namespace telegrad::nv
