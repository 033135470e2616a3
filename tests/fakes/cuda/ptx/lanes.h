// Instructions that compute each lane's result from the same lane's operands, made from a plain
// function of values.
#pragma once

#include "tests/fakes/cuda/ptx/warp.h"

namespace fakecuda {

template <class R, class A, auto F>
void Lanes1(Warp& w, const Instruction& i, uint32_t lanes) {
  uint64_t* d = w.Slot(i.slot[0]);
  const uint64_t* a = w.Slot(i.slot[1]);
  Each(lanes, [&](int l) { d[l] = Put<R>(F(Get<A>(a[l]))); });
}

template <class R, class A, class B, auto F>
void Lanes2(Warp& w, const Instruction& i, uint32_t lanes) {
  uint64_t* d = w.Slot(i.slot[0]);
  const uint64_t* a = w.Slot(i.slot[1]);
  const uint64_t* b = w.Slot(i.slot[2]);
  Each(lanes, [&](int l) { d[l] = Put<R>(F(Get<A>(a[l]), Get<B>(b[l]))); });
}

template <class R, class A, class B, class C, auto F>
void Lanes3(Warp& w, const Instruction& i, uint32_t lanes) {
  uint64_t* d = w.Slot(i.slot[0]);
  const uint64_t* a = w.Slot(i.slot[1]);
  const uint64_t* b = w.Slot(i.slot[2]);
  const uint64_t* c = w.Slot(i.slot[3]);
  Each(lanes, [&](int l) { d[l] = Put<R>(F(Get<A>(a[l]), Get<B>(b[l]), Get<C>(c[l]))); });
}

}  // namespace fakecuda
