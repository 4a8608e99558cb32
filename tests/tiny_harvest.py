"""What the tests of harvests and features share: a tiny target with a chat template, and sources of a few documents."""

import torch
from tokenizers import AddedToken, decoders, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import BPE

from specdec.config import Config
from specdec.models.tokenizer import Tokenizer
from specdec.models.transformer import Transformer, random_model
from specdec.training import corpora
from specdec.training.config import Harvest

SMALL = Harvest(batch=8, new_tokens=6, prefix=(3, 9), passage=(5, 12), message_tokens=5)
TEMPLATE = "{% for m in messages %}<s>{{ m.role }}:{{ m.content }}<e>{% endfor %}{% if add_generation_prompt %}<s>assistant:{% endif %}"


def target_of_bytes(seed: int, layers: int = 1) -> Transformer:
    """A random model that reads and writes bytes, and can chat; 257 ends a text."""
    fast = FastTokenizer(BPE({token: i for i, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    fast.pre_tokenizer, fast.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    fast.add_special_tokens([AddedToken("<s>", special=True), AddedToken("<e>", special=True)])
    model = random_model(Config(258, 16, layers, 4, 2, 4, 32, max_length=512), seed, torch.float32, 3.0)
    model.tokenizer = Tokenizer(fast, (257,), TEMPLATE)
    return model


def use_small_sources(monkeypatch) -> None:
    """So that no test but those about the real ones reads thousands of files or asks the index."""
    part = "def f{0}(x):\n    return x + {0}\n\nSpeaker {0}.\nWords of no. {0} are said.\n\n"
    texts = ["".join(part.format(100 * n + i) for i in range(60)) for n in range(3)]
    monkeypatch.setattr(corpora, "documents", lambda source, split: {f"{source} {n}": text for n, text in enumerate(texts)})
