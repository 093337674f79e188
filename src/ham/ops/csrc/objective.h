// The C interface of the objective.
#pragma once

#include <cstdint>

extern "C" {

enum HamReward : int64_t { kHamming = 0, kLogProbability = 1 };
enum HamBaseline : int64_t { kNone = 0, kLearned = 1, kLeaveOneOut = 2 };
enum HamEntropy : int64_t { kInverse = 0, kNegative = 1, kPositive = 2 };

// What a batch cost: the parts of the loss, which add up to it; the mean entropy; the share of wrong examples.
enum HamTerm { kCrossEntropy, kBaselineLoss, kReinforce, kExploration, kPull, kMeanEntropy, kWrong, kTerms };

// Tensors are contiguous, row-major, float32 unless said otherwise; example first.
struct HamObjective {
  int64_t batch, symbols, bits, timesteps, levels, query, every, runs;
  int64_t reward, baseline, normalise, entropy;
  float discount, rightward, reinforce, exploration, least_entropy, least_square;
  const float* outputs;       // [symbols][bits]
  const float* targets;       // [symbols][bits]
  const uint8_t* counted;     // [symbols]; none beyond an example's duration
  const int64_t* durations;   // timesteps each example runs; what lies beyond is not looked at
  const float* turn_logits;   // [timesteps][levels]
  const uint8_t* turns;       // [timesteps][levels]
  const float* queries;       // [timesteps][query], for the learned baseline
  const float* head;          // the learned baseline: [query] weights and a bias
  float* d_outputs;
  float* d_turn_logits;
  float* d_head;
  float* scratch;             // ham_objective_floats
  double* terms;              // by HamTerm; the pull is the episode's
};

int64_t ham_objective_floats(const HamObjective*);
void ham_objective(const HamObjective*);
}
