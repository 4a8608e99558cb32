from specdec.models.checkpoints import fetch, load_model
from specdec.models.errors import CheckpointError
from specdec.models.transformer import Output, Transformer, random_model

__all__ = ["CheckpointError", "Output", "Transformer", "fetch", "load_model", "random_model"]
