from specdec.models.checkpoints import SMOLLM2, fetch, load_model
from specdec.models.errors import CheckpointError
from specdec.models.transformer import Output, Transformer, random_model

__all__ = ["SMOLLM2", "CheckpointError", "Output", "Transformer", "fetch", "load_model", "random_model"]
