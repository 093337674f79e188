// The C interface of calls that have a forward and a backward: each is its `Work`, driven by call.h.

#include <type_traits>

#include "call.h"
#include "decoder.h"
#include "hard.h"
#include "reader.h"
#include "soft.h"

namespace {

int64_t tell(const ham::Parameters& parameters, HamParameter* found, int64_t room) {
  int64_t count = 0;
  for (const ham::Place& place : parameters.places) {
    if (count < room) found[count] = {place.network, place.tensor, place.rows, place.columns};
    ++count;
  }
  return count;
}

// Only episodes have any.
template <class Call>
void tell_penalties(const Call& call) {
  using Arguments = std::decay_t<decltype(call.work().a)>;
  if constexpr (std::is_same_v<Arguments, HamEpisode>) ham::add_penalties(call);
}

}  // namespace

#define HAM_CALLS(name, Arguments, Work)                                                            \
  void ham_##name##_sizes(const Arguments* a, int64_t* sizes) { ham::Call<Work>(*a).sizes(sizes); } \
  int64_t ham_##name##_parameters(const Arguments* a, HamParameter* found, int64_t room) {          \
    return tell(Work(*a).model, found, room);                                                       \
  }                                                                                                 \
  void ham_##name##_forward(const Arguments* a) {                                                   \
    ham::Call<Work> call(*a);                                                                       \
    call.forward();                                                                                 \
    tell_penalties(call);                                                                           \
  }                                                                                                 \
  int64_t ham_##name##_backward(const Arguments* a) { return ham::Call<Work>(*a).backward() ? 0 : -1; }

HAM_CALLS(episode, HamEpisode, ham::HardEpisode)
HAM_CALLS(soft, HamEpisode, ham::SoftEpisode)
HAM_CALLS(reader, HamReader, ham::Reader)
HAM_CALLS(decoder, HamDecoder, ham::Decoder)
