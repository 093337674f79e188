// The C interface; structures.cpp tells Python of its structures, field by field.
#pragma once

#include <cstdint>

#include "objective.h"

extern "C" {

enum HamJoin : int64_t { kRectified = 0, kNormalised = 1, kHighway = 2 };

// Tensors are contiguous, row-major, float32 unless said otherwise; example first.
struct HamEpisode {
  int64_t batch, leaves, rows, timesteps, every;
  int64_t bits, width, query, hidden, outputs, depth;
  int64_t has_lstm, taped, threads;
  int64_t join;              // HamJoin, the form of JOIN
  int64_t kinds;             // of leaves in `stock`
  int64_t runs;              // LSTM+HAM, a batch of training: so many examples in a row are one input; 0: one
  int64_t entropy;           // soft attention: HamEntropy, the kind of the exploration term
  float exploration;         // its weight; 0: none
  float least_entropy;       // as in HamObjective
  float pull;                // weight of h^2 / 2 for every value h that JOIN makes
  float tree_clip;           // soft attention: largest component of a tree's gradient at a timestep; 0: any
  float top;                 // ceiling of what EMBED and a rectified JOIN give; 0: none
  float grid;                // values are multiples of 1 / grid, a power of two; 0: any
  float cell_bound;          // LSTM cells lie in [-cell_bound, cell_bound]; 0: anywhere
  const float* const* parameters;
  const float* inputs;       // LSTM+HAM: [rows][bits], raw HAM: [timesteps][bits]
  const int64_t* lengths;    // LSTM+HAM only: rows that each example has
  const int64_t* places;     // LSTM+HAM only: [rows], the leaf of each row, ascending; null: leaf i has row i
  const float* first_state;  // LSTM+HAM only: [query], both or none; null: zeros
  const float* first_cell;   // [query]
  const float* stock;        // raw HAM, not soft: [kinds][width], what leaves hold at first, the same for all; or null
  const int64_t* stock_ends; // [kinds], ascending: where the leaves that hold each of them end
  const int64_t* durations;  // timesteps each example runs
  const float* uniforms;     // [timesteps][levels], or null: greedy
  // Results; all but output_logits may be null. Beyond an example's duration: zeros (leaf: -1).
  float* output_logits;      // [timesteps / every][outputs]
  float* turn_logits;        // [timesteps][levels]
  uint8_t* turns;            // [timesteps][levels]
  int64_t* leaf;             // [timesteps]
  float* queries;            // [timesteps][query]
  float* tree;               // [2 leaves][width]
  double* penalties;         // of a taped call: what the pull and, with soft attention, the exploration cost
  float* shared_trees;       // with runs: [inputs + chunks][2 leaves][width], of inputs, then gradients
  float* tape;
  float* scratch;
  // Backward; either incoming gradient may be null.
  const float* d_output_logits;
  const float* d_turn_logits;
  float* const* d_parameters;
};

// What every batch of training has: memory for results, tapes and scratch, and what comes out.
struct HamBatch {
  float* workspace;
  int64_t floats;         // of the workspace
  const float* gradient;  // the vector that d_parameters point into, and its length
  int64_t weights;
  double terms[kTerms];   // the objective's, and the pull
  double norm;            // of the gradient
};

// A batch of a model with a memory.
struct HamGradient {
  HamEpisode episode;      // its results, tape and scratch are taken from the workspace
  HamObjective objective;  // likewise; batch, timesteps and the like come from the episode
  HamBatch batch;
};

// Adam on one vector.
struct HamAdam {
  int64_t weights;
  float* weight;
  const float* gradient;
  float* mean;
  float* square;
  float mean_rate, square_rate, square_decay, epsilon;
  float scale;                // of the gradient, for clipping
  float rate, unbiased_root;  // the learning rate and the root's divisor, both with bias correction
};

// An LSTM over an example's rows, as many as it has, in one or both directions, from a state of zeros.
struct HamReader {
  int64_t batch, slots, features, cells, directions, taped, threads;
  const float* const* parameters;
  const float* rows;               // [slots][features]
  const int64_t* lengths;          // rows that each example has
  float* states;                   // [slots][directions][cells], zeros beyond the length
  float* last_state;               // [directions][cells]: after an example's own last row
  float* last_cell;
  float* tape;
  float* scratch;
  // Backward; any incoming gradient may be null.
  const float* d_states;
  const float* d_last_state;
  const float* d_last_cell;
  float* const* d_parameters;
};

// An LSTM that writes symbols and is fed the symbol before. With items, each step first looks at them, and
// a layer with tanh makes the first state of the one given, beside a cell of zeros.
struct HamDecoder {
  int64_t batch, symbols, bits, cells, directions, items, item, width, taped, threads;
  const float* const* parameters;
  const float* state;              // [directions][cells], of which the last counts
  const float* cell;               // likewise; null with items
  const int64_t* asked;            // symbols that each example writes
  const float* targets;            // [symbols][bits], or null: it is fed its own symbols, rounded
  const float* memory;             // [items][item]
  const int64_t* lengths;          // items that each example has, at least one
  float* outputs;                  // [symbols][bits], zeros beyond those asked for
  float* tape;
  float* scratch;
  // Backward; zeros for the other directions.
  const float* d_outputs;
  float* d_state;
  float* d_cell;
  float* d_memory;
  float* const* d_parameters;
};

// A batch of a baseline.
struct HamSequence {
  HamReader reader;        // their results, tapes and scratch are taken from the workspace,
  HamDecoder decoder;      // and what the decoder starts from and looks at from the reader
  HamObjective objective;  // likewise; no decisions
  HamBatch batch;
};

// A tensor that a call expects: `network.tensor`, or the latter alone, of shape [rows][columns].
struct HamParameter {
  const char *network, *tensor;
  int64_t rows, columns;  // columns = 0: a bias
};

// For each kind of call. sizes: floats of tape, of forward's scratch, of backward's scratch.
// parameters: what is expected of `parameters`, in this order; how many there are is returned, and no more than
// `room` are told.
// backward: 0 when done, -1 if the tape is not one that forward wrote.
void ham_episode_sizes(const HamEpisode*, int64_t* sizes);
int64_t ham_episode_parameters(const HamEpisode*, HamParameter* found, int64_t room);
void ham_episode_forward(const HamEpisode*);
int64_t ham_episode_backward(const HamEpisode*);

// The same with soft attention: nothing is decided, so uniforms, turns and their logits must be null;
// leaf is the likeliest one.
void ham_soft_sizes(const HamEpisode*, int64_t* sizes);
int64_t ham_soft_parameters(const HamEpisode*, HamParameter* found, int64_t room);
void ham_soft_forward(const HamEpisode*);
int64_t ham_soft_backward(const HamEpisode*);

void ham_reader_sizes(const HamReader*, int64_t* sizes);
int64_t ham_reader_parameters(const HamReader*, HamParameter* found, int64_t room);
void ham_reader_forward(const HamReader*);
int64_t ham_reader_backward(const HamReader*);

void ham_decoder_sizes(const HamDecoder*, int64_t* sizes);
int64_t ham_decoder_parameters(const HamDecoder*, HamParameter* found, int64_t room);
void ham_decoder_forward(const HamDecoder*);
int64_t ham_decoder_backward(const HamDecoder*);

// 0 when done, -1 if an argument is out of range or not finite, else the floats that the workspace needs.
int64_t ham_gradient(HamGradient*);
int64_t ham_sequence_gradient(HamSequence*);

void ham_adam(const HamAdam*);

// The first index whose value is not finite, or outside [low, high]; -1 if there is none.
int64_t ham_first_not_finite(const float* values, int64_t count);
int64_t ham_range(const int64_t* values, int64_t count, int64_t low, int64_t high);

// For buffers that are used again and again, or at random places.
void ham_use_huge_pages(void* buffer, int64_t bytes);
void ham_release_buffers();
void ham_fill_with_nan(int64_t fill);

// A line for each field of each structure above, in order: structure, size of it, field, its type, offset, size.
const char* ham_structures();
}
