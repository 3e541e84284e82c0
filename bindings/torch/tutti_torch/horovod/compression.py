"""How gradients are made smaller while they travel."""

from typing import Any

import torch


class NoneCompressor:
    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        return tensor


class _Shorter:
    dtype: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Floats as shorter ones; the context is the dtype that they had."""
        return (tensor.to(cls.dtype), tensor.dtype) if tensor.is_floating_point() else (tensor, tensor.dtype)

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        return tensor.to(context)


class FP16Compressor(_Shorter):
    dtype = torch.float16


class BF16Compressor(_Shorter):
    dtype = torch.bfloat16


class Compression:
    """The compressors; any class with compress(tensor) -> (tensor, context) and decompress(tensor, context) is one."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
