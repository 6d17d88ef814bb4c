"""What the way from peer to peer does to a message: its parameters are written as its encoding says, and read again."""

from dataclasses import replace

import numpy as np
import torch

from firma.encoding import pack, unpack
from firma.errors import BadInput
from firma.models.split import Layout
from firma.protocol import Message


def carried(message: Message, layout: Layout) -> Message:
    """The message as it arrives, each tensor encoded by itself; float32 arrives as it left."""
    if message.wire == "float32":
        return message
    values, start = message.state.values, message.state.start
    counts = layout.counts(start, start + values.numel())
    stretches = np.split(values.detach().cpu().numpy(), np.cumsum(counts)[:-1])
    try:
        read = [unpack(message.wire, pack(message.wire, each), len(each)) for each in stretches]
    except ValueError as error:
        raise BadInput(f"wire = {message.wire!r}: a client's parameters hold {error}; set a lower rate") from None
    arrived = torch.from_numpy(np.concatenate(read)) if read else values.cpu()
    return replace(message, state=replace(message.state, values=arrived.to(values)))
