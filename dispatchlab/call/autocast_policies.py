"""The policies of autocast: what each operator with a kernel at an autocast key wants of the dtypes of its arguments.

The kernels of a device are registered in one block, so that the table of an operator says that it has a policy and not
which. Source: aten/src/ATen/autocast_mode.h, autocast_mode.cpp, cudnn/AutocastRNN.cpp.
"""

from __future__ import annotations

from dispatchlab._short_repr import WordEnum
from dispatchlab.model.keys import AUTOCAST_KEY_OF_BACKEND, DispatchKey
from dispatchlab.model.keys import AUTOCAST_KEYS as AUTOCAST_KEYS


class CastPolicy(WordEnum):
    """What an operator wants of the dtypes of its arguments."""

    LOWER_PRECISION = "lower_precision_fp"
    FLOAT32 = "fp32"
    FLOAT32_RESULT = "fp32_set_opt_dtype"
    FLOAT32_APPENDED = "fp32_append_dtype"
    PROMOTE = "promote"
    BANNED = "banned"


LOWER_PRECISION_OF: dict[DispatchKey, str] = {
    key: "bfloat16" if backend in ("CPU", "HPU", "MAIA", "XLA") else "float16"
    for backend, key in AUTOCAST_KEY_OF_BACKEND.items()
}
"""The dtype that each kind of device casts to when `torch.autocast` is given none."""


def policy_of(key: DispatchKey, operator: str) -> CastPolicy:
    """The policy of an operator of aten that has a kernel of PyTorch at an autocast key.

    Args:
        key: the autocast key.
        operator: its full name.
    """
    name = operator.removeprefix("aten::")
    if key == DispatchKey.AutocastCPU:
        if name in _LOWER_ON_CPU:
            return CastPolicy.LOWER_PRECISION
        return CastPolicy.PROMOTE if name in _PROMOTE_ON_CPU else CastPolicy.FLOAT32
    if name in _LOWER:
        return CastPolicy.LOWER_PRECISION
    if name in _PROMOTE:
        return CastPolicy.PROMOTE
    if name == "binary_cross_entropy":
        return CastPolicy.BANNED
    if key != DispatchKey.AutocastMPS:
        if name in _RESULT:
            return CastPolicy.FLOAT32_RESULT
        if name in _APPENDED:
            return CastPolicy.FLOAT32_APPENDED
    return CastPolicy.FLOAT32


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LOWER_ON_CPU = _names("""
    conv1d conv1d.padding conv2d conv2d.padding conv3d conv3d.padding bmm mm linalg_vecdot baddbmm addmm
    _addmm_activation addbmm linear _convolution.deprecated matmul conv_tbc mkldnn_rnn_layer conv_transpose1d
    conv_transpose2d.input conv_transpose3d.input prelu scaled_dot_product_attention _native_multi_head_attention
""")
_PROMOTE_ON_CPU = _names("stack cat index_copy index_copy.dimname")
_LOWER = _names("""
    _convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm
    bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell
    rnn_relu_cell _scaled_dot_product_flash_attention scaled_dot_product_attention cudnn_convolution
    cudnn_convolution_transpose _mps_convolution _cudnn_rnn
""")
_PROMOTE = _names("addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add")
_RESULT = _names("""
    prod prod.dim_int prod.dim_Dimname softmax.int softmax.Dimname log_softmax.int log_softmax.Dimname cumprod
    cumprod.dimname cumsum cumsum.dimname linalg_vector_norm linalg_matrix_norm linalg_matrix_norm.str_ord sum
    sum.dim_IntList sum.dim_DimnameList
""")
_APPENDED = _names("norm.Scalar norm.ScalarOpt_dim norm.names_ScalarOpt_dim")
