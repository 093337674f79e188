"""What both baselines share: reading by lengths, symbols fed back, and masks."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ham.ops import Episode, run


def read_rows(
    encoder: nn.LSTM, rows: Float[Tensor, "batch slots features"], lengths: Int[Tensor, "batch"]
) -> tuple[Float[Tensor, "batch items states"], Tensor, Tensor]:
    """The encoder's states at every row, and the last state and cell of each direction [batch, directions, cells].

    They are as if each example had only its own rows.
    """
    return run("read_rows", _read_packed, encoder, rows, lengths)


def _read_packed(encoder: nn.LSTM, rows: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    packed = pack_padded_sequence(rows, lengths.cpu(), batch_first=True, enforce_sorted=False)
    states, (state, cell) = encoder(packed)
    return pad_packed_sequence(states, batch_first=True)[0], state.transpose(0, 1), cell.transpose(0, 1)


def read_online(
    encoder: nn.LSTM, rows: Float[Tensor, "batch slots features"], asked: Int[Tensor, "batch"]
) -> Float[Tensor, "batch slots states"]:
    """The encoder's states at every row that an answer was asked for."""
    return run("read_rows", lambda encoder, rows, _: encoder(rows), encoder, rows, asked)[0]


def before(targets: Float[Tensor, "batch symbols bits"]) -> Float[Tensor, "batch symbols bits"]:
    """The symbol before each one; zeros before the first."""
    return nn.functional.pad(targets, (0, 0, 1, -1))


def within(lengths: Int[Tensor, "batch"], slots: int) -> Bool[Tensor, "batch slots"]:
    """True where a slot is in use."""
    return torch.arange(slots, device=lengths.device) < lengths[:, None]


def undecided(outputs: Float[Tensor, "batch symbols bits"], asked: Int[Tensor, "batch"]) -> Episode:
    """The episode of a model that decides nothing: outputs as far as they were asked for."""
    return episode_of(outputs * within(asked, outputs.shape[1])[..., None])


def episode_of(outputs: Float[Tensor, "batch symbols bits"]) -> Episode:
    """Outputs that are zeros already beyond what was asked for, and no decisions."""
    batch, symbols, _ = outputs.shape
    nothing = outputs.new_zeros(batch, symbols, 0)
    return Episode(
        outputs=outputs,
        turn_logits=nothing,
        turns=nothing.bool(),
        leaves=torch.full((batch, symbols), -1, device=outputs.device),
        queries=nothing,
    )


def remember_by_default(*networks: nn.LSTM | nn.LSTMCell) -> None:
    """Forget-gate biases start at 1 (Jozefowicz et al., 2015), as in HAM's controller."""
    for network in networks:
        cells = network.hidden_size
        with torch.no_grad():
            for name, bias in network.named_parameters():
                if name.startswith("bias_ih"):
                    bias[cells : 2 * cells] = 1
