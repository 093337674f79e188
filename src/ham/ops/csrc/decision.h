// A decision and its logit: probability, entropy and the exploration term.
#pragma once

#include "objective.h"
#include "vec.h"

namespace ham {

// log(1 + e) for e in [0, 1], by the series of 2 atanh(e / (2 + e)): accurate near e = 0 too.
HAM_INLINE Vec log1p_small(Vec e) {
  Vec s = e / (e + 2.f);
  Vec q = s * s;
  Vec p = q * (1.f / 15) + 1.f / 13;
  p = p * q + 1.f / 11;
  p = p * q + 1.f / 9;
  p = p * q + 1.f / 7;
  p = p * q + 1.f / 5;
  p = p * q + 1.f / 3;
  p = p * q + 1.f;
  return (s + s) * p;
}

HAM_INLINE Vec magnitude(Vec x) { return x < 0.f ? -x : x; }

struct Logit {
  Vec probability;  // sigmoid(x)
  Vec doubt;        // sigmoid(-|x|)
  Vec log1p;        // log(1 + exp(-|x|))
};

HAM_INLINE Logit of_logit(Vec x) {
  SplitExp split = split_exp(clamp(-magnitude(x), -87.f, 0.f));
  Vec e = split.power * split.rest + split.power;
  Vec sure = 1.f / (1.f + e);
  Vec doubt = e * sure;
  return {x < 0.f ? doubt : sure, doubt, log1p_small(e)};
}

struct Entropy {
  Vec nats;
  Vec slope;  // at the logit
};

HAM_INLINE Entropy entropy_of(Vec x, const Logit& l) {
  return {l.log1p + magnitude(x) * l.doubt, -x * l.doubt * (1.f - l.doubt)};
}

struct Exploration {
  Vec term;
  Vec pull;  // towards more entropy: its slope there, with the other sign
};

HAM_INLINE Exploration exploration_of(int64_t kind, Vec nats, float least) {
  if (kind == kNegative) return {-nats, splat(1.f)};
  if (kind == kPositive) return {nats, splat(-1.f)};
  Vec inverse = 1.f / (nats + least);
  return {inverse, inverse * inverse};
}

}  // namespace ham
