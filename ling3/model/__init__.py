"""Token ids to logits; owns the sequence state and knows nothing of text, users or sockets."""

from ling3.model.decoder import Decoder
from ling3.model.package import Package
from ling3.model.state import Checkpoint, State

__all__ = ["Checkpoint", "Decoder", "Package", "State"]
