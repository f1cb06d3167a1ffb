import torch

f = torch.library.custom_op("mine::f", lambda x: x.clone(), mutates_args=(), schema="(Tensor x) -> Tensor")
f.register_autocast("cpu", torch.bfloat16)
f.register_autocast("cpu", torch.float16)
with torch.autocast("cpu"):
    cast = f(torch.ones(1)).dtype
if cast != torch.float16:
    raise SystemExit(f"defect: the second register_autocast changes nothing, {cast} is what runs")
print("fixed")
