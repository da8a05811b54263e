"""What is current in torch: its own look-ups, without the objects that its public forms make.

None where torch was built without CUDA.
"""

from __future__ import annotations

from typing import Any

import torch

current_device: Any = getattr(torch._C, "_cuda_getDevice", None)
current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
