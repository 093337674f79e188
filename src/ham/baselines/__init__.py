"""The paper's baselines, with the contract of `ham.nn.Model`."""

from ham.baselines.attentive_decoder import AttentiveDecoder
from ham.baselines.encoder_decoder import EncoderDecoder

__all__ = ["AttentiveDecoder", "EncoderDecoder"]
