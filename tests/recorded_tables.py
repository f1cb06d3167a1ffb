"""What each PyTorch prints: the SHA-256 of the dump and the table of every operator, by name."""

from __future__ import annotations

from hashlib import sha256
from types import MappingProxyType

from dispatchlab.engine.dispatcher import Dispatcher

PRINTED = MappingProxyType(
    {
        "torch-2.4": "2ce75289be731cb906be167610437588a116dfc56bc5fddb2f32d696edd858b3",
        "torch-2.5": "f9d8fd3e585c504771887784769e0ce2b5f1c5129484d9173eede5685409ed5b",
        "torch-2.6": "1dacdaf0136106cca66269f0d952761677737b5f2d9f559de02d60b8c1b157b5",
        "torch-2.7": "03b847e0564e316e6fceeae25042c69eacd4dd0913c2ffbb11b1e3fac6e0339b",
        "torch-2.8": "852dd3c9d85379fb69e8269b9cd5dad74e064790be6fc659a6f8588f1dbfc5bb",
        "torch-2.9": "709cf105f548f697fd7f2de25c7059362e5748b9d657776e718e4245e656e9a5",
        "torch-2.10": "8d335f9c5286384d543d99fdeac4d32d18c306a274ff6ae675f6f3ecc82afaf6",
        "torch-2.11": "361db80113ef4886260004b18e5803fc2cc0a4d8371ab772c99286a06b452992",
        "torch-2.12": "183453d6027cb0417e33aef283d216ac3171243667b8c39539328833993d45e6",
        "torch-2.13": "d96e1adf91478e7fe2aa556a8ae00fea04dd57d83406b0c0ff961efdd0448d24",
        "torch-2.13-cpu": "ac26d93d3cffaed79b00b655640fd962cb4df3d591fbcf9fb6078d97d4e75a67",
        "torch-2.14": "3f55817ba90fd52df76b2fe0e8047e475bb56e91b58da3cd31ec3c5728a09965",
        "torch-2.15": "ac925b4c713e47c5e2410c1b8724c230d22ae2cb6dac74e5b241555e55689057",
    }
)
"""By registry, taken from the public wheels; paths start at the package.

The wheels of 2.10 to 2.12, 2.14 and 2.15 were asked after their fallback at AutogradPrivateUse1 had been released; its
row was put back where no other kernel serves it. For 2.13, asked before and after, this gives the same.
"""

STEP = 300

PRINTED_SAMPLE = MappingProxyType(
    {
        "torch-2.4": "fa291e026d4a098c4588946454677dc53eaaddbc80fad41f0dc3a6f1866397c9",
        "torch-2.5": "aafbf644b091fb3b905d8e6061f59dc6cb6b611cc4d5ea801bcb17ad493a1c29",
        "torch-2.6": "8e7e2349b6a0fdde364ae9f779f10710359f794a2c2c587520ed2a9f02104177",
        "torch-2.7": "32d02a5810df0a95447a1119a8dd2dd9b6066523861eb8966b8d693135d14b12",
        "torch-2.8": "d7cb7fa157581c7d4c13bd0a5144d088ff16d68f4453cd4e2525acb159b0339e",
        "torch-2.9": "13522e72a04de485c225809115f439f97dd9fac219b36770b8461a2e23a6f444",
        "torch-2.10": "3d63d4304e86de749a3d69b11140907d26b711b09e9d1d8b80eb053d3a73f196",
        "torch-2.11": "b9aabb04ec6da5612d34ebe96f335592ef4245c21128a7d240207c4627ee5c31",
        "torch-2.12": "d1d3dae84b47092abb318db1df2f43000b32f31421b289d4deb5c2cc43179faf",
        "torch-2.13": "9a9fd883a55c2223251f5df40dd369a07bcf512798c8c6cd111c6d754cccd4a1",
        "torch-2.13-cpu": "751d1973a764cf7b626ba3662e3357c62e7d08bb11134c9ec1e081e9722ef304",
        "torch-2.14": "182295d78a840311cf04c184784a4659d3bbcb5337e8954982c175508f0e61da",
        "torch-2.15": "d86199ce93f01e37a29d7beb0847ec90f998b5c92a2981d8bbce1ad2605f95ee",
    }
)
"""The same of every operator whose number among the names is divisible by `STEP`."""


def printed(dispatcher: Dispatcher) -> str:
    """The digest of what a dispatcher prints."""
    digest = sha256()
    for name in sorted(map(str, dispatcher.operators())):
        digest.update(dispatcher.dump(name).encode())
        digest.update(dispatcher.dump_table(name).encode())
    return digest.hexdigest()
