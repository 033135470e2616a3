// The statuses that the fake driver answers with (nvstatuscodes.h), and its one GPU's UUID.
#pragma once

#include <cstdint>

namespace telegrad::fakes {

inline constexpr uint32_t kUuidNotFound = 0x12, kIllegalAction = 0x16, kInUse = 0x17,
                          kDuplicateName = 0x19, kInvalidAddress = 0x1E, kInvalidArgument = 0x1F,
                          kInvalidClass = 0x22, kInvalidClient = 0x23, kInvalidCommand = 0x24,
                          kInvalidDevice = 0x26, kInvalidFlags = 0x29, kInvalidLimit = 0x2E,
                          kInvalidObject = 0x31, kInvalidObjectHandle = 0x33, kInvalidParent = 0x36,
                          kInvalidOffset = 0x37, kInvalidParamStruct = 0x3A, kInvalidIndex = 0x2C,
                          kNoMemory = 0x51, kInvalidParameter = 0x3B, kInvalidState = 0x40,
                          kNotSupported = 0x56, kObjectNotFound = 0x57, kStateInUse = 0x63,
                          kAddressInUse = 0x68;

inline constexpr uint8_t kFakeUuid[16] = {0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
                                          0x99, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE, 0xFF, 0x01};

}  // namespace telegrad::fakes
